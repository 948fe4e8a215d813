"""GenerationPrompts: requests that generate, as the scheduler takes them."""

import time

from msgspec import structs

from sgl_runtime.config import FeatureConfig, logit_processor_paths
from sgl_runtime.errors import ContextLengthError, InvalidRequestError
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.ipc.request_parts import FloatRows, LogitProcessorCall
from sgl_runtime.model_info import ModelInfo
from sgl_runtime.sampling_params import MAX_SHOWN, reject
from sgl_runtime.server.encode_prompts import check_generates
from sgl_runtime.server.generate_request import GenerateRequest
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.stop_regex_compiler import StopRegexCompiler
from sgl_runtime.server.text_encoder import TextEncoder
from sgl_runtime.tokenizer.no_tokenizer import REASON


class GenerationPrompts:
    """Puts a prompt together of ids and text, and holds the request to what the model and the server allow.

    Args:
        texts: Gives the ids of a text.
        bos_id: That id, None where there is none.
        model_info: Limits that requests are checked against.
        features: Which options of requests are on.
    """

    def __init__(
        self,
        texts: TextEncoder,
        *,
        bos_id: int | None,
        model_info: ModelInfo,
        features: FeatureConfig,
    ) -> None:
        self._texts = texts
        self._bos_id = bos_id
        self._info = model_info
        self._features = features
        self._stop_regexes = StopRegexCompiler()

    async def message(self, pending: PendingReply, text_ids: list[int] | None) -> TokenizedRequest:
        """The message of a request.

        Args:
            pending: The request.
            text_ids: What its text became, where that is known already.

        Raises:
            InvalidRequestError: something in it does not fit the model or the server.
        """
        request, session = pending.request, pending.request.session_params
        check_generates(request, self._info)
        self._check_ids(request)
        self._check_width(request)
        check_features(request, self._features)
        if not self._info.has_tokenizer:
            check_needs_no_text(request)
        if text_ids is None:
            text = request.text
            text_ids = [] if text is None else await self._texts.encode(text, add_bos=request.input_ids is None)
        input_ids, embeds = self._cut(request, [*(request.input_ids or ()), *text_ids])
        num_prompt_tokens = len(input_ids) if embeds is None else embeds.count
        sampling = structs.replace(
            request.sampling,
            max_new_tokens=resolve_max_new_tokens(
                request.sampling.max_new_tokens,
                num_prompt_ids=num_prompt_tokens,
                context_length=self._info.context_length,
                path=request.path,
                may_be_empty=session is not None,
                must_fit=request.must_fit and session is None and not self._features.allow_auto_truncate,
            ),
        )
        if session is not None:
            num_bos = int(bool(input_ids) and input_ids[0] == self._bos_id)
            session = structs.replace(session, num_bos=num_bos)
        start = request.logprob_start_len if request.return_logprob else -1
        # What a session puts in front of the prompt, and so how long it is, the scheduler knows.
        if session is None and start > num_prompt_tokens:
            raise InvalidRequestError(
                f"{request.path}logprob_start_len is {start}; the prompt has {num_prompt_tokens} tokens",
                param=f"{request.path}logprob_start_len",
            )
        stop_automata = await self._stop_regexes.compile(
            sampling.stop_regex, path=f"{request.path}sampling_params.stop_regex"
        )
        pending.set_prompt(input_ids if embeds is None else [0] * embeds.count, text_ids)
        return TokenizedRequest(
            rid=request.rid,
            input_ids=input_ids,
            input_embeds=embeds,
            sampling=sampling,
            priority=request.priority,
            stop_automata=stop_automata,
            return_logprob=request.return_logprob,
            # A start at the very end asks for no position at all.
            logprob_start_len=-1 if session is None and start == num_prompt_tokens else start,
            top_logprobs_num=request.top_logprobs_num,
            token_ids_logprob=request.token_ids_logprob,
            extra_key=request.extra_key,
            return_hidden_states=request.return_hidden_states,
            session=session,
            logit_processor=request.custom_logit_processor,
            arrival_time=time.monotonic(),
        )

    def _cut(self, request: GenerateRequest, input_ids: list[int]) -> tuple[list[int], FloatRows | None]:
        """The prompt, cut at its end to what leaves room for one token, where the server cuts at all."""
        embeds = request.input_embeds
        if self._features.allow_auto_truncate and request.session_params is None:
            room = self._info.context_length - (0 if request.sampling.max_new_tokens == 0 else 1)
            input_ids = input_ids[:room]
            embeds = None if embeds is None else FloatRows(embeds.size, embeds.data[: 4 * embeds.size * room])
        return input_ids, embeds

    def _check_width(self, request: GenerateRequest) -> None:
        width = self._info.hidden_size
        if request.input_embeds is not None and request.input_embeds.size != width:
            path = f"{request.path}input_embeds"
            raise InvalidRequestError(
                f"{path} has rows of {request.input_embeds.size} numbers; the model's embeddings have {width}",
                param=path,
            )

    def _check_ids(self, request: GenerateRequest) -> None:
        size, given = self._info.vocab_size, request.input_ids
        are_known = not given or (min(given) >= 0 and max(given) < size)
        for position, token_id in enumerate(() if are_known or given is None else given):
            if not 0 <= token_id < size:
                raise reject(f"{request.path}input_ids[{position}]", token_id, f"from 0 to {size - 1}")
        for name, ids in (
            ("sampling_params.stop_token_ids", request.sampling.stop_token_ids),
            ("sampling_params.logit_bias", [token_id for token_id, _ in request.sampling.logit_bias]),
            ("token_ids_logprob", request.token_ids_logprob),
        ):
            for token_id in ids:
                if not 0 <= token_id < size:
                    path = f"{request.path}{name}"
                    shown = str(token_id)[:MAX_SHOWN]
                    raise InvalidRequestError(f"{path} holds {shown}; ids go from 0 to {size - 1}", param=path)


