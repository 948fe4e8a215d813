"""sgl: programs that mix text with calls of a language model.

A program is a function decorated with `@function`.  Inside it `s += ...` appends text, `gen`, `select` and roles,
`s["x"]` reads what came of them, and `s.fork(n)` branches.  Everything runs on a backend: `Engine` (the model in this
process), `RuntimeEndpoint` (a server), `Runtime` (a server started for this program).

    import sgl

    @sgl.function
    def capital(s, country):
        s += f"The capital of {country} is"
        s += sgl.gen("answer", max_tokens=8, stop=".")

    sgl.set_default_backend(sgl.Engine(model_path="smollm2"))
    print(capital("France")["answer"])

`async def` programs await what they read (`await s["answer"]`, `await capital.arun("France")`).  `gen(type=...)` gives
values of Python types, `gen(tools=...)` calls functions, `s.choice(...)` has the probabilities of a `select`, a program
called with a state goes on inside it, and `with sgl.record()` shows what the model saw.
"""

from typing import Any

from sgl.api import (
    assistant,
    assistant_begin,
    assistant_end,
    flush_cache,
    gen,
    gen_int,
    gen_string,
    get_server_info,
    image,
    select,
    separate_reasoning,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
    video,
)
from sgl.async_state import AsyncProgramState
from sgl.backends.base import Backend, Capabilities
from sgl.backends.engine import load_engine_class
from sgl.backends.launch import Runtime
from sgl.backends.litellm import LiteLLM
from sgl.backends.openai import OpenAI
from sgl.backends.runtime import RuntimeEndpoint
from sgl.backends.scripted import ScriptedBackend
from sgl.backends.server_args import ServerArgs
from sgl.backends.vendors import Anthropic, Crusoe, VertexAI
from sgl.batch import BatchFailure
from sgl.chat_template import ChatTemplate, get_chat_template
from sgl.choices import (
    Choice,
    ChoiceDecision,
    ChoicesMethod,
    ScoredChoice,
    exact_sequence_probability,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from sgl.default_backend import set_default_backend
from sgl.errors import (
    ArgumentError,
    BackendError,
    ProgramError,
    ResultError,
    SglError,
    TraceError,
    TruncatedError,
    UnknownVariableError,
    UnsupportedError,
)
from sgl.fork import AsyncProgramStateGroup, ProgramStateGroup
from sgl.function import Function, function
from sgl.process_config import global_config
from sgl.program_state import ProgramState
from sgl.recording import Recording, record
from sgl.results import Partial
from sgl.tools import ToolCall, ToolCalls, describe_tools
from sgl.usage import Usage

__version__ = "0.1.0"

__all__ = [
    "Anthropic",
    "ArgumentError",
    "AsyncProgramState",
    "AsyncProgramStateGroup",
    "Backend",
    "BackendError",
    "BatchFailure",
    "Capabilities",
    "ChatTemplate",
    "Choice",
    "ChoiceDecision",
    "ChoicesMethod",
    "Crusoe",
    "Engine",
    "Function",
    "LiteLLM",
    "OpenAI",
    "Partial",
    "ProgramError",
    "ProgramState",
    "ProgramStateGroup",
    "Recording",
    "ResultError",
    "Runtime",
    "RuntimeEndpoint",
    "ScoredChoice",
    "ScriptedBackend",
    "ServerArgs",
    "SglError",
    "ToolCall",
    "ToolCalls",
    "TraceError",
    "TruncatedError",
    "UnknownVariableError",
    "UnsupportedError",
    "Usage",
    "VertexAI",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "describe_tools",
    "exact_sequence_probability",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_chat_template",
    "get_server_info",
    "global_config",
    "greedy_token_selection",
    "image",
    "record",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]


def __getattr__(name: str) -> Any:
    """`Engine` is the runtime's class, loaded when it is first named: importing sgl loads no runtime."""
    if name == "Engine":
        return load_engine_class()
    raise AttributeError(f"module 'sgl' has no attribute {name!r}")
