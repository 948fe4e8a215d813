"""Front end of `json_schema`: one module for each kind of value."""
