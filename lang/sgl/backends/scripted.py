"""ScriptedBackend: a model whose answers are given, for tests and tutorials.

It speaks the native protocol like a server: token ids, stops, streaming, log probabilities, a prefix cache that counts.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from sgl.backends.base import Capabilities
from sgl.backends.model_facts import ModelFacts
from sgl.backends.native import NativeBackend
from sgl.backends.scripted_generation import GenerationStep, generation_steps
from sgl.backends.scripted_logprobs import ScriptedLogprobs
from sgl.backends.scripted_tokenizer import ByteTokenizer, ScriptedTokenizer
from sgl.constraints import ConstraintKind
from sgl.errors import BackendError
from sgl.progress import Progress
from sgl.reasoning import REASONING_PARSERS

REQUEST_FIELDS = frozenset(
    {
        "text",
        "input_ids",
        "sampling_params",
        "rid",
        "stream",
        "return_logprob",
        "logprob_start_len",
        "top_logprobs_num",
        "token_ids_logprob",
        "return_text_in_logprobs",
        "return_text_ids",
        "priority",
        "extra_key",
        "return_hidden_states",
        "custom_logit_processor",
        "image_data",
    }
)
CONSTRAINT_KINDS = frozenset(get_args(ConstraintKind))
LITERAL_REGEX = re.compile(r"(?:[^\\.^$*+?{}\[\]|()]|\\[^a-zA-Z0-9])+")
SCRIPTED_CAPABILITIES = Capabilities(shown_as="the scripted backend", media=frozenset({"image", "video"}))
CHAT_TEMPLATE = {role: (f"<|{role}|>\n", "<|end|>\n") for role in ("system", "user", "assistant")}


class Gate:
    """Holds requests until it is opened."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._is_open = False

    def open(self) -> None:
        """Let everything through, from now on."""
        with self._progress.change():
            self._is_open = True

    async def wait(self) -> None:
        """Wait until it is open."""
        await self._progress.wait_for_async(lambda: self._is_open)


@dataclass(frozen=True)
class ScriptedCall:
    """A request as the script sees it.

    Attributes:
        index: How many requests came before it.
        prompt: Text of the prompt.
        prompt_ids: Its ids.
        sampling: The request's sampling_params.
        payload: The request of one prompt.
    """

    index: int
    prompt: str
    prompt_ids: tuple[int, ...]
    sampling: dict[str, Any]
    payload: dict[str, Any]


Answers = str | Sequence[str] | Callable[[ScriptedCall], str]


class ScriptedBackend(NativeBackend):
    """Runs programs on a script.

    A gen whose regex is a literal is answered by that literal, whatever the answers say.

    Args:
        answers: One answer for every gen; a list, one for each gen in the order in which they come; or a function.
        logprob: Log probability of a token given the text before it, `logprob(context, token)`; -1.0 by default.
        tokenizer: Bytes by default.
        before: Called with every request, also those of forks and selects; may raise, or return a `Gate` to wait for.
        chat_template: For each role what stands before and after a message; None for a model without one.
        default_system: A system message that the template puts in front where the messages do not begin with one.
        reasoning_parser: How it says that the model marks its thinking, as `sgl serve --reasoning-parser`.

    Attributes:
        model: The script, with the `calls` so far.
    """

    def __init__(
        self,
        answers: Answers = "",
        *,
        logprob: Callable[[str, str], float] | None = None,
        tokenizer: ScriptedTokenizer | None = None,
        before: Callable[[ScriptedCall], Gate | None] | None = None,
        chat_template: Mapping[str, tuple[str, str]] | None = CHAT_TEMPLATE,
        default_system: str | None = None,
        reasoning_parser: str | None = None,
    ) -> None:
        info: dict[str, Any] = {"model_path": "scripted", "has_chat_template": chat_template is not None}
        info["reasoning_parser"] = asdict(REASONING_PARSERS[reasoning_parser]) if reasoning_parser is not None else None
        self.model = ScriptedModel(
            _answer_function(answers),
            logprob=logprob or (lambda context, token: -1.0),
            tokenizer=tokenizer or ByteTokenizer(),
            before=before or (lambda call: None),
            roles=ScriptedRoles(chat_template, default_system),
            info=info,
        )
        super().__init__(self.model, facts=ModelFacts(model_info=info))

    @property
    def capabilities(self) -> Capabilities:
        """Everything, and it looks at images."""
        return SCRIPTED_CAPABILITIES


