"""The OpenAPI document of the server, made of the tables that check requests."""
