"""DeviceVocabulary: the tokens of a model in device memory, as the kernels of constrained decoding read them."""

from collections.abc import Sequence

import numpy as np
import torch

_PAD = 256
_NO_TOKEN, _END_TOKEN = -1, -2


class DeviceVocabulary:
    """The tokens in device memory.

    Args:
        token_bytes: For each id its bytes; None or empty for ids that a constrained output never holds.
        end_ids: Ids that end an output.
        size: Number of logits, V.
        device: Where to.

    Attributes:
        num_sorted: Number of tokens in sorted order, padded to whole blocks.
        num_words: Words of one mask in the order of ids, ceil(V / 32).
    """

    def __init__(
        self, token_bytes: Sequence[bytes | None], *, end_ids: frozenset[int], size: int, device: torch.device
    ) -> None:
        by_id = [data if data and token_id not in end_ids else b"" for token_id, data in enumerate(token_bytes[:size])]
        by_id += [b""] * (size - len(by_id))
        ordered = [token_id for token_id, data in enumerate(by_id) if data]
        ordered.sort(key=by_id.__getitem__)
        tokens = [by_id[token_id] for token_id in ordered]
        count = len(tokens)
        self.num_sorted = -(-max(count, 1) // _PAD) * _PAD
        self.num_words = -(-size // 32)
        lengths = np.zeros(self.num_sorted, dtype=np.int32)
        lengths[:count] = list(map(len, tokens))
        columns = np.zeros((max(int(lengths.max()), 1), self.num_sorted), dtype=np.uint8)
        # All bytes of all tokens at once: which token each belongs to, and which of its bytes it is.
        owners = np.repeat(np.arange(self.num_sorted), lengths)
        nth = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns[nth, owners] = np.frombuffer(b"".join(tokens), dtype=np.uint8)
        ids = np.zeros(self.num_sorted, dtype=np.int32)
        ids[:count] = ordered
        places = np.full(self.num_words * 32, _NO_TOKEN, dtype=np.int32)
        places[ids[:count]] = np.arange(count)
        places[[token_id for token_id in end_ids if token_id < size]] = _END_TOKEN
        starts = np.cumsum([0, *map(len, by_id)]).astype(np.int32)
        self.columns = torch.from_numpy(columns).to(device)
        self.lengths = torch.from_numpy(lengths).to(device)
        self.places = torch.from_numpy(places).to(device)
        self.sorted_ids = torch.from_numpy(ids).to(device)
        self.id_bytes = torch.from_numpy(np.frombuffer(b"".join(by_id) + b"\0", dtype=np.uint8).copy()).to(device)
        self.id_starts = torch.from_numpy(starts).to(device)
