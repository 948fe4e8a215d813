"""check_node, check_sampling_supported: refuse what a backend cannot do, before anything is sent."""

from sgl.backends.base import EVERYTHING, Backend, Capabilities
from sgl.errors import UnsupportedError
from sgl.ir import Gen, Media, Select, ToolGen
from sgl.reasoning import Thinking, published_marks
from sgl.sampling import RUN_DEFAULTS, SamplingParams


def check_node(node: Gen | Select | Media, backend: Backend) -> None:
    """Refuse a node that the backend cannot run.

    Raises:
        UnsupportedError: it cannot; the message names backend, feature and variable.
        ArgumentError: a gen is to separate its thinking, and nobody says how the model marks it.
    """
    capabilities = backend.capabilities
    if isinstance(node, Gen) and node.thinking is not None:
        _check_thinking(node.thinking, backend)
    if isinstance(node, Media):
        if node.kind not in capabilities.media:
            able = " and ".join(sorted(capabilities.media)) or "text alone"
            raise _unsupported(capabilities, node.kind, None, f"its model takes {able}")
        return
    if capabilities is EVERYTHING:
        return
    if isinstance(node, Select):
        if not capabilities.has_select:
            raise _unsupported(capabilities, "select", node.name, "it gives no log probabilities of given text")
    else:
        if isinstance(node, ToolGen) and not capabilities.has_tools:
            raise _unsupported(capabilities, "gen(tools=...)", node.name, "it cannot go on inside a message")
        kind = node.constraint.kind if node.constraint is not None else None
        if kind is not None and kind not in capabilities.constraints:
            able = " and ".join(sorted(capabilities.constraints)) or "no constraint"
            feature = f"a gen whose output must match a {kind}"
            raise _unsupported(capabilities, feature, node.name, f"it enforces {able}")
        check_sampling_supported(node.sampling, capabilities, f"gen {node.name!r}")


def _check_thinking(thinking: Thinking, backend: Backend) -> None:
    info = backend.known_model_info
    # A model that was never asked about is asked when the gen runs, and a chat model may tell its thinking apart.
    if thinking.marks is None and info is not None and not backend.capabilities.takes_messages:
        published_marks(info)


def check_sampling_supported(sampling: SamplingParams, capabilities: Capabilities, where: str) -> None:
    """Refuse settings that the backend does not take, unless they change nothing.

    Args:
        sampling: The settings.
        capabilities: What the backend can do.
        where: Who says them, for errors.

    Raises:
        UnsupportedError: a setting is not taken.
    """
    given = sampling.given()
    if given.keys() <= capabilities.sampling:
        return
    neutral = RUN_DEFAULTS.given()
    for name, value in given.items():
        if name not in capabilities.sampling and (name not in neutral or value != neutral[name]):
            raise UnsupportedError(
                f"{where} sets {name}, which {capabilities.shown_as} does not take; "
                f"it takes {', '.join(sorted(capabilities.sampling))}"
            )


def _unsupported(capabilities: Capabilities, feature: str, name: str | None, why: str) -> UnsupportedError:
    variable = "" if name is None else f" (variable {name!r})"
    return UnsupportedError(f"{capabilities.shown_as} does not support {feature}{variable}: {why}")
