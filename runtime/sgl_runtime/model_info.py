"""ModelInfo: facts of the served model that the API shows and checks requests against."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The reply of `/get_model_info`.

    Attributes:
        model_path: As given at start.
        served_model_name: Name in /v1/models and in replies.
        is_generation: Whether the model generates text.
        context_length: Limit on prompt and output together, as resolved.
        vocab_size: Ids from 0 to one below this may stand in a prompt.
        eos_token_ids: Ids that end an output.
        bos_token_id: Beginning-of-sequence id, None where there is none.
        has_chat_template: Whether chat requests can be served.
        weight_dtype: Type of the weights in memory.
    """

    model_path: str
    served_model_name: str
    is_generation: bool
    context_length: int
    vocab_size: int
    eos_token_ids: list[int]
    bos_token_id: int | None
    has_chat_template: bool
    weight_dtype: str
