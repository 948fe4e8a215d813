"""Formats in which models write tool calls, by the names of `--tool-call-parser`; `table.py` lists them."""
