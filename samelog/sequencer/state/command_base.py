"""What all commands of the replicated state machine have in common.

Invariant: a command's tag is its number for ever, on disk and on the wire.
"""

from __future__ import annotations

import msgspec


class Command(msgspec.Struct, frozen=True, array_like=True, tag_field="t"):
    """Base of all commands; the tag is their number on disk and on the wire.

    A command's name ends in Command where a request or a message has the same name without it.
    """
