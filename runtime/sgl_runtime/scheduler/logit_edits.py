"""The edits of single logits that the requests of a pass ask for."""

import json
from collections.abc import Sequence

import numpy as np

from sgl_runtime.batch import LogitEdits, ProcessorCall
from sgl_runtime.scheduler.req import Req

_NO_IDS = np.empty(0, dtype=np.int64)
_NO_VALUES = np.empty(0, dtype=np.float32)


def collect_edits(reqs: Sequence[Req | None]) -> LogitEdits | None:
    """The edits of a pass, None where no row has any.

    Args:
        reqs: The request of each row; None where nothing is drawn.
    """
    edits = [
        (row, req.logit_rules.edits())
        for row, req in enumerate(reqs)
        if req is not None and req.logit_rules is not None
    ]
    calls = [_call(row, req) for row, req in enumerate(reqs) if req is not None and req.message.logit_processor]
    if not edits and not calls:
        return None
    token_ids = [each.token_ids for _, each in edits]
    return LogitEdits(
        rows=np.repeat(np.array([row for row, _ in edits], dtype=np.int64), list(map(len, token_ids))),
        token_ids=np.concatenate([_NO_IDS, *token_ids]),
        repetition=np.concatenate([_NO_VALUES, *(each.repetition for _, each in edits)]),
        added=np.concatenate([_NO_VALUES, *(each.added for _, each in edits)], dtype=np.float32),
        calls=tuple(calls),
    )


def _call(row: int, req: Req) -> ProcessorCall:
    processor = req.message.logit_processor
    assert processor is not None
    params = dict(json.loads(processor.params)) if processor.params else {}
    params["__prompt_ids__"] = req.tokens.view(0, req.prompt_len).copy()
    params["__output_ids__"] = req.tokens.view(req.prompt_len, len(req.tokens)).copy()
    return ProcessorCall(row=row, name=processor.name, is_pickled=processor.is_pickled, params=params)
