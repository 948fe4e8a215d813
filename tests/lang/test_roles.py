"""Roles: three spellings, the served template, what goes wrong (C15)."""

import pytest

import sgl
from sgl.backends.native import NativeBackend

pytestmark = pytest.mark.timeout(20)


@sgl.function
def by_functions(s, system):
    if system:
        s += sgl.system("Be brief.")
    s += sgl.user("Hi " + sgl.gen("a", regex="there")) + "between"
    s += sgl.assistant(sgl.gen("b", regex="ok"))


@sgl.function
def by_begin_and_end(s, system):
    if system:
        s += sgl.system_begin() + "Be brief." + sgl.system_end()
    s += sgl.user_begin()
    s += "Hi "
    s += sgl.gen("a", regex="there") + sgl.user_end() + "between" + sgl.assistant_begin()
    s += sgl.gen("b", regex="ok")
    s += sgl.assistant_end()


@sgl.function
def by_blocks(s, system):
    if system:
        s.system("Be brief.")
    with s.user():
        s += "Hi " + sgl.gen("a", regex="there")
    s += "between"
    with s.assistant():
        s += sgl.gen("b", regex="ok")


TEMPLATES = [
    {"system": ("<s>", "</s>"), "user": ("<u>", "</u>"), "assistant": ("<a>", "</a>")},
    {"system": ("[SYS]", "\n"), "user": ("[INST] ", " [/INST]"), "assistant": (" ", "<eos>")},
]


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("template", TEMPLATES)
def test_three_spellings_give_the_same_text_and_messages(template, system):
    states = [
        program.run(system, backend=sgl.ScriptedBackend(chat_template=template))
        for program in (by_functions, by_begin_and_end, by_blocks)
    ]
    (user, user_end), (assistant, assistant_end) = template["user"], template["assistant"]
    front = "".join([template["system"][0], "Be brief.", template["system"][1]]) if system else ""
    assert {state.text() for state in states} == {f"{front}{user}Hi there{user_end}between{assistant}ok{assistant_end}"}
    first = [{"role": "system", "content": "Be brief."}] if system else []
    for state in states:
        assert state.messages() == [
            *first,
            {"role": "user", "content": "Hi there"},
            {"role": "assistant", "content": "ok"},
        ]


def test_a_templates_own_system_message_stands_in_front_once():
    backend = sgl.ScriptedBackend(chat_template=TEMPLATES[0], default_system="Help.")
    assert by_functions.run(False, backend=backend).text() == "<s>Help.</s><u>Hi there</u>between<a>ok</a>"
    assert by_functions.run(True, backend=backend).text() == "<s>Be brief.</s><u>Hi there</u>between<a>ok</a>"


def test_affixes_are_asked_for_once_for_the_same_roles():
    class Counting:
        def __init__(self):
            self.script = sgl.ScriptedBackend().model
            self.asked = []

        async def call(self, path, payload):
            self.asked.append(path)
            return await self.script.call(path, payload)

        def stream(self, path, payload):
            return self.script.stream(path, payload)

    transport = Counting()
    backend = NativeBackend(transport)
    for _ in range(5):
        by_blocks.run(True, backend=backend).sync()
    assert transport.asked.count("/role_affixes") == 3
    assert transport.asked.count("/get_model_info") == 1


def test_a_role_inside_a_role_raises_at_the_call():
    reached = []

    @sgl.function
    def nested(s):
        with s.user():
            s += "a"
            reached.append("inside")
            with s.assistant():
                reached.append("never")

    with pytest.raises(sgl.ArgumentError, match="role 'assistant' begins while role 'user' is open"):
        nested.run(backend=sgl.ScriptedBackend())
    assert reached == ["inside"]


def test_an_end_without_a_beginning_raises_and_appends_nothing():
    @sgl.function
    def wrong(s):
        with pytest.raises(sgl.ArgumentError, match="role 'user' ends while no role is open"):
            s += "text" + sgl.user_end()
        with pytest.raises(sgl.ArgumentError, match="role 'user' ends while role 'system' is open"):
            s += sgl.system_begin() + sgl.user_end()
        s += sgl.user("fine")

    assert wrong.run(backend=sgl.ScriptedBackend()).messages() == [{"role": "user", "content": "fine"}]


def test_a_model_without_a_template_is_warned_about_once(caplog):
    backend = sgl.ScriptedBackend(chat_template=None)
    assert by_functions.run(True, backend=backend).text() == "SYSTEM: Be brief.\nUSER: Hi there\nbetweenASSISTANT: ok\n"
    by_functions.run(True, backend=backend).sync()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no chat template" in caplog.text


def test_empty_messages_and_forks_inside_a_message():
    @sgl.function
    def program(s):
        s += sgl.system()
        with s.user():
            s += "shared "
            forks = s.fork(2)
            forks += lambda index: f"part {index}. "
            forks.join("concatenate")
        for index, branch in enumerate(s.fork(2)):
            branch += sgl.assistant(f"answer {index}")
            s["messages"] = branch.messages()

    state = program.run(backend=sgl.ScriptedBackend())
    assert state.messages() == [
        {"role": "system", "content": ""},
        {"role": "user", "content": "shared part 0. part 1. "},
    ]
    assert state["messages"][2] == {"role": "assistant", "content": "answer 1"}
