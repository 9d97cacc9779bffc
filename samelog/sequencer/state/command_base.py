"""What all commands of the replicated state machine have in common.

Invariant: a command's tag is its number for ever, on disk and on the wire, and so are its fields:
who knows fewer of them refuses the entry. What needs another field is another command, of a higher
level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from samelog.sequencer.levels import LOWEST


class Command(
    msgspec.Struct, frozen=True, array_like=True, tag_field="t", forbid_unknown_fields=True
):
    """Base of all commands; the tag is their number on disk and on the wire.

    A command's name ends in Command where a request or a message has the same name without it.
    """

    needs: ClassVar[int] = LOWEST
    """The feature level that the cluster must have before this may be proposed."""


WhyNot = tuple[str, str] | None
"""Why a command is refused, as a stable code and a sentence; None: it is not."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a command changed nothing: a stable code and a sentence."""

    code: str
    message: str
