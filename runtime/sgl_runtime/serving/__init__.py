"""The wiring around scheduler, server and detokenizer: processes, loops, and what each is given."""