class ScriptedRoles:
    """A chat template.

    Args:
        template: For each role what stands before and after; None for no template.
        default_system: Content of the message in front where no system message begins.
    """

    def __init__(self, template: Mapping[str, tuple[str, str]] | None, default_system: str | None) -> None:
        self._template = template
        self._default_system = default_system

    def affixes(self, messages: Sequence[Mapping[str, str]], role: str) -> dict[str, str]:
        """The reply of `/role_affixes`."""
        if self._template is None:
            raise BackendError("the model has no chat template", status=400, code="invalid_request")
        prefix, suffix = self._template[role]
        if not messages and role != "system" and self._default_system is not None:
            before, after = self._template["system"]
            prefix = before + self._default_system + after + prefix
        return {"prefix": prefix, "suffix": suffix}


class ScriptedModel:
    """The transport: answers the paths of the protocol.

    Args:
        answer: Text for a call.
        logprob: Log probability of a token's text behind a context.
        tokenizer: Text to ids.
        before: Called first with each request.
        roles: The chat template.
        info: What it says of itself.

    Attributes:
        calls: Every request of one prompt, in order.
        aborted: Ids of requests that a client aborted.
    """

    def __init__(
        self,
        answer: Callable[[ScriptedCall], str],
        *,
        logprob: Callable[[str, str], float],
        tokenizer: ScriptedTokenizer,
        before: Callable[[ScriptedCall], Gate | None],
        roles: ScriptedRoles,
        info: dict[str, Any],
    ) -> None:
        self.calls: list[ScriptedCall] = []
        self.aborted: list[str] = []
        self._answer = answer
        self._logprobs = ScriptedLogprobs(logprob, tokenizer)
        self._tokenizer = tokenizer
        self._before = before
        self._roles = roles
        self._info = info
        # Hashes of all prefixes that were seen: numbers, where a tree would be objects for the garbage collector.
        self._seen: set[int] = set()

    async def call(self, path: str, payload: dict[str, Any]) -> Any:
        """See `Transport`."""
        match path:
            case "/generate":
                return await self._generate(payload)
            case "/role_affixes":
                return self._roles.affixes(payload["messages"], payload["role"])
            case "/tokenize":
                return self._tokenize(payload["text"])
            case "/flush_cache":
                self._seen.clear()
                return {"success": True, "message": "flushed"}
            case "/abort_request":
                self.aborted.append(payload["rid"])
                return {"aborted": [payload["rid"]]}
            case "/get_model_info":
                return dict(self._info)
            case "/get_server_info":
                return {"model_path": "scripted", "num_calls": len(self.calls)}
            case "/health":
                return {"status": "ok"}
        raise BackendError(f"no such path: {path}", status=404, code="invalid_request")

    async def stream(self, path: str, payload: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """See `Transport`."""
        if path != "/generate":
            raise BackendError(f"no stream at {path}", status=404, code="invalid_request")
        for index, item in enumerate(_samples({name: value for name, value in payload.items() if name != "stream"})):
            call = await self._begin(item)
            for step in self._steps(call):
                yield {**self._reply(call, step), "index": index}

    async def _generate(self, payload: dict[str, Any]) -> Any:
        lists = [payload[name] for name in ("text", "input_ids") if name in payload]
        if isinstance(payload.get("text"), list) or isinstance(lists[0][0], list):
            return [await self._generate(item) for item in _batch_items(payload, len(lists[0]))]
        replies = []
        for item in _samples(payload):
            call = await self._begin(item)
            *_, last = self._steps(call)
            replies.append(self._reply(call, last))
        return replies if len(replies) > 1 else replies[0]

    def _tokenize(self, text: str | list[str]) -> dict[str, Any]:
        if isinstance(text, str):
            ids = self._tokenizer.encode(text)
            return {"tokens": ids, "count": len(ids)}
        lists = [self._tokenizer.encode(item) for item in text]
        return {"tokens": lists, "count": [len(ids) for ids in lists]}

    async def _begin(self, payload: dict[str, Any]) -> ScriptedCall:
        unknown = payload.keys() - REQUEST_FIELDS
        if unknown:
            raise BackendError(f"unknown fields {sorted(unknown)}", status=400, code="invalid_request")
        ids = (*payload.get("input_ids", ()), *self._tokenizer.encode(payload.get("text", "")))
        if not ids:
            raise BackendError("the prompt is empty", status=400, code="invalid_request")
        call = ScriptedCall(
            len(self.calls), self._logprobs.decode(ids), ids, payload.get("sampling_params", {}), payload
        )
        self.calls.append(call)
        gate = self._before(call)
        if gate is not None:
            await gate.wait()
        return call

    def _steps(self, call: ScriptedCall) -> Iterator[GenerationStep]:
        is_constrained = not CONSTRAINT_KINDS.isdisjoint(call.sampling)
        answer = "" if call.sampling.get("max_new_tokens") == 0 else self._answer_to(call)
        return generation_steps(answer, call.sampling, self._tokenizer, is_constrained=is_constrained)

    def _answer_to(self, call: ScriptedCall) -> str:
        regex = call.sampling.get("regex")
        if regex is not None and LITERAL_REGEX.fullmatch(regex):
            return re.sub(r"\\(.)", r"\1", regex, flags=re.DOTALL)
        answer = self._answer(call)
        if regex is not None and not re.fullmatch(regex, answer):
            raise BackendError(f"the scripted answer {answer!r} does not match regex {regex!r}")
        return answer

    def _reply(self, call: ScriptedCall, step: GenerationStep) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": call.payload.get("rid"),
            "finish_reason": step.finish_reason,
            "prompt_tokens": len(call.prompt_ids),
            "completion_tokens": len(step.ids),
            "cached_tokens": self._num_cached(call),
        }
        reply = {"text": step.text, "output_ids": step.ids, "meta_info": meta}
        meta.update(self._logprobs.fields(call.payload, call.prompt_ids, step.ids))
        if step.finish_reason is not None:
            self._remember((*call.prompt_ids, *step.ids))
            reply["text_output_ids"] = step.ids[: step.num_text_ids]
            reply["text_output_tail"] = step.tail
            if call.payload.get("return_text_ids"):
                reply["text_ids"] = list(call.prompt_ids[len(call.payload.get("input_ids", ())) :])
        return reply

    def _num_cached(self, call: ScriptedCall) -> int:
        """Length of the longest prefix that was seen before; the last token of a prompt is always computed."""
        prefix, length = 0, 0
        for token in call.prompt_ids[:-1]:
            prefix = hash((prefix, token))
            if prefix not in self._seen:
                break
            length += 1
        start = call.payload.get("logprob_start_len", -1)
        # The token before the first scored one is computed too: it gives that one's log probability.
        return min(length, max(start - 1, 0)) if start >= 0 else length

    def _remember(self, ids: Sequence[int]) -> None:
        prefix = 0
        for token in ids:
            prefix = hash((prefix, token))
            self._seen.add(prefix)


def _answer_function(answers: Answers) -> Callable[[ScriptedCall], str]:
    if isinstance(answers, str):
        return lambda call: answers
    if not isinstance(answers, Sequence):
        return answers
    left = iter(list(answers))

    def next_answer(call: ScriptedCall) -> str:
        answer = next(left, None)
        if answer is None:
            raise BackendError(f"the script has no answer left for request {call.index}: {call.prompt[-80:]!r}")
        return answer

    return next_answer


def _batch_items(payload: dict[str, Any], size: int) -> list[dict[str, Any]]:
    per_item = ("text", "input_ids", "rid", "sampling_params", "logprob_start_len")
    return [
        {
            name: value[index] if name in per_item and isinstance(value, list) else value
            for name, value in payload.items()
        }
        for index in range(size)
    ]


def _samples(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """A request for each output of a prompt."""
    return [payload] * payload.get("sampling_params", {}).get("n", 1)
