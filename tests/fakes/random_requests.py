"""Random requests for `/generate` that are right in every field."""

import random
from collections.abc import Callable
from typing import Any

_SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"enum": [1, 2, "x"]},
    {"type": "array", "items": {"type": "boolean"}},
]
_TAGS = {"structures": [{"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}], "triggers": ["<a"]}
_REGEXES = ["[a-z]{1,5}", "(ab|cd)+e", "a*", "x{50}y{50}z{50}", ".*", "(abc){0,60}"]


class RandomRequests:
    """Makes bodies for a server of the byte tokenizer and a context of 200 tokens.

    Args:
        seed: The same seed gives the same bodies.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def body(self) -> dict[str, Any]:
        rng = self.rng
        body: dict[str, Any] = {"sampling_params": self._params(), **self._prompt()}
        if rng.random() < 0.3 and "input_embeds" not in body:
            start, number = rng.choice([-1, 0, 1]), rng.choice([0, 3, 100])
            body |= {"return_logprob": True, "logprob_start_len": start, "top_logprobs_num": number}
        for name, chance, values in (
            ("return_hidden_states", 0.15, [True]),
            ("priority", 0.2, [-5, 5, 20]),
            ("extra_key", 0.2, ["k1", "k2"]),
            ("stream", 0.4, [True]),
        ):
            if rng.random() < chance:
                body[name] = rng.choice(values)
        return body

    def _ids(self, count: int) -> list[int]:
        return [self.rng.randrange(256) for _ in range(count)]

    def _prompt(self) -> dict[str, Any]:
        rng = self.rng
        match rng.randrange(5):
            case 0:
                return {"text": "shared prefix " * rng.randrange(13) + str(rng.randrange(5))}
            case 1:
                return {"text": ["t" * rng.randrange(1, 100) for _ in range(rng.randrange(1, 5))]}
            case 2:
                rows = rng.choice([1, 3, 60, 150])
                return {"input_embeds": [[float(rng.randrange(120)), 0, 0, 0] for _ in range(rows)]}
            case 3:
                return {"input_ids": self._ids(rng.choice([5, 120])), "text": "x" * rng.choice([1, 60])}
        return {"input_ids": self._ids(rng.choice([1, 2, 15, 16, 17, 64, 65, 100, 150, 190, 199]))}

    def _params(self) -> dict[str, Any]:
        rng = self.rng
        makers: dict[str, Callable[[], Any]] = {
            "n": lambda: rng.choice([1, 2, 3, 5]),
            "temperature": lambda: rng.choice([0, 0.01, 5, 100]),
            "top_p": lambda: rng.choice([1e-6, 0.5, 1]),
            "top_k": lambda: rng.choice([-1, 1, 5, 2**31 - 1]),
            "min_p": lambda: rng.choice([0, 0.5, 1]),
            "frequency_penalty": lambda: rng.uniform(-2, 2),
            "presence_penalty": lambda: rng.uniform(-2, 2),
            "repetition_penalty": lambda: rng.choice([0.01, 0.5, 1.2, 10]),
            "min_new_tokens": lambda: rng.choice([0, 1, 10, 200, 2**31 - 1]),
            "logit_bias": lambda: {str(each): rng.uniform(-100, 100) for each in self._ids(rng.choice([1, 70, 400]))},
            "sampling_seed": lambda: rng.choice([0, 5, 2**63 - 1]),
            "stop": lambda: rng.choice(["a", ["b", "cd"], [f"{number}q" for number in range(100)]]),
            "stop_regex": lambda: rng.choice(["[0-9]+", "a|b.c", "x{2,3}"]),
            "stop_token_ids": lambda: self._ids(rng.choice([1, 3, 100])),
            "ignore_eos": lambda: True,
            "no_stop_trim": lambda: True,
            "skip_special_tokens": lambda: False,
        }
        params = {name: make() for name, make in makers.items() if rng.random() < 0.2}
        params["max_new_tokens"] = rng.choice([0, 1, 2, 5, 20, 60, 150])
        constraints: list[dict[str, Any]] = [
            {"choices": ["yes", "no", "n" * rng.choice([2, 30])]},
            {"regex": rng.choice(_REGEXES)},
            {"json_schema": rng.choice(_SCHEMAS)},
            {"ebnf": 'root ::= "a" root | "b"'},
            {"structural_tag": _TAGS},
        ]
        return params | (rng.choice(constraints) if rng.random() < 0.4 else {})
