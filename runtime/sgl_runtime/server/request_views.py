"""What `/request_history` and `/inspect_request` show of a record."""

import codecs
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from sgl_runtime.server.pending_reply import token_bytes
from sgl_runtime.server.request_history import RequestRecord
from sgl_runtime.server.request_log import changed_fields
from sgl_runtime.tokenizer.vocabulary import Vocabulary


def summary(record: RequestRecord) -> dict[str, Any]:
    """One line of the list."""
    return {
        "key": record.key,
        "rid": record.rid,
        "path": record.path,
        "time": record.time,
        "state": record.state,
        "prompt_tokens": record.num_prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "completion_tokens": record.num_output,
        "constraint": record.sampling.grammar_kind,
        "seconds": record.total_s,
    }


def inspection(
    record: RequestRecord, vocabulary: Vocabulary, *, prompt_begin: int, output_begin: int, limit: int
) -> dict[str, Any]:
    """All of a request, with so many tokens of prompt and output from given places on."""
    kind = record.sampling.grammar_kind
    settings = {
        name: value for name, value in changed_fields(record.sampling).items() if name not in (kind, "grammar_kind")
    }
    forced = [place for place in record.forced_places if output_begin <= place < output_begin + limit]
    return {
        **summary(record),
        "client_rid": record.client_rid,
        "request_id": record.request_id,
        "error": record.error,
        "finish": _finish(record),
        "forced_tokens": record.forced_tokens,
        "timing": {"queue": record.queue_s, "first_token": record.first_s or None, "total": record.total_s},
        "sampling": settings,
        "grammar": None if kind is None else _grammar(record, kind),
        "prompt": token_window(record.prompt_ids, vocabulary, prompt_begin, limit),
        "output": {**token_window(record.output_ids, vocabulary, output_begin, limit), "forced": forced},
    }


def token_window(ids: Sequence[int], vocabulary: Vocabulary, begin: int, limit: int) -> dict[str, Any]:
    """Some tokens of a sequence.

    Returns:
        `total`, `begin`, `ids`, and for each its text in `texts`.  A token that ends inside a character has what comes
        before that, and the token that ends the character has it.
    """
    window = list(ids[begin : begin + limit])
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    raw = [token_bytes(vocabulary, token_id) for token_id in window]
    texts = [decoder.decode(data) for data in raw]
    if texts:
        texts[-1] += decoder.decode(b"", final=True)
    special = [begin + place for place, token_id in enumerate(window) if token_id in vocabulary.special_ids]
    return {"total": len(ids), "begin": begin, "ids": window, "texts": texts, "special": special}


def _finish(record: RequestRecord) -> dict[str, Any] | None:
    finish = record.finish
    if finish is None:
        return None
    return {
        "type": finish.type,
        "matched": finish.matched,
        "regex": finish.regex,
        "message": finish.message,
    }


def _grammar(record: RequestRecord, kind: str) -> dict[str, Any]:
    report = record.grammar
    return {
        "kind": kind,
        "constraint": structs.asdict(record.sampling)[kind],
        "backend": None if report is None else report.backend,
        "compile_seconds": None if report is None else report.compile_time,
        "relaxed": []
        if report is None
        else [{"path": path, "reason": reason} for path, reason in report.relaxed or ()],
    }
