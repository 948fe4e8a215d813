"""Texts with their special tokens, cut as transformers cuts them, and the way back."""

import pytest

from fakes.tiny_encoders import word_piece_tokenizer
from sgl_runtime.tokenizer.tokenizer import Tokenizer


def test_files_that_ask_for_one_length_are_not_heeded() -> None:
    tokenizer = Tokenizer(word_piece_tokenizer(), add_bos=False)
    assert len(tokenizer.encode("a " * 30, add_bos=False)) == 30
    assert len(tokenizer.encode_whole("a").ids) == 3


@pytest.mark.parametrize(("first", "second"), [(3, 3), (10, 2), (2, 10), (7, 8), (8, 7), (9, 9), (1, 1)])
def test_texts_are_cut_the_longer_one_first(first: int, second: int) -> None:
    tokenizer, reference = Tokenizer(word_piece_tokenizer(), add_bos=False), word_piece_tokenizer()
    one, two = "a " * first, "b " * second
    for length in range(5, 25):
        expected = reference(one, two, truncation=True, max_length=length, padding=False, return_token_type_ids=True)
        found = tokenizer.encode_whole(one, two, max_length=length)
        assert found.ids == expected["input_ids"], length
        kinds = expected["token_type_ids"]
        assert found.segment_start == (kinds.index(1) if 1 in kinds else -1)
        single = reference(one, truncation=True, max_length=length, padding=False)["input_ids"]
        assert tokenizer.encode_whole(one, max_length=length).ids == single


def test_pieces_of_words_become_text_again() -> None:
    tokenizer = Tokenizer(word_piece_tokenizer(), add_bos=False)
    whole = tokenizer.encode_whole("hello abc, world")
    assert tokenizer.decode(whole.ids, skip_special_tokens=True) == "hello abc, world"
    assert tokenizer.decode(whole.ids, skip_special_tokens=False).startswith("[CLS] hello")
    pieces = [tokenizer.vocabulary.token_bytes[index] for index in tokenizer.encode("hello abc", add_bos=False)]
    assert b"".join(pieces) == b" hello abc"
