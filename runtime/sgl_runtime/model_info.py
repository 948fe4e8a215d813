"""ModelInfo: facts of the served model that the API shows and checks requests against."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReasoningMarks:
    """What stands around the thinking of a model that thinks before it answers.

    Attributes:
        name: Name of the parser, as `--reasoning-parser` takes it.
        opening: Text in front of the thinking.
        closing: Text that ends it.
        answer: Text between that and the answer.
    """

    name: str
    opening: str
    closing: str
    answer: str


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
        reasoning_parser: How the model marks its thinking; None where nobody has said.
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
    reasoning_parser: ReasoningMarks | None
    weight_dtype: str
