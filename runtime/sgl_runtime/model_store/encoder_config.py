"""EncoderConfig: the shapes of an encoder, whose tokens all look at each other."""

from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.config_fields import ConfigFields, first_architecture, token_ids

_PADDED_ARCHITECTURES = frozenset(
    {
        "RobertaModel",
        "RobertaForSequenceClassification",
        "XLMRobertaModel",
        "XLMRobertaForSequenceClassification",
    }
)
"""Encoders that count positions from behind the id of padding on."""

ENCODER_ARCHITECTURES = frozenset({"BertModel", "BertForSequenceClassification"}) | _PADDED_ARCHITECTURES
"""Architectures of this kind, as the model's config names them."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Shapes of an encoder.

    Attributes:
        architecture: Class name in the model's config, the key of the table of models.
        activation: Name of the feed-forward block's activation.
        norm_eps: Added to the variance by layer norms.
        context_length: Positions the model was made for.
        first_position: Row of the position embeddings that the first token gets.
        num_segments: Kinds of text that the embeddings tell apart, 2 where the model reads pairs.
        bos_id, eos_ids: What the config says of such tokens; nothing is generated.
        dtype: Type of the stored weights, by torch's name.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    norm_eps: float
    activation: str
    context_length: int
    first_position: int
    num_segments: int
    bos_id: int | None
    eos_ids: frozenset[int]
    dtype: str

    @classmethod
    def from_json(cls, data: dict[str, Any], *, source: str) -> "EncoderConfig":
        """Read the fields of a Hugging Face style config.

        Args:
            data: The parsed config.json.
            source: Where it came from, for messages.

        Raises:
            ModelLoadError: a shape is missing or wrong, or the model is built in a way that is not supported.
        """
        positions = data.get("position_embedding_type", "absolute")
        if positions != "absolute" or data.get("is_decoder"):
            name, value = ("is_decoder", True) if data.get("is_decoder") else ("position_embedding_type", positions)
            raise ModelLoadError(f"{source}: {name} is {value!r}; an encoder has absolute positions and no cache")
        fields = ConfigFields(data, source)
        hidden_size, num_heads = fields.required("hidden_size"), fields.required("num_attention_heads")
        if hidden_size % num_heads:
            raise ModelLoadError(
                f"{source}: hidden_size {hidden_size} cannot be divided by {num_heads} attention heads"
            )
        architecture = first_architecture(data)
        first_position = 0
        if architecture in _PADDED_ARCHITECTURES:
            first_position = next(iter(token_ids(data, "pad_token_id", source)), 1) + 1
        return cls(
            architecture=architecture,
            vocab_size=fields.required("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=fields.required("intermediate_size"),
            num_layers=fields.required("num_hidden_layers"),
            num_heads=num_heads,
            norm_eps=fields.number("layer_norm_eps", 1e-12),
            activation=str(data.get("hidden_act", "gelu")),
            context_length=fields.required("max_position_embeddings") - first_position,
            first_position=first_position,
            num_segments=fields.optional("type_vocab_size") or 1,
            bos_id=next(iter(token_ids(data, "bos_token_id", source)), None),
            eos_ids=frozenset(token_ids(data, "eos_token_id", source)),
            dtype=str(data.get("dtype") or data.get("torch_dtype") or "float32").removeprefix("torch."),
        )
