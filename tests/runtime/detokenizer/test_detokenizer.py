import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.byte_tokenizer import EOS_ID, FIRST_PIECE_ID, VOCABULARY
from sgl_runtime.detokenizer.detokenizer import Detokenizer
from sgl_runtime.detokenizer.stop_matcher import StopMatcher
from sgl_runtime.ipc.messages import DetokenizeStart, FinishReason, GrammarReport, Heartbeat, TextDelta, TokenDelta
from sgl_runtime.tokenizer.vocabulary import Vocabulary

LENGTH = FinishReason(type="length")


def decode(ids: list[int], finish: FinishReason = LENGTH, **options: object) -> tuple[list[str], TextDelta]:
    """The pieces of text for ids that come one by one, and the last delta."""
    detokenizer = Detokenizer(VOCABULARY)
    num_trimmed_ids = int(options.pop("num_trimmed_ids", 0))  # type: ignore[call-overload]
    assert detokenizer.accept(DetokenizeStart(rid="r", **options)) == []  # type: ignore[arg-type]
    pieces = []
    for position, token_id in enumerate(ids):
        is_last = position == len(ids) - 1
        delta = TokenDelta(
            rid="r",
            new_ids=[token_id],
            finish=finish if is_last else None,
            num_trimmed_ids=num_trimmed_ids if is_last else 0,
        )
        (last,) = detokenizer.accept(delta)
        assert isinstance(last, TextDelta)
        pieces.append(last.text)
    assert detokenizer.num_states == 0
    return pieces, last


def stop(matched: str | int | None) -> FinishReason:
    return FinishReason(type="stop", matched=matched)


def text_of(ids: list[int]) -> str:
    return b"".join(VOCABULARY.token_bytes[i] for i in ids).decode(errors="replace")


@given(st.lists(st.one_of(st.integers(0, 255), st.sampled_from(list("é€🙂a".encode()))), min_size=1, max_size=40))
def test_pieces_put_together_are_the_text_decoded_at_once(ids: list[int]) -> None:
    pieces, last = decode(ids)
    assert "".join(pieces) == text_of(ids)
    assert last.num_text_ids == len(ids)
    assert last.text_tail == ""


@given(st.text(min_size=1, max_size=30))
def test_no_piece_holds_a_part_of_a_character(text: str) -> None:
    pieces, _ = decode(list(text.encode()))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_invalid_bytes_are_shown_when_they_can_be_no_character() -> None:
    pieces, _ = decode([0xFF, ord("a"), 0xE2, 0x82, ord("b"), ord("c")])
    assert pieces == ["\ufffd", "a", "", "", "\ufffdb", "c"]


def test_unfinished_character_is_flushed_at_the_end() -> None:
    pieces, _ = decode([ord("a"), 0xF0, 0x9F])
    assert pieces == ["a", "", "\ufffd"]


def test_special_tokens_are_left_out_unless_wanted() -> None:
    ids = [*b"a", EOS_ID, *b"b"]
    assert "".join(decode(ids)[0]) == "ab"
    assert "".join(decode(ids, skip_special_tokens=False)[0]) == "a</s>b"


def test_trimmed_end_of_sequence_is_no_part_of_the_text() -> None:
    pieces, last = decode([*b"ab", EOS_ID], stop(EOS_ID), num_trimmed_ids=1, skip_special_tokens=False)
    assert "".join(pieces) == "ab"
    assert (last.num_text_ids, last.new_ids) == (2, [EOS_ID])


def test_beginning_of_a_stop_string_is_held_back_and_released_when_ruled_out() -> None:
    pieces, _ = decode(list(b"xSTOP"), stop("STOP"), stop=("STOP",))
    assert pieces == ["x", "", "", "", ""]
    pieces, _ = decode(list(b"xSTOy"), stop=("STOP",))
    assert pieces == ["x", "", "", "", "STOy"]
    pieces, _ = decode(list(b"xST"), stop=("STOP",))
    assert pieces == ["x", "", "ST"]


def test_text_is_cut_at_the_earliest_match() -> None:
    ids = [*b"q ", FIRST_PIECE_ID + 4]  # "q ", "ab\n\nUser"
    pieces, last = decode(ids, stop("User"), stop=("User", "\n\n"))
    assert "".join(pieces) == "q ab"
    assert (last.num_text_ids, last.text_tail) == (2, "ab")


def test_no_stop_trim_keeps_the_match() -> None:
    pieces, last = decode(list(b"aSTOP"), stop("STOP"), stop=("STOP",), no_stop_trim=True)
    assert "".join(pieces) == "aSTOP"
    assert last.num_text_ids == 5


