"""The tables of models, by the class name in their config."""

from sgl_runtime.registry import Registry

MODELS = Registry(
    "model architecture",
    {
        "LlamaForCausalLM": "sgl_runtime.models.llama:LlamaForCausalLM",
        "Qwen3ForCausalLM": "sgl_runtime.models.llama:LlamaForCausalLM",
    },
)

_LLAMA_POOLING = "sgl_runtime.models.llama_pooling:LlamaPooling"
_BERT = "sgl_runtime.models.bert:Bert"
_ROBERTA = "sgl_runtime.models.roberta:Roberta"

POOLING_MODELS = Registry(
    "architecture of a model that makes vectors",
    {
        "BertModel": _BERT,
        "BertForSequenceClassification": _BERT,
        "LlamaModel": _LLAMA_POOLING,
        "LlamaForCausalLM": _LLAMA_POOLING,
        "LlamaForSequenceClassification": _LLAMA_POOLING,
        "Qwen3Model": _LLAMA_POOLING,
        "Qwen3ForCausalLM": _LLAMA_POOLING,
        "Qwen3ForSequenceClassification": _LLAMA_POOLING,
        "RobertaModel": _ROBERTA,
        "RobertaForSequenceClassification": _ROBERTA,
        "XLMRobertaModel": _ROBERTA,
        "XLMRobertaForSequenceClassification": _ROBERTA,
    },
)
