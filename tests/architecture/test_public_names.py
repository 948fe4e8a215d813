"""The public names of both packages."""

import inspect

import sgl
import sgl_runtime

LANGUAGE_NAMES = {
    "Engine",
    "Runtime",
    "RuntimeEndpoint",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "greedy_token_selection",
    "select",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
}


def test_the_language_keeps_the_names_that_users_know():
    assert set(sgl.__all__) >= LANGUAGE_NAMES


def test_every_public_name_is_there_and_described():
    for module in (sgl, sgl_runtime):
        assert list(module.__all__) == sorted(set(module.__all__)), f"{module.__name__}.__all__ is not sorted"
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert inspect.getdoc(value), f"{module.__name__}.{name} has no docstring"
