"""ChatService: runs chat calls; every chat API is a translation to and from it (`chat_call.py` says how)."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from msgspec import structs

from sgl_runtime.errors import ContextLengthError
from sgl_runtime.sampling_params import GRAMMAR_KINDS
from sgl_runtime.server.chat.chat_call import ChatCall
from sgl_runtime.server.chat.chat_prompt import ChatPrompt, render_chat
from sgl_runtime.server.chat.chat_reply import ChatReply, ChatStep, ChatUsage, ChoiceFold
from sgl_runtime.server.chat.choice_progress import ChoiceProgress
from sgl_runtime.server.chat.choice_runs import Piece, ThinkFirst, run_at_once, run_thinking_first
from sgl_runtime.server.chat.reply_parser import ReplyParser, reply_parser
from sgl_runtime.server.chat.thinking import Thinking, thinking_behind
from sgl_runtime.server.chat.tool_plan import ToolPlan, plan_tools
from sgl_runtime.server.generate_request import GenerateRequest, parse_generate
from sgl_runtime.server.reasoning_parsers import ReasoningStyle, reasoning_style
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.server.tool_parsers.table import tool_format
from sgl_runtime.server.tool_parsers.tool_format import ToolFormat


@dataclass(frozen=True, kw_only=True)
class PreparedChat:
    """A checked call, ready to run.

    Attributes:
        call: The call.
        requests: One native request for each choice.
        plan: Its tool calls.
        thinking: How the thinking stands where the output begins.
        think_first: How the choices think before their answer is asked for; None: they run at once.
    """

    call: ChatCall
    requests: list[GenerateRequest]
    plan: ToolPlan
    thinking: Thinking
    think_first: ThinkFirst | None

    @property
    def rid(self) -> str:
        """The id by which the client knows the call."""
        return self.requests[0].client_rid

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the rendered prompt."""
        return len(self.requests[0].input_ids or ())


