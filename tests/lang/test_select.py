"""select: scores, methods, token healing, edge cases (C03, C04 with a script, C05)."""

import itertools
import math

import pytest

import sgl
from sgl.backends.scripted_tokenizer import EOS_ID, ByteTokenizer, WordTokenizer

pytestmark = pytest.mark.timeout(20)

# Tokens of three choices behind "Q:", with and without it.  The mean picks the first, greedy the second, the
# unconditional form the third.
CONDITIONAL = {
    " one": -1.0,
    " two": 0.0,
    " three": -0.2,  # " one two three": mean -0.4
    " four": -0.5,
    " five": -0.9,  # " four five": mean -0.7, first token the best
    " six": -2.0,
    " seven": -1.5,  # " six seven": mean -1.75
}
UNCONDITIONAL = {" two": -0.1, " three": -0.3, " five": -0.9, " seven": -8.0}
CHOICES = [" one two three", " four five", " six seven"]


def table(context: str, token: str) -> float:
    return (CONDITIONAL if context.startswith("Q:") else UNCONDITIONAL).get(token, -1.0)


def pick(choices, *, method=None, prompt="Q:", logprob=table):
    @sgl.function
    def picking(s):
        s += prompt
        s += sgl.select("x", choices, choices_method=method)

    state = picking.run(backend=sgl.ScriptedBackend(logprob=logprob, tokenizer=WordTokenizer()))
    assert state.text() == prompt + state["x"]
    return state["x"], state.get_meta_info("x")


def test_mean_picks_the_first_and_counts_a_certain_token():
    choice, meta = pick(CHOICES)
    assert choice == " one two three"
    assert meta["scores"] == pytest.approx([-1.2 / 3, -1.4 / 2, -3.5 / 2], abs=1e-9)


def test_greedy_picks_the_second_token_by_token():
    choice, meta = pick(CHOICES, method=sgl.greedy_token_selection)
    assert choice == " four five"
    assert meta["greedy_logprob_matrix"][1] == pytest.approx([-0.5, -0.9, -0.7])


def test_unconditional_picks_the_third():
    choice, meta = pick(CHOICES, method=sgl.unconditional_likelihood_normalized)
    assert choice == " six seven"
    expected = [((-1.0) + (0.0 + 0.1) + (-0.2 + 0.3)) / 3, (-0.5 + 0.0) / 2, (-2.0 + (-1.5 + 8.0)) / 2]
    assert meta["scores"] == pytest.approx(expected, abs=1e-9)
    assert meta["unconditional_token_logprobs"][2] == [0.0, -8.0]


@pytest.mark.parametrize(
    "method",
    [sgl.token_length_normalized, sgl.greedy_token_selection, sgl.unconditional_likelihood_normalized],
)
def test_ties_go_to_the_earliest(method):
    assert pick([" b", " a", " c"], method=method, logprob=lambda context, token: 0.0)[0] == " b"


def test_probabilities_are_those_of_the_exact_choices():
    _, meta = pick(CHOICES)
    weights = [math.exp(total) for total in (-1.2, -1.4, -3.5)]
    assert meta["probabilities"] == pytest.approx([weight / sum(weights) for weight in weights])


def test_metadata_holds_exactly_the_tokens_of_each_choice():
    _, meta = pick(CHOICES)
    assert [[token[2] for token in tokens] for tokens in meta["input_token_logprobs"]] == [
        [" one", " two", " three"],
        [" four", " five"],
        [" six", " seven"],
    ]


def test_permuting_the_choices_permutes_the_scores():
    scores = dict(zip(CHOICES, pick(CHOICES)[1]["scores"], strict=True))
    for order in itertools.permutations(CHOICES):
        choice, meta = pick(list(order))
        assert choice == " one two three"
        assert dict(zip(order, meta["scores"], strict=True)) == scores


