import pytest

from fakes.tiny_llama import byte_level_tokenizer
from sgl_runtime.config import ModelSection
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.tokenizer.chat_template import ChatTemplate
from sgl_runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer

LLAMA3_LIKE = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}<|end|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|end|>\n\n{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system messages here') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
# Thoughts of earlier turns are dropped: what was rendered before is not the beginning of what comes after.
FORGETFUL = "{% for m in messages %}({{ m.role }}:{% if loop.last %}think {% endif %}{{ m.content }}){% endfor %}"
LAST_ONLY = "{{ messages[-1].content }}"


def template_of(text: str) -> ChatTemplate:
    fast = byte_level_tokenizer()
    fast.chat_template = text
    return ChatTemplate(fast)


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CONVERSATION = [message("user", "What is 2+2?"), message("assistant", "Four."), message("user", "And 3+3?")]


def put_together(template: ChatTemplate, messages: list[dict[str, str]]) -> str:
    text = ""
    for index, entry in enumerate(messages):
        prefix, suffix = template.role_affixes(messages[:index], entry["role"])
        text += prefix + entry["content"] + suffix
    return text


@pytest.mark.parametrize("text", [LLAMA3_LIKE, STRICT])
def test_affixes_put_together_are_the_rendered_conversation(text: str) -> None:
    template = template_of(text)
    assert put_together(template, CONVERSATION) == template.render(CONVERSATION, add_generation_prompt=False)


def test_the_beginning_of_sequence_comes_once_and_first() -> None:
    template = template_of(LLAMA3_LIKE)
    first, _ = template.role_affixes([], "user")
    later, suffix = template.role_affixes(CONVERSATION[:2], "user")
    assert first == "<s><|start|>user<|end|>\n\n"
    assert (later, suffix) == ("<|start|>user<|end|>\n\n", "<|eot|>")


def test_the_assistant_is_opened_by_the_generation_prompt() -> None:
    template = template_of(LLAMA3_LIKE)
    prefix, _ = template.role_affixes(CONVERSATION, "assistant")
    rendered = template.render(CONVERSATION, add_generation_prompt=True)
    assert rendered == template.render(CONVERSATION, add_generation_prompt=False) + prefix


def test_the_templates_own_refusal_is_told() -> None:
    template = template_of(STRICT)
    with pytest.raises(InvalidRequestError, match="no system messages here") as caught:
        template.role_affixes([], "system")
    assert caught.value.param == "messages"
    with pytest.raises(InvalidRequestError, match="roles must alternate"):
        template.role_affixes([message("user", "a")], "user")
    with pytest.raises(InvalidRequestError, match="roles must alternate"):
        template.render([message("assistant", "a")], add_generation_prompt=False)


@pytest.mark.parametrize("text", [FORGETFUL, LAST_ONLY])
def test_a_template_that_rewrites_earlier_messages_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="changes earlier messages when one of role 'user' follows"):
        template_of(text).role_affixes(CONVERSATION[:2], "user")


@pytest.mark.parametrize("text", ["{% for m in messages %}", "{{ messages[0].nothing.more }}", "{{ 1 // 0 }}"])
def test_a_broken_template_is_an_error_of_the_request(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="the chat template refuses these messages"):
        template_of(text).render(CONVERSATION, add_generation_prompt=False)


def test_further_variables_reach_the_template() -> None:
    template = template_of("{{ mood }}: {{ messages[0].content }}")
    assert template.render([message("user", "x")], add_generation_prompt=False, mood="calm") == "calm: x"


def test_a_tokenizer_without_a_template_has_none() -> None:
    fast = byte_level_tokenizer()
    fast.chat_template = None
    assert Tokenizer(fast, add_bos=False).chat_template is None


@pytest.mark.model
def test_the_template_of_the_small_model() -> None:
    template = load_tokenizer(ModelSource.open(ModelSection(model_path="smollm2"))).chat_template
    assert template is not None
    prefix, suffix = template.role_affixes([], "user")
    # Without a system message it puts one of its own in front.
    assert prefix.endswith("<|im_start|>user\n")
    assert suffix == "<|im_end|>\n"
    assert put_together(template, CONVERSATION) == template.render(CONVERSATION, add_generation_prompt=False)
    system = [message("system", "Be brief."), *CONVERSATION]
    assert put_together(template, system) == template.render(system, add_generation_prompt=False)
    assert template.role_affixes(CONVERSATION, "assistant")[0] == "<|im_start|>assistant\n"
