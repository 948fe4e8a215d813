"""Prompts of chat calls, rendered by templates of different manners."""

import json
from typing import Any

import pytest

from fakes.tiny_llama import byte_level_tokenizer
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.chat.chat_call import TemplateOptions
from sgl_runtime.server.chat.chat_prompt import ChatPrompt, render_chat
from sgl_runtime.server.chat.tool_plan import ToolPlan
from sgl_runtime.server.message_checks import checked_messages
from sgl_runtime.tokenizer.chat_template import ChatTemplate
from sgl_runtime.tokenizer.tokenizer import Tokenizer

PLAIN = "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
OPEN = "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
TRIMMING = "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content | trim }}</s>{% endfor %}" + OPEN
CALLS = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.id }}:{{ c.function.name }}ARGS;{% endfor %}"
    "{% if m.tool_call_id is defined %}={{ m.tool_call_id }}{% endif %}{% endfor %}"
)
AS_OBJECT = CALLS.replace("ARGS", "{{ c.function.arguments.city }}")
AS_TEXT = CALLS.replace("ARGS", "{{ '```' + c.function.arguments + '```' }}")
NINE = CALLS.replace("ARGS", "{% if c.id | length != 9 %}{{ raise_exception('ids have 9 letters') }}{% endif %}")
CALL = {"id": "call_0123456789abcdef01234567", "function": {"name": "f", "arguments": '{"city": "Paris"}'}}
HISTORY = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": CALL["id"], "content": "20"},
]


def rendered(template: str, messages: list[dict[str, Any]], plan: ToolPlan | None = None, **options: Any) -> ChatPrompt:
    fast = byte_level_tokenizer()
    fast.chat_template = template
    ready = checked_messages(messages)
    return render_chat(ChatTemplate(fast), ready, TemplateOptions(**options), plan or ToolPlan())


@pytest.mark.parametrize("template", [PLAIN + OPEN, TRIMMING])
@pytest.mark.parametrize("opens", [True, False])
def test_ids_are_those_of_the_templates_own_tokenization(template: str, opens: bool) -> None:
    fast = byte_level_tokenizer()
    fast.chat_template = template
    messages = [{"role": "user", "content": "hello w <s> é "}, {"role": "assistant", "content": " yes\n"}]
    text = rendered(template, messages, add_generation_prompt=opens).text
    ids = Tokenizer(fast, add_bos=True).encode(text, add_bos=False)
    wanted = fast.apply_chat_template(messages, tokenize=True, add_generation_prompt=opens, return_dict=False)
    assert ids == wanted
    # The second one is in the user's text.
    assert ids.count(fast.bos_token_id) == 2


@pytest.mark.parametrize("template", [PLAIN + OPEN, TRIMMING])
@pytest.mark.parametrize("ending", ["It is", "It is ", "It is\n\n", "It is  \n ", "{\n  "])
def test_a_continued_message_keeps_the_white_space_at_its_end(template: str, ending: str) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ending}]
    prompt = rendered(template, messages, continue_final_message=True)
    assert prompt.text == "<s><|turn|>user\nhi</s><|turn|>assistant\n" + ending
    assert prompt.continued == ending


@pytest.mark.parametrize(
    "messages", [[{"role": "user", "content": "hi"}], [{"role": "assistant", "content": ""}], HISTORY]
)
def test_what_cannot_be_gone_on_with_is_refused(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRequestError, match="continue_final_message is true") as caught:
        rendered(PLAIN, messages, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


def test_a_template_that_hides_the_last_message_cannot_go_on() -> None:
    with pytest.raises(InvalidRequestError, match="does not show the last message once"):
        rendered("{{ messages[0].role }}", [{"role": "assistant", "content": "a"}], continue_final_message=True)


def test_arguments_are_objects_or_text_as_the_template_takes_them() -> None:
    assert "f" + "Paris;" in rendered(AS_OBJECT, HISTORY).text
    assert 'f```{"city": "Paris"}```;' in rendered(AS_TEXT, HISTORY).text
    given_as_object = [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"city": "Rome"}}}]}
    ]
    assert "fRome;" in rendered(AS_OBJECT, given_as_object).text
    assert 'f```{"city": "Rome"}```;' in rendered(AS_TEXT, given_as_object).text


def test_short_ids_for_templates_that_want_them() -> None:
    assert rendered(NINE, HISTORY).text == "[user]hi[assistant]f01234567:f;[tool]20=f01234567"
    assert CALL["id"] in rendered(AS_OBJECT, HISTORY).text


def test_calls_are_told_in_text_where_the_template_knows_none() -> None:
    text = rendered(PLAIN, HISTORY).text
    assert '<|turn|>assistant\n{"name": "f", "arguments": {"city": "Paris"}}</s>' in text


def test_a_developer_is_a_system_where_the_template_knows_none() -> None:
    messages = [{"role": "developer", "content": "be kind"}]
    assert "<|turn|>system\nbe kind" in rendered(PLAIN, messages).text
    assert "[developer]" in rendered("{# developer #}" + CALLS, messages).text


def test_tools_and_documents_reach_the_template() -> None:
    definition = {"type": "function", "function": {"name": "f"}}
    plan = ToolPlan(definitions=(definition,))
    assert json.loads(rendered(AS_OBJECT, HISTORY, plan).text.partition("\n")[0]) == definition
    assert rendered("{{ documents[0].text }}", HISTORY, documents=[{"text": "D"}]).text == "D"


def test_a_refusal_of_the_template_is_its_own() -> None:
    with pytest.raises(InvalidRequestError, match="ids have 7 letters"):
        rendered(NINE.replace("9", "7").replace("| length !=", "|length >"), HISTORY)


def test_refusals_and_parts_are_text() -> None:
    messages = [
        {"role": "assistant", "content": None, "refusal": "I will not."},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
    ]
    assert [message["content"] for message in checked_messages(messages)] == ["I will not.", "ab"]


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_other_parts_are_refused(kind: str) -> None:
    with pytest.raises(InvalidRequestError, match="takes text alone") as caught:
        checked_messages([{"role": "user", "content": [{"type": kind, kind: {}}]}])
    assert caught.value.param == "messages[0].content[0]"