class Merging(ByteTokenizer):
    """Bytes, but "abcdefgh!" is one token."""

    def encode(self, text):
        head, merged, tail = text.partition("abcdefgh!")
        ids = super().encode(head)
        return [*ids, EOS_ID + 1, *super().encode(tail)] if merged else ids

    def token_bytes(self, token_id):
        return b"abcdefgh!" if token_id == EOS_ID + 1 else super().token_bytes(token_id)


def healing(context: str, token: str) -> float:
    return {" cat": -0.5, " ": -3.0, "cat": -4.0, " catalogue": -2.0}.get(token, -1.0)


def test_choices_are_scored_over_the_joint_tokens():
    # "a " ends in a lone space, which the choice takes into its first token.
    choice, meta = pick(["cat", "catalogue"], prompt="Q: a ", logprob=healing)
    assert choice == "cat"
    assert [[token[2] for token in tokens] for tokens in meta["input_token_logprobs"]] == [[" cat"], [" catalogue"]]
    assert meta["scores"] == pytest.approx([-0.5, -2.0])


def test_all_choices_are_scored_from_where_any_of_them_changes_the_prompt():
    # "!" leaves the lone space as it is: the space counts for it, as it does inside " cat".
    _, meta = pick(["cat", "!"], prompt="Q: a ", logprob=healing)
    assert [[token[2] for token in tokens] for tokens in meta["input_token_logprobs"]] == [[" cat"], [" ", "!"]]


def test_a_choice_that_changes_much_of_the_prompt_is_scored_from_there():
    @sgl.function
    def picking(s):
        s += "Q:abcdefgh" + sgl.select("x", ["!", "?"])

    meta = picking.run(backend=sgl.ScriptedBackend(tokenizer=Merging())).get_meta_info("x")
    tokens = [[token[2] for token in item] for item in meta["input_token_logprobs"]]
    assert tokens == [["abcdefgh!"], list("abcdefgh?")]


def test_splitting_constant_text_makes_no_difference():
    @sgl.function
    def split(s, parts):
        for part in parts:
            s += part
            s.fork(2)
        s += sgl.select("x", ["cat", "catalogue"])

    metas = []
    for parts in (["Q: a "], ["Q: ", "a "], ["Q", ": a", " "]):
        backend = sgl.ScriptedBackend(logprob=healing, tokenizer=WordTokenizer())
        metas.append(split.run(parts, backend=backend).get_meta_info("x"))
    assert metas[0]["scores"] == metas[1]["scores"] == metas[2]["scores"]


def test_the_pick_is_tokenized_together_with_what_follows():
    backend = sgl.ScriptedBackend(tokenizer=WordTokenizer())

    @sgl.function
    def going_on(s):
        s += "Q: a "
        s += sgl.select("x", ["in"])
        s += "side" + sgl.gen("y", regex="!")

    assert going_on.run(backend=backend).text() == "Q: a inside!"
    last = backend.model.calls[-1]
    assert last.payload["text"] == "Q: a inside"


def test_scoring_reuses_the_prefix():
    _, meta = pick(CHOICES, prompt="Q: " + "word " * 200)
    computed = [item["prompt_tokens"] - item["cached_tokens"] for item in meta["requests"]]
    # One of the choices computes the prompt, which nothing else has asked for.
    assert sorted(computed)[:-1] == [3, 3]
    assert max(computed) == meta["requests"][0]["prompt_tokens"]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([], "choices is \\[\\]; it must be a non-empty list"),
        ("abc", "choices is 'abc'"),
        (None, "choices is None"),
        (["a", "a"], "choices\\[1\\] is 'a', which is in choices twice"),
        (["a", 1], "choices\\[1\\] is 1"),
        (["a", ""], "choices\\[1\\] is ''"),
    ],
)
def test_bad_choices_raise_where_the_select_is_built(choices, message):
    with pytest.raises(sgl.ArgumentError, match=message):
        sgl.select("x", choices)


