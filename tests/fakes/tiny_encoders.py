"""Tiny random models that make vectors, on disk: BERT with and without a head, decoders with one."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    Qwen3Model,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

from fakes.tiny_llama import FAMILIES, save_tiny_llama

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?"
DECODERS: dict[str, Any] = {
    "llama_classifier": (LlamaConfig, LlamaForSequenceClassification),
    "qwen3_classifier": (Qwen3Config, Qwen3ForSequenceClassification),
    "qwen3_bare": (Qwen3Config, Qwen3Model),
}


def word_piece_tokenizer() -> PreTrainedTokenizerFast:
    """Whole letters, and letters that go on with a word; as files of real models do, it asks to be cut and filled up."""
    words = [*SPECIALS, "hello", "world", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    backend = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


ENCODERS: dict[str, Any] = {
    "bert": (BertConfig, BertModel, BertForSequenceClassification),
    "xlm_roberta": (XLMRobertaConfig, XLMRobertaModel, XLMRobertaForSequenceClassification),
}


def save_tiny_bert(folder: Path, *, labels: list[str] | None = None, family: str = "bert", **changes: Any) -> Any:
    """Save a model folder; with labels it has a head that classifies.  The model, as transformers runs it."""
    settings: dict[str, Any] = {
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
    }
    if labels is not None:
        settings["id2label"] = dict(enumerate(labels))
        settings["label2id"] = {label: index for index, label in enumerate(labels)}
    torch.manual_seed(5)
    config_class, plain_class, classifier_class = ENCODERS[family]
    model_class = plain_class if labels is None else classifier_class
    model = model_class(config_class(**{**settings, **changes})).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
        elif name.endswith("LayerNorm.weight"):
            torch.nn.init.normal_(parameter, mean=1.0, std=0.2)
    model.save_pretrained(folder)
    word_piece_tokenizer().save_pretrained(folder)
    return model


def save_tiny_decoder(folder: Path, kind: str, **changes: Any) -> Any:
    """Save a decoder with a head that classifies, or without any; the model, as transformers runs it."""
    FAMILIES.update(DECODERS)
    return save_tiny_llama(folder, family=kind, pad_token_id=0, **changes)


def add_sentence_transformers(
    folder: Path, *, mode: str = "mean_tokens", normalizes: bool = True, max_length: int | None = None
) -> None:
    """What sentence-transformers keeps beside a model."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalizes else [])]
    modules = [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}" if index else "", "type": f"x.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    settings = {"word_embedding_dimension": 32, f"pooling_mode_{mode}": True, "pooling_mode_max_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    if max_length is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": max_length}))
