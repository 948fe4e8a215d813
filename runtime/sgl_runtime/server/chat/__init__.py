"""The chat core: one kind of call and one kind of event behind every chat API; `chat_call.py` describes it."""