def test_a_gen_with_choices_is_a_select_and_takes_no_other_constraint():
    assert sgl.gen("x", choices=["a", "b"]) == sgl.select("x", ["a", "b"])
    with pytest.raises(sgl.ArgumentError, match="choices and regex"):
        sgl.gen("x", choices=["a"], regex="a")
    with pytest.raises(sgl.ArgumentError, match="choices and max_tokens"):
        sgl.gen("x", 5, choices=["a"])
    with pytest.raises(sgl.ArgumentError, match=r"choices is \[\]"):
        sgl.gen("x", choices=[])
    with pytest.raises(sgl.ArgumentError, match=r"temperature is 0\.7"):
        sgl.select("x", ["a"], temperature=0.7)


@pytest.mark.parametrize("choices", [["only"], ["a", "ab", "abc"], [" a", "a"], [f"option {n}" for n in range(300)]])
def test_a_member_of_the_list_is_picked(choices):
    assert pick(choices)[0] in choices


def test_a_method_of_ones_own():
    class Last:
        needs_unconditional = False

        def __call__(self, choices):
            return sgl.ChoiceDecision(index=len(choices) - 1, scores=[0.0] * len(choices), details={"why": "last"})

    choice, meta = pick(CHOICES, method=Last())
    assert (choice, meta["why"]) == (" six seven", "last")


def test_choice_has_all_scores_and_probabilities():
    @sgl.function
    def picking(s):
        s += "Q:" + sgl.select("x", CHOICES) + sgl.gen("y", regex="z")

    state = picking.run(backend=sgl.ScriptedBackend(logprob=table, tokenizer=WordTokenizer()))
    choice = state.choice("x")
    assert (choice.text, choice.index, choice.choices) == (CHOICES[0], 0, tuple(CHOICES))
    assert choice.logprobs == pytest.approx((-1.2, -1.4, -3.5))
    assert choice.scores == pytest.approx((-0.4, -0.7, -1.75))
    assert sum(choice.probabilities) == pytest.approx(1.0)
    assert choice.probability == choice.by_text()[CHOICES[0]] == max(choice.probabilities)
    with pytest.raises(sgl.ArgumentError, match="variable 'y' is not the result of a select"):
        state.choice("y")
    with pytest.raises(sgl.UnknownVariableError):
        state.choice("z")


def test_exact_probability_is_not_biased_to_long_predictable_choices():
    """Row 1 of table C: the mean favours a long choice whose end is easy to predict."""

    def logprob(context, token):
        return {" no": -0.3, " Mississippi": -1.5}.get(token, -0.01)

    long = " Mississippi river of the south"
    assert pick([" no", long], logprob=logprob)[0] == " no"
    # Means: -0.3 against -1.54 / 5; a slightly longer tail tips it.
    longer = long + " and of the north"
    assert pick([" no", longer], logprob=logprob)[0] == longer
    choice, meta = pick([" no", longer], logprob=logprob, method=sgl.exact_sequence_probability)
    assert choice == " no"
    assert meta["scores"] == pytest.approx([-0.3, -1.58])


def test_choices_that_begin_alike_share_the_probability():
    probabilities = {"a": math.log(0.8), "b": math.log(0.75), "c": math.log(0.5)}
    choices = ["a", "ab", "abc", "c"]

    @sgl.function
    def picking(s):
        s += "Q" + sgl.select("x", choices, choices_method=sgl.exact_sequence_probability)

    backend = sgl.ScriptedBackend(logprob=lambda context, token: probabilities[token], tokenizer=ByteTokenizer())
    choice = picking.run(backend=backend).choice("x")
    # P(a) = 0.8 and P(ab) = 0.6 and P(abc) = 0.3: what goes on to a longer choice does not count for the shorter one.
    masses = [0.8 - 0.6, 0.6 - 0.3, 0.3, 0.5]
    assert [math.exp(score) for score in choice.scores] == pytest.approx(masses)
    assert choice.probabilities == pytest.approx([mass / sum(masses) for mass in masses])
    assert choice.text == "c"
