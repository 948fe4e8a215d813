"""Names, parameters and defaults of sections A1 to A4 of the language's specification, so that programs run unchanged."""

import inspect

import pytest

import sgl
from sgl.backends.launch import Runtime
from sgl.chat_template import ChatTemplateStyle
from sgl.constraints import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR
from sgl.run_options import RUN_OPTIONS
from sgl.sampling import RUN_DEFAULTS

pytestmark = pytest.mark.timeout(20)

REQUIRED = inspect.Parameter.empty

# A1: signatures; what is not here of a row stands in `OPEN_ENDED`: names that are taken as further keywords.
FUNCTIONS = {
    "function": {"func": None, "num_api_spec_tokens": None},
    "select": {"name": None, "choices": None, "temperature": 0.0, "choices_method": None},
    "system": {"expr": None},
    "user": {"expr": None},
    "assistant": {"expr": None},
    **{f"{role}_{end}": {} for role in ("system", "user", "assistant") for end in ("begin", "end")},
    "image": {"path_or_data": REQUIRED},
    "video": {"path": REQUIRED, "num_frames": REQUIRED},
    "separate_reasoning": {"expr": None, "model_type": None},
    "set_default_backend": {"backend": REQUIRED},
    "flush_cache": {"backend": None},
    "get_server_info": {"backend": None},
    "get_chat_template": {"name": REQUIRED},
    "gen": dict.fromkeys(
        (
            *("name", "max_tokens", "min_tokens", "n", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p"),
            *("top_k", "min_p", "frequency_penalty", "presence_penalty", "ignore_eos", "return_logprob"),
            *("logprob_start_len", "top_logprobs_num", "return_text_in_logprobs", "dtype", "choices"),
            *("choices_method", "regex", "json_schema"),
        )
    ),
}
CLASSES = {
    "Runtime": {"log_level": "error", "launch_timeout": 300.0},
    "RuntimeEndpoint": {"base_url": REQUIRED, "api_key": None, "verify": None, "chat_template_name": None},
    "OpenAI": {"model_name": REQUIRED, "is_chat_model": None, "chat_template": None, "is_azure": False},
    "Anthropic": {"model_name": REQUIRED},
    "LiteLLM": {
        "model_name": REQUIRED,
        "chat_template": None,
        "api_key": None,
        "organization": None,
        "base_url": None,
        "timeout": 600,
        "max_retries": None,
        "default_headers": None,
    },
    "VertexAI": {"model_name": REQUIRED, "safety_settings": None},
    "Crusoe": {"model_name": REQUIRED, "api_key": None, "base_url": None, "chat_template": None},
    "ChatTemplate": {
        "name": REQUIRED,
        "default_system_prompt": REQUIRED,
        "role_prefix_and_suffix": REQUIRED,
        "stop_str": (),
        "image_token": "<image>",
        "audio_token": "<audio>",
        "style": ChatTemplateStyle.PLAIN,
    },
}
OPEN_ENDED = ("Runtime", "OpenAI", "Anthropic", "LiteLLM", "VertexAI", "Crusoe")
# A2: what gen lacks there although servers have it.
GEN_BESIDES = (
    *("ebnf", "structural_tag", "repetition_penalty", "seed", "logit_bias", "lora_path", "priority", "timeout_s"),
    *("extra_key", "return_hidden_states", "custom_logit_processor", "custom_params"),
    *("type", "tools", "tool_choice", "post"),
)
# A3 and A4: methods with the parameters behind self.
METHODS = {
    sgl.Function: {
        "run_batch": {"batch_arguments": REQUIRED, "num_threads": "auto", "progress_bar": False}
        | {"generator_style": False},
        "bind": {},
        "trace": {},
        "cache": {"backend": None},
    },
    sgl.ProgramState: {
        "get_var": {"name": REQUIRED},
        "set_var": {"name": REQUIRED, "value": REQUIRED},
        "get_meta_info": {"name": REQUIRED},
        "text": {},
        "messages": {},
        "sync": {},
        "error": {},
        "system": {"expr": None},
        "user": {"expr": None},
        "assistant": {"expr": None},
        "var_scope": {"name": REQUIRED},
        "fork": {"size": 1, "position_ids_offset": None},
        "copy": {"position_ids_offset": None},
        "text_iter": {"var_name": None},
        "text_async_iter": {"var_name": None, "return_meta_data": False},
    },
    sgl.ProgramStateGroup: {"join": {"mode": "gather"}},
    Runtime: {
        "shutdown": {},
        "start_profile": {},
        "stop_profile": {},
        "cache_prefix": {"prefix": REQUIRED},
        "get_tokenizer": {},
        "generate": {"prompt": REQUIRED, "sampling_params": None},
        "async_generate": {"prompt": REQUIRED, "sampling_params": None},
        "add_request": {"prompt": REQUIRED, "sampling_params": None},
        "encode": {"prompt": REQUIRED},
        "get_server_info": {},
    },
}
# A2: what `run` takes, with the defaults of gens that say nothing.
RUN_VALUES = {
    "max_new_tokens": 128,
    "n": 1,
    "stop": (),
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "ignore_eos": False,
}
RUN_NAMES = (
    *RUN_VALUES,
    *("stop_token_ids", "stop_regex", "frequency_penalty", "presence_penalty", "return_logprob", "logprob_start_len"),
    *("top_logprobs_num", "return_text_in_logprobs", "stream", "backend", "use_thread"),
)


def parameters_of(function, *, skip=0):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = list(inspect.signature(function).parameters.values())[skip:]
    return {parameter.name: parameter.default for parameter in found if parameter.kind not in kinds}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_what_programs_give_them_in_its_order(name):
    function = getattr(sgl, name)
    known, found = FUNCTIONS[name], parameters_of(function)
    assert list(found)[: len(known)] == list(known)
    assert {key: found[key] for key in known} == known
    kinds = {inspect.signature(function).parameters[key].kind for key in known}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert all(default is not REQUIRED for key, default in found.items() if key not in known)


@pytest.mark.parametrize("name", CLASSES)
def test_classes_take_what_programs_give_them_in_its_order(name):
    cls = getattr(sgl, name)
    known, found = CLASSES[name], parameters_of(cls)
    assert list(found)[: len(known)] == list(known)
    assert {key: found[key] for key in known} == known
    is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in inspect.signature(cls).parameters.values())
    assert is_open == (name in OPEN_ENDED)


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in METHODS.items() for name in names])
def test_methods_take_what_programs_give_them(owner, name):
    known, found = METHODS[owner][name], parameters_of(inspect.getattr_static(owner, name), skip=1)
    if owner is sgl.ProgramState and name in ("copy", "var_scope"):
        found = parameters_of(inspect.getattr_static(owner, name).__wrapped__, skip=1)
    assert {key: found[key] for key in known} == known


