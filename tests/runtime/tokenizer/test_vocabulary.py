"""Bytes of tokens against what the tokenizer's own decoder makes of them."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from fakes.tiny_llama import SPECIALS, byte_level_tokenizer
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.tokenizer import tokenizer as tokenizer_module
from sgl_runtime.tokenizer.vocabulary import Vocabulary, build_vocabulary, byte_level_alphabet


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """Of the kind of Llama 2: pieces with a mark for the space, and a token for each byte."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "h", "i", "▁h", "▁hi", "é", "▁▁"]
    merges = [("▁", "h"), ("▁h", "i"), ("▁", "▁")]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in pieces[:3]])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def vocabulary_of(fast: PreTrainedTokenizerFast) -> Vocabulary:
    return tokenizer_module.Tokenizer(fast, add_bos=False).vocabulary


def spelled(fast: PreTrainedTokenizerFast, text: str) -> bytes:
    table = vocabulary_of(fast).token_bytes
    return b"".join(table[token_id] for token_id in fast.encode(text, add_special_tokens=False))


TEXTS = ["hello world", "  hi  hi", "naïve é", "漢字 👩‍👧", "a\nb\tc", "\x00\x7f"]


@pytest.mark.parametrize("make", [byte_level_tokenizer, sentencepiece_tokenizer])
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_of_a_text_spell_it(make, text: str) -> None:
    assert spelled(make(), text) == text.encode()


def test_the_byte_alphabet_is_that_of_the_tokenizers_library() -> None:
    assert set(byte_level_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_level_alphabet().values()) == list(range(256))


def test_special_tokens_are_marked_and_hold_their_text() -> None:
    vocabulary = vocabulary_of(byte_level_tokenizer())
    assert vocabulary.special_ids == {0, 1, 2}
    assert [vocabulary.token_bytes[index].decode() for index in range(3)] == list(SPECIALS)


def test_byte_tokens_of_a_sentencepiece_vocabulary() -> None:
    vocabulary = vocabulary_of(sentencepiece_tokenizer())
    assert [vocabulary.token_bytes[3 + byte] for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert vocabulary.token_bytes[3 + 256 + 4] == b" hi"
    assert vocabulary.special_ids == {0, 1, 2}


def test_added_tokens_that_are_not_special_are_ordinary_text() -> None:
    fast = byte_level_tokenizer()
    fast.add_tokens(["<tool>", "naïve"])
    vocabulary = vocabulary_of(fast)
    for text in ("<tool>", "naïve"):
        (token_id,) = fast.encode(text, add_special_tokens=False)
        assert vocabulary.token_bytes[token_id] == text.encode()
        assert token_id not in vocabulary.special_ids


def test_ids_without_a_token_add_nothing() -> None:
    decoder = json.loads(byte_level_tokenizer().backend_tokenizer.to_str())["decoder"]
    vocabulary = build_vocabulary({"a": 0, "b": 3}, {5: ("<x>", True)}, decoder)
    assert list(vocabulary.token_bytes) == [b"a", b"", b"", b"b", b"", b"<x>"]
    assert vocabulary.size == 6


@pytest.mark.parametrize("decoder", [None, {"type": "Fuse"}, {"type": "Sequence", "decoders": []}])
def test_a_decoder_whose_bytes_are_not_known_is_refused_by_name(decoder) -> None:
    with pytest.raises(ModelLoadError, match=r"decoder is not supported: (none|.*Fuse|.*Sequence)"):
        build_vocabulary({"a": 0}, {}, decoder)
