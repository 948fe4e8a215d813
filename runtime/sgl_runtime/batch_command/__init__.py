"""`sgl batch`: the requests of a file, answered into another."""