class ChatService:
    """Runs chat calls.

    Args:
        manager: Runs their requests, and knows the served model.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager
        marks = manager.model_info.reasoning_parser
        self._style: ReasoningStyle | None = None if marks is None else reasoning_style(marks)
        parser = manager.model_info.tool_call_parser
        named = [name for name in (parser, None if marks is None else marks.name) if name == "gpt-oss"]
        # A model that writes channels has one parser for all.
        self._channels: ToolFormat | None = tool_format(named[0]) if named else None
        self._special_texts: dict[str, bool] = {}

    async def prepare(self, call: ChatCall) -> PreparedChat:
        """Check a call, render and tokenize its prompt.

        Raises:
            InvalidRequestError: something in it is wrong, or the model has no chat template or refuses the messages.
        """
        template = self._manager.chat_template()
        parser = self._manager.model_info.tool_call_parser
        plan = plan_tools(call, parser=parser, is_special=self._is_special)
        sampling = self._sampling(call, plan)
        # Settings are checked before a long prompt is rendered.
        body = {**call.options, "input_ids": [], "sampling_params": sampling}
        requests = parse_generate(body, most=self._manager.max_live).requests
        self._check_length(call)
        prompt = render_chat(template, call.messages, call.template, plan)
        thinking, think_first = self._thinking(requests[0], prompt, call.reasoning.budget)
        # The template writes every special token itself, so none is put in front.
        input_ids = await self._manager.texts.encode(prompt.text, add_bos=False)
        return PreparedChat(
            call=call,
            requests=[structs.replace(request, input_ids=input_ids, must_fit=call.must_fit) for request in requests],
            plan=plan,
            thinking=thinking,
            think_first=think_first,
        )

    def _check_length(self, call: ChatCall) -> None:
        """Refuse messages that cannot fit, each with a token at least, before they are rendered."""
        count, context_length = len(call.messages), self._manager.model_info.context_length
        if count > context_length:
            message = f"there are {count} messages; the context holds {context_length} tokens"
            raise ContextLengthError(message, param="messages")

    async def reply(self, prepared: PreparedChat) -> ChatReply:
        """The whole reply.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        folds = [ChoiceFold(index) for index in range(len(prepared.requests))]
        usage: ChatUsage | None = None
        async with aclosing(self._steps(prepared, stream=False)) as steps:
            async for step in steps:
                folds[step.index].add(step)
                usage = step.usage
        assert usage is not None, "every choice ends"
        return ChatReply([fold.choice() for fold in folds], usage)

    async def stream(self, prepared: PreparedChat, *, piecewise: bool = True) -> AsyncGenerator[ChatStep, None]:
        """The steps of the reply.

        Args:
            prepared: The call.
            piecewise: Whether they are wanted as they come, and not all of a choice at its end.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        async with aclosing(self._steps(prepared, stream=piecewise)) as steps:
            async for step in steps:
                yield step

    async def _steps(self, prepared: PreparedChat, *, stream: bool) -> AsyncGenerator[ChatStep, None]:
        reasoning = prepared.call.reasoning
        choices = [
            ChoiceProgress(self._parser(prepared), separates=reasoning.separate, streams_reasoning=reasoning.stream)
            for _ in prepared.requests
        ]
        vocabulary = self._manager.tokenizer.vocabulary
        skips = prepared.requests[0].sampling.skip_special_tokens
        skipped_ids = vocabulary.special_ids if skips else frozenset()
        async with aclosing(self._pieces(prepared, stream=stream)) as pieces:
            async for piece in pieces:
                choice = choices[piece.index]
                events = choice.take(piece)
                finish = choice.finish(piece)
                if finish is not None:
                    choice.count_reasoning(vocabulary, skipped_ids)
                yield ChatStep(
                    index=piece.index, events=events, tokens=piece.update, finish=finish, usage=_usage(choices)
                )

    def _pieces(self, prepared: PreparedChat, *, stream: bool) -> AsyncGenerator[Piece, None]:
        if prepared.think_first is None:
            return run_at_once(self._manager, prepared.requests, stream=stream)
        return run_thinking_first(self._manager, prepared.requests, prepared.think_first, stream=stream)

    def _parser(self, prepared: PreparedChat) -> ReplyParser:
        separates = prepared.call.reasoning.separate
        return reply_parser(
            prepared.plan,
            style=self._style if separates else None,
            thinking=prepared.thinking,
            channels=self._channels,
        )

    def _sampling(self, call: ChatCall, plan: ToolPlan) -> dict[str, object]:
        sampling = dict(call.sampling)
        if plan.constraint:
            # It takes the place of the answer's own constraint, or has it inside.
            replaced = (*GRAMMAR_KINDS, "json_schema_lenient")
            sampling = {name: value for name, value in sampling.items() if name not in replaced}
            sampling |= plan.constraint
        if any(map(self._is_special, self._needed_marks(call, plan))):
            sampling["skip_special_tokens"] = False
        stops = () if self._channels is None else self._channels.stops
        given = call.sampling.get("stop") or []
        # What is no list of stops is refused with the other settings.
        if stops and isinstance(given, str | list):
            sampling["stop"] = [*([given] if isinstance(given, str) else given), *stops]
        return sampling

    def _needed_marks(self, call: ChatCall, plan: ToolPlan) -> tuple[str, ...]:
        """Texts that the parsers of a call look for."""
        marks: tuple[str, ...] = () if plan.format is None else plan.format.marks
        if self._channels is not None:
            return marks + self._channels.marks
        if self._style is not None and call.reasoning.separate:
            marks += (self._style.marks.opening, self._style.marks.closing)
        return marks

    def _thinking(
        self, request: GenerateRequest, prompt: ChatPrompt, budget: int | None
    ) -> tuple[Thinking, ThinkFirst | None]:
        style = self._style
        if style is None:
            return Thinking.MAY_BEGIN, None
        thinking = thinking_behind(prompt.text, style.marks, continued=prompt.continued)
        thinks = thinking is Thinking.OPEN or (thinking is Thinking.MAY_BEGIN and style.thinks_unasked)
        is_one_run = request.sampling.grammar_kind is None and budget is None
        if is_one_run or not thinks or request.session_params is not None:
            return thinking, None
        return thinking, ThinkFirst(style, "" if thinking is Thinking.OPEN else style.marks.opening, budget)

    def _is_special(self, text: str) -> bool:
        """Whether a text holds special tokens of the served vocabulary."""
        if text not in self._special_texts:
            ids = self._manager.tokenizer.encode(text, add_bos=False)
            self._special_texts[text] = not self._manager.tokenizer.vocabulary.special_ids.isdisjoint(ids)
        return self._special_texts[text]


def _usage(choices: list[ChoiceProgress]) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=choices[0].prompt_tokens,
        completion_tokens=sum(choice.completion_tokens for choice in choices),
        cached_tokens=choices[0].cached_tokens,
        reasoning_tokens=sum(choice.reasoning_tokens for choice in choices),
    )