def test_tail_never_begins_inside_a_character() -> None:
    # The token E2 82 and a byte AC make one character; the boundary between them is none for text.
    vocabulary = Vocabulary([b"\xe2\x82", b"\xac!STOP", b"a"], frozenset())
    detokenizer = Detokenizer(vocabulary)
    detokenizer.accept(DetokenizeStart(rid="r", stop=("STOP",)))
    (last,) = detokenizer.accept(TokenDelta(rid="r", new_ids=[2, 0, 1], finish=stop("STOP")))
    assert isinstance(last, TextDelta)
    assert (last.text, last.num_text_ids, last.text_tail) == ("a€!", 1, "€!")


@given(st.lists(st.integers(FIRST_PIECE_ID, VOCABULARY.size - 1), min_size=1, max_size=12), st.integers(1, 4))
def test_text_ids_and_tail_make_the_text(ids: list[int], width: int) -> None:
    whole = b"".join(VOCABULARY.token_bytes[i] for i in ids).decode(errors="ignore")
    needle = whole[len(whole) // 2 :][:width]
    first = whole.find(needle)
    if not needle or b"\xe2" in b"".join(VOCABULARY.token_bytes[i] for i in ids):
        return
    # Ids up to the one with which the match is complete, as a scheduler would end them.
    count = next(n for n in range(1, len(ids) + 1) if needle in text_of(ids[:n]))
    pieces, last = decode(ids[:count], stop(needle), stop=(needle,))
    assert "".join(pieces) == whole[:first]
    assert text_of(ids[: last.num_text_ids]) + last.text_tail == whole[:first]


@given(st.text("ab", min_size=1, max_size=6), st.text("abc", max_size=40))
def test_matcher_knows_how_much_may_become_the_stop(pattern: str, text: str) -> None:
    matcher = StopMatcher(pattern.encode())
    for char in text:
        matcher.feed(char.encode())
    expected = max(n for n in range(len(pattern)) if text.endswith(pattern[:n]))
    assert matcher.matched_len == expected


def test_oldest_state_goes_when_the_table_is_full_and_its_request_ends_with_an_error() -> None:
    detokenizer = Detokenizer(VOCABULARY, capacity=2)
    for rid in ("a", "b", "c"):
        detokenizer.accept(DetokenizeStart(rid=rid))
    assert detokenizer.num_states == 2
    (lost,) = detokenizer.accept(TokenDelta(rid="a", new_ids=[65]))
    assert isinstance(lost, TextDelta)
    assert lost.finish is not None
    assert (lost.finish.type, lost.finish.code) == ("abort", "internal_error")
    (kept,) = detokenizer.accept(TokenDelta(rid="c", new_ids=[65]))
    assert isinstance(kept, TextDelta)
    assert kept.text == "A"


def test_second_start_of_a_rid_begins_anew() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    detokenizer.accept(DetokenizeStart(rid="r"))
    detokenizer.accept(TokenDelta(rid="r", new_ids=[0xE2]))
    detokenizer.accept(DetokenizeStart(rid="r"))
    (delta,) = detokenizer.accept(TokenDelta(rid="r", new_ids=[65], finish=LENGTH))
    assert isinstance(delta, TextDelta)
    assert (delta.text, delta.num_text_ids) == ("A", 1)


def test_everything_else_passes_unchanged() -> None:
    heartbeat = Heartbeat(time=1.0)
    assert Detokenizer(VOCABULARY).accept(heartbeat) == [heartbeat]


def test_all_facts_of_a_delta_are_carried_through() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    detokenizer.accept(DetokenizeStart(rid="r"))
    delta = TokenDelta(
        rid="r",
        new_ids=[65],
        finish=LENGTH,
        prompt_tokens=7,
        cached_tokens=5,
        grammar=GrammarReport(0.5, "fsm"),
        output_logprobs=[-1.0],
        input_logprobs=[None, -2.0],
    )
    (text,) = detokenizer.accept(delta)
    assert isinstance(text, TextDelta)
    for name in ("rid", "new_ids", "finish", "prompt_tokens", "cached_tokens", "grammar"):
        assert getattr(text, name) == getattr(delta, name)
    assert (text.output_logprobs, text.input_logprobs) == ([-1.0], [None, -2.0])


def test_ids_past_the_vocabulary_add_nothing() -> None:
    pieces, _ = decode([*b"a", VOCABULARY.size + 5, *b"b"])
    assert "".join(pieces) == "ab"


@pytest.mark.parametrize("seed", range(3))
def test_many_ids_in_one_delta_give_the_same_text(seed: int) -> None:
    rng = random.Random(seed)
    ids = [rng.randrange(256) for _ in range(50)]
    detokenizer = Detokenizer(VOCABULARY)
    detokenizer.accept(DetokenizeStart(rid="r"))
    (delta,) = detokenizer.accept(TokenDelta(rid="r", new_ids=ids, finish=LENGTH))
    assert isinstance(delta, TextDelta)
    assert delta.text == text_of(ids)
