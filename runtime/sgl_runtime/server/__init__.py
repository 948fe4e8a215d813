"""The API process: HTTP, requests to ids, and one waiter for each request."""
