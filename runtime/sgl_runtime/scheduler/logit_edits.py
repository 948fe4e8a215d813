"""The edits of single logits that the requests of a pass ask for."""

from collections.abc import Sequence

import numpy as np

from sgl_runtime.batch import LogitEdits
from sgl_runtime.scheduler.req import Req


def collect_edits(reqs: Sequence[Req]) -> LogitEdits | None:
    """The edits of a pass, None where no row has any."""
    edits = [
        (row, token_id, factor, added)
        for row, req in enumerate(reqs)
        if req.logit_rules is not None and req.max_new_tokens > 0
        for token_id, (factor, added) in req.logit_rules.edits().items()
    ]
    if not edits:
        return None
    rows, token_ids, factors, added = zip(*edits, strict=True)
    return LogitEdits(
        rows=np.array(rows, dtype=np.int64),
        token_ids=np.array(token_ids, dtype=np.int64),
        repetition=np.array(factors, dtype=np.float32),
        added=np.array(added, dtype=np.float32),
    )
