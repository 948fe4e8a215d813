"""global_config, chat templates of programs, and how selects pick by default."""

import pytest

import sgl
from sgl.chat_template import ChatTemplateStyle

pytestmark = pytest.mark.timeout(20)


@sgl.function
def dialogue(s):
    s += sgl.user("Hi") + sgl.assistant(sgl.gen("x"))


@pytest.fixture
def config(monkeypatch):
    """global_config, which gets back what it had."""
    for name, value in list(vars(sgl.global_config).items()):
        monkeypatch.setattr(sgl.global_config, name, value)
    return sgl.global_config


def test_defaults_are_those_that_programs_know(config):
    values = {name: value for name, value in vars(config).items() if name != "choices_method"}
    assert values == {
        "verbosity": 0,
        "skip_special_tokens_in_output": True,
        "spaces_between_special_tokens_in_out": True,
        "enable_precache_with_tracing": True,
        "enable_parallel_encoding": True,
    }
    assert config.choices_method is sgl.token_length_normalized


@pytest.mark.parametrize("stream", [False, True])
def test_verbosity_2_prints_the_text_when_the_run_is_over(config, capsys, stream):
    config.verbosity = 2
    state = dialogue.run(backend=sgl.ScriptedBackend("hello"), stream=stream)
    state.sync()
    assert capsys.readouterr().out == "<|user|>\nHi<|end|>\n<|assistant|>\nhello<|end|>\n\n"

    @sgl.function
    async def program(s):
        s += "p" + sgl.gen("x")

    program.run(backend=sgl.ScriptedBackend("async")).sync()
    assert capsys.readouterr().out == "pasync\n"


def test_the_default_backend_is_that_of_set_default_backend(config):
    backend = sgl.ScriptedBackend("a")
    config.default_backend = backend
    assert config.default_backend is backend
    assert dialogue.run()["x"] == "a"
    other = sgl.ScriptedBackend("b")
    sgl.set_default_backend(other)
    assert config.default_backend is other


def test_precaching_for_batches_can_be_turned_off(config):
    @sgl.function
    def program(s, number):
        s += "A long beginning that all items share, word for word. " * 3 + f"Item {number}:" + sgl.gen("x")

    def requests():
        backend = sgl.ScriptedBackend("a")
        program.run_batch([(number,) for number in range(3)], backend=backend)
        return [call.sampling["max_new_tokens"] for call in backend.model.calls]

    assert requests().count(0) == 1
    config.enable_precache_with_tracing = False
    assert requests() == [128] * 3


def test_wrong_settings_are_refused(config):
    with pytest.raises(sgl.ArgumentError, match=r"global_config.verbosity is 3; it must be 0, 1 or 2"):
        config.verbosity = 3
    with pytest.raises(sgl.ArgumentError, match="enable_parallel_encoding is 'no'; it must be True or False"):
        config.enable_parallel_encoding = "no"
    with pytest.raises(sgl.ArgumentError, match="global_config has no 'verbose'; it has default_backend, verbosity"):
        config.verbose = 1


def likely(context, token):
    """A long option of which only the first letter is unlikely."""
    return -0.1 if (context.endswith("b") and token == "b") or context[-2:] == "bb" else -2.0


@sgl.function
def picking(s, method=None):
    s += "Pick " + sgl.select("x", ["a", "bbbbbb"], choices_method=method)


def test_c1_the_default_method_can_be_one_without_bias(config):
    backend = sgl.ScriptedBackend(logprob=likely)
    assert picking.run(backend=backend)["x"] == "bbbbbb"
    exact = sgl.exact_sequence_probability
    assert picking.run(backend=backend, choices_method=exact)["x"] == "a"
    assert picking.options(choices_method=exact).run_batch([()], backend=backend)[0]["x"] == "a"
    assert picking.run(sgl.token_length_normalized, backend=backend, choices_method=exact)["x"] == "bbbbbb"
    config.choices_method = exact
    assert picking.run(backend=backend)["x"] == "a"
    with pytest.raises(sgl.ArgumentError, match="choices_method is 'exact'"):
        picking.run(backend=backend, choices_method="exact")


def test_c6_a_template_of_the_run_stands_in_for_the_servers():
    backend = sgl.ScriptedBackend("hello<|im_end|>more", chat_template=None)
    state = dialogue.run(backend=backend, chat_template="chatml")
    assert state.text() == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n"
    assert backend.model.calls[0].sampling["stop"] == ["<|im_end|>"]
    own = sgl.ChatTemplate("own", "Be nice.", {"system": ("S:", "\n"), "user": ("U:", "\n"), "assistant": ("A:", "\n")})
    backend = sgl.ScriptedBackend("hello")
    assert dialogue.run(backend=backend, chat_template=own).text() == "S:Be nice.\nU:Hi\nA:hello\n"
    with pytest.raises(sgl.ArgumentError, match="chat_template is 'chatgpt'; it must be a ChatTemplate, or one of"):
        dialogue.run(backend=backend, chat_template="chatgpt")
    with pytest.raises(sgl.ArgumentError, match="chat_template is 3"):
        dialogue.run(backend=backend, chat_template=3)


@pytest.mark.parametrize("default", [None, "Be nice."])
def test_a_system_message_may_stand_inside_of_the_first_users(default):
    llama = sgl.get_chat_template("llama-2-chat")
    template = sgl.ChatTemplate("own", default, llama.role_prefix_and_suffix, style=ChatTemplateStyle.LLAMA2)

    @sgl.function
    def program(s, system):
        if system:
            s += sgl.system("Be brief.")
        s += sgl.user("a") + sgl.assistant("b") + sgl.user("c")

    rest = "a [/INST]b </s><s>[INST] c [/INST]"
    backend = sgl.ScriptedBackend()
    text = program.run(True, backend=backend, chat_template=template).text()
    assert text == "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n" + rest
    front = "[INST] " if default is None else "[INST] <<SYS>>\nBe nice.\n<</SYS>>\n\n"
    assert program.run(False, backend=backend, chat_template=template).text() == front + rest