def test_a1_every_name_is_there():
    names = (
        *FUNCTIONS,
        *CLASSES,
        *("gen_int", "gen_string", "Engine", "ServerArgs", "global_config", "__version__"),
        *("greedy_token_selection", "token_length_normalized", "unconditional_likelihood_normalized"),
    )
    assert set(names) <= set(sgl.__all__)
    assert isinstance(sgl.__version__, str)
    assert sgl.Runtime is Runtime


def test_a1_server_args_are_checked_options():
    args = sgl.ServerArgs("smollm2", max_total_tokens=64, reasoning_parser="qwen3")
    assert args == {"model_path": "smollm2", "max_total_tokens": 64, "reasoning_parser": "qwen3"}
    with pytest.raises(sgl.ArgumentError, match="max_total_token is not an option; did you mean max_total_tokens"):
        sgl.ServerArgs("smollm2", max_total_token=64)
    with pytest.raises(sgl.ArgumentError, match="reasoning_parser is 'think'; it must be one of 'deepseek-r1'"):
        sgl.ServerArgs(model_path="smollm2", reasoning_parser="think")


def test_a1_stock_regexes():
    assert [sgl.gen(dtype=kind).constraint.text for kind in (int, float, bool, str)] == [
        REGEX_INT,
        REGEX_FLOAT,
        REGEX_BOOL,
        REGEX_STR,
    ]


def test_a2_gen_has_what_servers_have():
    assert set(GEN_BESIDES) <= parameters_of(sgl.gen).keys()


@pytest.mark.parametrize("function", [sgl.gen_int, sgl.gen_string])
def test_a1_shorthands_take_what_gen_takes_but_their_constraint(function):
    excluded = {"min_tokens", "dtype", "choices", "choices_method", "regex", "json_schema"}
    values = {"n": 1, "stop": "a", "stop_token_ids": [1], "temperature": 0.5, "top_p": 0.5, "top_k": 3, "min_p": 0.1}
    values |= {"frequency_penalty": 0.5, "presence_penalty": 0.5, "ignore_eos": True, "return_logprob": True}
    values |= {"logprob_start_len": 0, "top_logprobs_num": 2, "return_text_in_logprobs": True, "stop_regex": "b"}
    assert values.keys() == FUNCTIONS["gen"].keys() - excluded - {"name", "max_tokens"}
    node = function("x", 5, **values)
    assert (node.name, node.sampling.max_new_tokens, node.sampling.top_k) == ("x", 5, 3)


def test_a2_run_takes_the_settings_of_gens():
    assert {name: RUN_DEFAULTS.given()[name] for name in RUN_VALUES} == RUN_VALUES
    assert set(RUN_NAMES) <= set(RUN_OPTIONS)


def test_a3_attributes_of_programs_and_a_positional_call_of_gen():
    @sgl.function()
    def program(s, a, b=2):
        s += f"{a}{b}" + sgl.gen("x", 5, 1, 1, "!")
        return s.get_var("x")

    backend = sgl.ScriptedBackend("yes!")
    state = program("1", backend=backend)
    assert (state.ret_value, state.get_var("x"), state.text()) == ("yes", "yes", "12yes")
    sampling = backend.model.calls[0].sampling
    assert (sampling["max_new_tokens"], sampling["min_new_tokens"], sampling["stop"]) == (5, 1, ["!"])
    state.set_var("y", 3)
    assert state["y"] == 3
