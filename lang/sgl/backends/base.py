"""Backend: what a program needs of a model, and the records that go to and fro.

Every method runs on the language's event loop; the executor is the only caller.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from sgl.chat_template import ChatTemplate
from sgl.chat_template import RoleAffixes as RoleAffixes
from sgl.choices import ChoicesMethod
from sgl.constraints import Constraint, ConstraintKind
from sgl.sampling import SAMPLING_FIELDS, SamplingParams

Message = dict[str, Any]
"""`{"role": ..., "content": ...}`; the content of a message with images is a list of parts, in the form of OpenAI's."""


@dataclass(frozen=True)
class Prompt:
    """A prompt as far as the server knows it, and the text that it has not seen.

    Attributes:
        ids: Token ids that a server made or generated; never changed by what follows.
        pending: Text behind them.  It is tokenized when a call needs it, together with what was appended until then,
            so where a program splits constant text makes no difference.
        pending_ids: What the server made of `pending` when it was put into the cache; None where it was not.
    """

    ids: tuple[int, ...] = ()
    pending: str = ""
    pending_ids: tuple[int, ...] | None = None

    def append(self, text: str) -> "Prompt":
        """This prompt with text behind it."""
        return Prompt(self.ids, self.pending + text) if text else self

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to go on from."""
        return not self.ids and not self.pending


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """The prompt as messages, for backends that take those.

    Attributes:
        messages: The closed ones.
        open_role: Role of the open message; None where none is open.
        open_text: Text of the open message so far.
        has_open_media: Whether there are images in it.
        has_loose_text: Whether there is text, other than white space, or an image outside of all messages.
    """

    messages: tuple[Message, ...] = ()
    open_role: str | None = None
    open_text: str = ""
    has_open_media: bool = False
    has_loose_text: bool = False


@dataclass(frozen=True, kw_only=True)
class GenRequest:
    """One generation.

    Attributes:
        prompt: What to go on from.
        sampling: Complete settings.
        constraint: What the output must match.
        dialogue: The prompt as messages; None for backends that take text.
        media: Images in the prompt, in order, for backends that take text.
        shows_special_tokens: Whether special tokens are part of the output's text.
    """

    prompt: Prompt
    sampling: SamplingParams
    constraint: Constraint | None = None
    dialogue: Dialogue | None = None
    media: tuple[str, ...] = ()
    shows_special_tokens: bool = False


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The output, or while it streams what there is of it.

    Attributes:
        text: All text so far; only grows.
        meta: The backend's meta info.
        prompt: What the next call goes on from; None until the output is complete.
        output_ids: Every generated id, a matched stop or end-of-sequence token included.
        reasoning: What the model thought before, where the backend tells it apart.
        others: The further outputs, where more than one was asked for; `meta` then is that of all of them.
    """

    text: str
    meta: dict[str, Any]
    prompt: Prompt | None
    output_ids: Sequence[int] = ()
    reasoning: str = ""
    others: tuple["Generation", ...] = ()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The picked choice.

    Attributes:
        index: Which one.
        meta: Scores, probabilities and token log probabilities of all choices.
    """

    index: int
    meta: dict[str, Any] = field(default_factory=dict)


PLAIN_AFFIXES = {
    "system": RoleAffixes("SYSTEM: ", "\n"),
    "user": RoleAffixes("USER: ", "\n"),
    "assistant": RoleAffixes("ASSISTANT: ", "\n"),
}
"""The text of roles where no chat template is known."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a backend can do.  What it cannot is refused where a program appends it, before anything is sent.

    Attributes:
        shown_as: The backend, for errors.
        has_select: Whether it scores choices.
        has_tools: Whether a gen can go on with calls of tools.
        constraints: Kinds of constraints that it enforces.
        sampling: Sampling settings that it takes.
        takes_messages: Whether it gets the state as messages.
        continues_messages: Whether it then goes on inside an assistant message that has begun.
        media: Kinds of media that it takes.
        can_speculate: Whether `num_api_spec_tokens` saves calls; where prefixes are cached they cost little anyway.
    """

    shown_as: str = "this backend"
    has_select: bool = True
    has_tools: bool = True
    constraints: frozenset[str] = frozenset(get_args(ConstraintKind))
    sampling: frozenset[str] = frozenset(SAMPLING_FIELDS) - {"lora_path"}
    takes_messages: bool = False
    continues_messages: bool = False
    media: frozenset[str] = frozenset()
    can_speculate: bool = False


EVERYTHING = Capabilities()


class Backend(ABC):
    """A model that programs can call."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do: everything that a text model can, unless a backend says otherwise."""
        return EVERYTHING

    @property
    def chat_template(self) -> ChatTemplate | None:
        """Stands in for the served model's own; None for that."""
        return None

    @property
    def known_model_info(self) -> dict[str, Any] | None:
        """What is known of the model by now; None where it was not asked for yet."""
        return {}

    async def get_model_info(self) -> dict[str, Any]:
        """What the server says of its model; nothing, unless a backend says more."""
        return {}

    @abstractmethod
    async def generate(self, request: GenRequest) -> Generation:
        """Generate and return the whole output."""

    @abstractmethod
    def generate_stream(self, request: GenRequest) -> AsyncGenerator[Generation, None]:
        """Generate and give what there is, again and again; the last one has a prompt."""

    @abstractmethod
    async def select(self, prompt: Prompt, choices: Sequence[str], method: ChoicesMethod) -> Selection:
        """Score the choices as continuations of the prompt and pick one."""

    @abstractmethod
    async def commit(self, prompt: Prompt) -> Prompt:
        """Put the prompt into the prefix cache; the same prompt comes back, with what is known of it now."""

    @abstractmethod
    async def role_affixes(self, messages: Sequence[Message], role: str) -> RoleAffixes:
        """The text around a message of this role that follows these messages."""

    @abstractmethod
    async def flush_cache(self) -> bool:
        """Empty the prefix cache; False, and a warning, where the server refused."""

    @abstractmethod
    async def get_server_info(self) -> dict[str, Any]:
        """The server's configuration and counters."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give back connections and processes.  Calling it twice does no harm."""
