"""Tiny random Llamas on disk, as a safetensors folder and as a GGUF file, with a byte-level tokenizer of their own."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIALS = ("<s>", "</s>", "<|turn|>")
BOS_ID, EOS_ID, TURN_ID = 0, 1, 2
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w"), ("Ã", "©")]
TEMPLATE = "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"


FAMILIES: dict[str, Any] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def byte_level_tokens() -> list[str]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*SPECIALS, *alphabet, *("".join(pair) for pair in MERGES)]


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    vocab = {token: index for index, token in enumerate(byte_level_tokens())}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    return fast


def save_tiny_llama(
    folder: Path, *, family: str = "llama", max_shard_size: str = "1GB", dtype: str = "float32", **changes: Any
) -> Any:
    """Save a model folder of this family or a near one; the model, on the weights as they were saved."""
    settings: dict[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "initializer_range": 0.25,
    }
    torch.manual_seed(7)
    config_class, model_class = FAMILIES[family]
    model = model_class(config_class(**{**settings, **changes})).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    byte_level_tokenizer().save_pretrained(folder)
    return model.float()


def save_tiny_gguf(path: Path) -> Path:
    """Save a GGUF file of one layer with the same tokenizer."""
    rng = np.random.default_rng(3)
    tokens = byte_level_tokens()
    hidden, feed_forward = 32, 64
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)))
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_chat_template(TEMPLATE)
    shapes = {
        "token_embd.weight": (len(tokens), hidden),
        "output_norm.weight": (hidden,),
        "blk.0.attn_norm.weight": (hidden,),
        "blk.0.ffn_norm.weight": (hidden,),
        "blk.0.attn_q.weight": (hidden, hidden),
        "blk.0.attn_k.weight": (hidden // 2, hidden),
        "blk.0.attn_v.weight": (hidden // 2, hidden),
        "blk.0.attn_output.weight": (hidden, hidden),
        "blk.0.ffn_gate.weight": (feed_forward, hidden),
        "blk.0.ffn_up.weight": (feed_forward, hidden),
        "blk.0.ffn_down.weight": (hidden, feed_forward),
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
