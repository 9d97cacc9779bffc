"""The grammar of the names that become parts of paths.

Invariant: a checked name is a single path component that cannot leave its directory, means the
same on every file system, and fits into a file name together with what the log directories add.
"""

from __future__ import annotations

import re

from samelog.format.arguments import shown
from samelog.format.errors import InvalidName

EVENTS_TOPIC = "__events"
"""What happens in the cluster, if somebody made it; only the leader writes to it."""
MIRROR_SESSIONS = "mirror."
"""What the names of sessions begin with that bring the records of mirrors, and no others."""

_SESSION = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_session_name(name: str) -> str:
    """Return `name` if it may name a session, an identity or a node.

    Raises:
        InvalidName: it is not 1 to 128 of `a-z 0-9 . _ -`, beginning with a letter or digit.
    """
    if _SESSION.fullmatch(name) is None:
        raise InvalidName(
            f"{shown(name)} is not a valid name: 1 to 128 characters of a-z, 0-9, '.', '_' and "
            "'-', beginning with a letter or a digit"
        )
    return name


def check_topic_name(name: str) -> str:
    """Return `name` if it may name a topic (Kafka's grammar).

    Raises:
        InvalidName: it is not 1 to 249 of `a-z A-Z 0-9 . _ -`, or is `.` or `..`.
    """
    return _checked(name, "topic name")


def check_copied_topic(name: str) -> str:
    """Return `name` if it names one topic, which a sidecar can copy, and is not a pattern.

    Raises InvalidName.
    """
    try:
        return check_topic_name(name)
    except InvalidName as error:
        raise InvalidName(
            f"{error}. A sidecar takes no patterns: give each topic by its name, as "
            "`samelog topic list` prints it"
        ) from error


def check_group_name(name: str) -> str:
    """Return `name` if it may name a group of subscribers, which is a directory of theirs: Kafka's
    grammar of topics.

    Raises:
        InvalidName: as for topics.
    """
    return _checked(name, "name of a group of subscribers")


def _checked(name: str, what: str) -> str:
    if _TOPIC.fullmatch(name) is None or name in {".", ".."}:
        raise InvalidName(
            f"{shown(name)} is not a valid {what}: 1 to 249 characters of a-z, A-Z, 0-9, "
            "'.', '_' and '-', and neither '.' nor '..'"
        )
    return name


def is_mirror_session(name: str) -> bool:
    """Whether a session brings the records of mirrors."""
    return name.startswith(MIRROR_SESSIONS)