def check_needs_no_text(request: GenerateRequest) -> None:
    """See that a request does without a tokenizer.

    Raises:
        InvalidRequestError: it brings text, or asks for something that is made of text.
    """
    sampling = request.sampling
    needs = {
        "text": request.text is not None,
        "return_text_in_logprobs": request.return_text_in_logprobs,
        "sampling_params.stop": bool(sampling.stop),
        "sampling_params.stop_regex": bool(sampling.stop_regex),
        f"sampling_params.{sampling.grammar_kind}": sampling.grammar_kind is not None,
    }
    for name, is_needed in needs.items():
        if is_needed:
            path = f"{request.path}{name}"
            raise InvalidRequestError(f"{path} needs a tokenizer; {REASON}", param=path)


def check_features(request: GenerateRequest, features: FeatureConfig) -> None:
    """Refuse options that the server was not started with.

    Raises:
        InvalidRequestError: the request has one; the message names what turns it on.
    """
    if request.return_hidden_states and not features.enable_return_hidden_states:
        path = f"{request.path}return_hidden_states"
        raise InvalidRequestError(
            f"{path} is true; start the server with --enable-return-hidden-states to allow it", param=path
        )
    path = f"{request.path}custom_logit_processor"
    match request.custom_logit_processor:
        case LogitProcessorCall(is_pickled=True) if not features.enable_custom_logit_processor:
            raise InvalidRequestError(
                f"{path} is a pickled callable; start the server with --enable-custom-logit-processor to allow it",
                param=path,
            )
        case LogitProcessorCall(is_pickled=False, name=name):
            known = sorted(logit_processor_paths(features.custom_logit_processor))
            if name not in known:
                raise InvalidRequestError(
                    f"{path} is {name[:MAX_SHOWN]!r}; the server was started with {', '.join(known) or 'none'}",
                    param=path,
                )
        case None if request.sampling.custom_params is not None:
            path = f"{request.path}sampling_params.custom_params"
            raise InvalidRequestError(f"{path} is given without custom_logit_processor", param=path)


def resolve_max_new_tokens(
    asked: int | None,
    *,
    num_prompt_ids: int,
    context_length: int,
    path: str = "",
    may_be_empty: bool = False,
    must_fit: bool = False,
) -> int:
    """How many tokens a request may generate.

    Args:
        asked: The request's limit; None for none.
        num_prompt_ids: Tokens of the prompt.
        context_length: Tokens of prompt and output together.
        path: Prefix of field names in errors.
        may_be_empty: Whether the prompt may hold no token.
        must_fit: Whether a limit that the context has no room for is an error; else it is lowered.

    Raises:
        InvalidRequestError: the prompt is empty.
        ContextLengthError: the prompt leaves no room for what is asked.
    """
    prompt = f"the prompt at {path.removesuffix('.')}" if path else "the prompt"
    if num_prompt_ids == 0 and not may_be_empty:
        raise InvalidRequestError(f"{prompt} is empty; it must hold at least one token", param=f"{path}text")
    room = context_length - num_prompt_ids
    if room < (0 if asked == 0 else 1):
        raise ContextLengthError(
            f"{prompt} has {num_prompt_ids} tokens; the context holds {context_length}"
            + ("" if asked == 0 else ", at least one of them for the output"),
            param=f"{path}text",
        )
    if must_fit and asked is not None and asked > room:
        raise ContextLengthError(
            f"{prompt} has {num_prompt_ids} tokens and {asked} more are asked for, {num_prompt_ids + asked} in"
            f" all; the context holds {context_length}",
            param=f"{path}sampling_params.max_new_tokens",
        )
    return room if asked is None else min(asked, room)
