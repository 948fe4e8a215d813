"""Names of fields in errors, as the body of an OpenAI path has them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import GRAMMAR_KINDS

_NATIVE_NAMES = (
    ("sampling_params.max_new_tokens", "max_tokens"),
    ("sampling_params.sampling_seed", "seed"),
    ("sampling_params.min_new_tokens", "min_tokens"),
    ("sampling_params.json_schema_lenient", "json_schema_lenient"),
)
_IN_BATCH = re.compile(r"(\[\d+\])\.(.*)")
_LAST_NAMES = (("sampling_params.", ""), ("extra_key", "cache_salt"))


@contextmanager
def openai_names(
    *,
    prompt: str,
    constraint: str | None = None,
    limit: str = "max_tokens",
    others: Sequence[tuple[str, str]] = (),
) -> Iterator[None]:
    """Name fields in errors as the body names them.

    Args:
        prompt: The body's field that holds the prompt.
        constraint: The one that constrains the output, where it is not called as natively.
        limit: The one that limits the output.
        others: Further native names, each with that of the body.
    """
    try:
        yield
    except InvalidRequestError as error:
        if error.param is None:
            raise
        param = error.param.replace("input_ids", prompt)
        param = f"{param.removesuffix('text')}{prompt}" if param.endswith("text") else param
        constraints = [(f"sampling_params.{kind}", constraint) for kind in GRAMMAR_KINDS if constraint is not None]
        for native, name in (*others, *_NATIVE_NAMES, *constraints, *_LAST_NAMES):
            param = param.replace(native, limit if name == "max_tokens" else name)
        if at := _IN_BATCH.fullmatch(param):
            # Prompts stand in a list; whatever else there is, they share.
            param = f"{prompt}{at[1]}" if at[2] == prompt else at[2]
        message = error.message
        if message.startswith(error.param):
            message = param + message.removeprefix(error.param)
        raise type(error)(message, param=param) from error
