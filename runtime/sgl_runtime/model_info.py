"""ModelInfo: facts of the served model that the API shows and checks requests against."""

from dataclasses import dataclass
from typing import Literal

PoolingMethod = Literal["mean", "cls", "last"]
"""How one vector is made of a text's hidden states: their mean, the first, the last."""

ScoreActivation = Literal["softmax", "sigmoid", "none"]
"""What turns the numbers that a head gives into scores."""


@dataclass(frozen=True, kw_only=True)
class PoolingInfo:
    """What a model that makes vectors, and generates nothing, does with a text.

    Attributes:
        method: How the vector is made.
        size: Numbers in the vector.
        normalizes: Whether it is brought to length 1.
        labels: For a head that classifies, the name of each number; None where the vector is an embedding.
        activation: What turns the numbers of a classifying head into scores.
        reads_pairs: Whether the model tells two texts apart.
        max_length: Most tokens that the model's files allow; None where they say nothing.
    """

    method: PoolingMethod
    size: int
    normalizes: bool
    labels: list[str] | None
    activation: ScoreActivation
    reads_pairs: bool
    max_length: int | None


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
        pooling: What a model that does not generate does with a text; None for a model that does.
        hidden_size: Numbers of a token's embedding.
        vocab_size: Ids from 0 to one below this may stand in a prompt.
        eos_token_ids: Ids that end an output.
        bos_token_id: Beginning-of-sequence id, None where there is none.
        has_tokenizer: Whether requests may bring and get text.
        has_chat_template: Whether chat requests can be served.
        reasoning_parser: How the model marks its thinking; None where nobody has said.
        tool_call_parser: Name of the format in which it writes tool calls; None where it is not known.
        weight_dtype: Type of the weights in memory.
    """

    model_path: str
    served_model_name: str
    is_generation: bool
    context_length: int
    pooling: PoolingInfo | None
    hidden_size: int
    vocab_size: int
    eos_token_ids: list[int]
    bos_token_id: int | None
    has_tokenizer: bool
    has_chat_template: bool
    reasoning_parser: ReasoningMarks | None
    tool_call_parser: str | None
    weight_dtype: str
