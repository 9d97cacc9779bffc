"""Base classes of the errors that publishers and subscribers raise, and the error both share."""

from __future__ import annotations


class PublisherError(Exception):
    """Base of the errors that a publisher raises by itself."""


class SubscriberError(Exception):
    """Base of the errors that a subscriber raises."""


class TopicDeleted(PublisherError, SubscriberError):
    """A topic that the client uses was deleted in the cluster, and possibly created again.

    A topic created again under the same name has another id and shares nothing with the old one.
    """

    def __init__(self, topic: str, consequence: str, *, log_id: str = "") -> None:
        """`consequence`: state of the client's own files, and the remedy. `log_id`: the log that
        the client had, if it is known.
        """
        super().__init__(f"topic {topic!r} was deleted or created again; {consequence}")
        self.topic, self.log_id = topic, log_id


def held_remedy(session: str) -> str:
    """The commands that decide on a session's records that are held: their topic was deleted."""
    return (
        f"ship them to the next topic of that name with: samelog session continue {session}; or "
        f"drop them with: samelog session discard {session} --confirm {session}"
    )
