"""ModelFacts: what a backend has learnt of its model, asked for once."""

from dataclasses import dataclass, field
from typing import Any

from sgl.backends.base import RoleAffixes


@dataclass
class ModelFacts:
    """Answers of a server that do not change.

    Attributes:
        model_info: The reply of `/get_model_info`; None before it was asked for.
        affixes: Role affixes by the roles of the messages so far and the role.
        is_warned: Whether the lack of a chat template was said.
    """

    model_info: dict[str, Any] | None = None
    affixes: dict[tuple[str, ...], RoleAffixes] = field(default_factory=dict)
    is_warned: bool = False
