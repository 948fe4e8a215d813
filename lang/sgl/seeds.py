"""Seeds: the seeds of the gens of a run, from one number, the same in every execution."""

import hashlib

from sgl.sampling import MAX_SEED


class Seeds:
    """Gives each gen of a state its seed: the first one the seed itself, later ones and forks' gens derived ones.

    So branches of one seed differ, and nothing depends on what else runs.

    Args:
        seed: The run's seed; None gives None to every gen.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._num_gens = 0
        self._num_forks = 0

    def next_gen(self) -> int | None:
        """The seed of the next gen."""
        number, self._num_gens = self._num_gens, self._num_gens + 1
        return self._seed if number == 0 else self._derive(f"gen {number}")

    def next_fork(self, size: int) -> "list[Seeds]":
        """The seeds of the branches of the next fork."""
        number, self._num_forks = self._num_forks, self._num_forks + 1
        return [Seeds(self._derive(f"fork {number} branch {index}")) for index in range(size)]

    def _derive(self, path: str) -> int | None:
        if self._seed is None:
            return None
        digest = hashlib.blake2b(f"{self._seed} {path}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % (MAX_SEED + 1)
