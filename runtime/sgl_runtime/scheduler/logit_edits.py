"""The edits of single logits that the requests of a pass ask for."""

import json
from collections.abc import Sequence

import numpy as np

from sgl_runtime.batch import LogitEdits, ProcessorCall
from sgl_runtime.scheduler.logit_rules import NO_EDITS
from sgl_runtime.scheduler.req import Req


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
    parts = [each for _, each in edits] or [NO_EDITS]
    return LogitEdits(
        rows=np.repeat(np.array([row for row, _ in edits], dtype=np.int64), [len(each.token_ids) for _, each in edits]),
        token_ids=np.concatenate([each.token_ids for each in parts]),
        repetition=np.concatenate([each.repetition for each in parts]),
        added=np.concatenate([each.added for each in parts]),
        calls=tuple(calls),
    )


def _call(row: int, req: Req) -> ProcessorCall:
    processor = req.message.logit_processor
    assert processor is not None
    params = dict(json.loads(processor.params)) if processor.params else {}
    params["__prompt_ids__"] = req.tokens.view(0, req.prompt_len).copy()
    params["__output_ids__"] = req.tokens.view(req.prompt_len, len(req.tokens)).copy()
    return ProcessorCall(row=row, name=processor.name, is_pickled=processor.is_pickled, params=params)
