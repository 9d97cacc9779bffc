"""The thread of a member that speaks with the coordinator of its group.

Invariant: a member is heard of at least once in the time that the coordinator asks for, as long as
a node can be reached, whatever the application does; what the application waits for is said at
once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from samelog.admin.errors import AdminError
from samelog.admin.kept import KeptConnection
from samelog.config.tables.client import ClientConfig
from samelog.subscriber.errors import GroupRefused
from samelog.subscriber.groups.membership import GroupMembership
from samelog.wire.errors import FaultCode

log = logging.getLogger(__name__)

ANSWER_S = 10.0
LEAVE_S = 3.0
RETRY_S = 0.5
FINAL = (
    FaultCode.NOT_AUTHORISED,
    FaultCode.GROUP_IN_USE,
    FaultCode.OUT_OF_RANGE,
    FaultCode.WRONG_CLUSTER,
    FaultCode.INVALID_NAME,
)
"""Asking again does not help."""


class Speaker:
    """Of one member."""

    def __init__(
        self, config: ClientConfig, membership: GroupMembership, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called, in the thread, when there is something for the application."""
        self.problem: GroupRefused | None = None
        self._membership = membership
        self._on_change = on_change
        self._connection = KeptConnection(config)
        self._moved = threading.Condition()
        self._is_due = False
        self._is_reached = True
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="samelog-group", daemon=True)

    def start(self) -> None:
        """Join, and begin to speak. Raises GroupRefused if the coordinator does not want it; if no
        node answers, it asks again.
        """
        self._speak()
        if self.problem is not None:
            self._connection.close()
            raise self.problem
        self._thread.start()

    def follow(self, config: ClientConfig) -> None:
        """Speak to these nodes from now on."""
        self._connection.config = config

    def say_soon(self) -> None:
        """There is something to say."""
        with self._moved:
            self._is_due = True
            self._moved.notify_all()

    def say_all(self, timeout_s: float) -> bool:
        """Wait until the coordinator knows everything; whether it does."""
        deadline = time.monotonic() + timeout_s
        self.say_soon()
        with self._moved:
            while not self._membership.has_said_all and self.problem is None:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._is_closed:
                    return False
                self._is_due = True
                self._moved.notify_all()
                self._moved.wait(min(left_s, RETRY_S))
        return self.problem is None

    def close(self) -> None:
        """Leave the group, and end."""
        with self._moved:
            self._is_closed = True
            self._moved.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            self._speak()
        if self._membership.is_member:
            self._leave()
        self._connection.close()

    def _wait(self) -> bool:
        """Until it is time to speak; False: to end."""
        due_at = time.monotonic() + self._membership.heartbeat_s
        with self._moved:
            while not self._is_closed:
                left_s = due_at - time.monotonic()
                if self._is_due or left_s <= 0:
                    self._is_due = False
                    return True
                self._moved.wait(left_s)
        return False

    def _speak(self) -> None:
        membership, before = self._membership, self._membership.version
        asked, sent_at = membership.request(time.monotonic()), time.monotonic()
        try:
            answer = self._connection.ask(asked, ANSWER_S)
        except AdminError as error:
            self._failed(error)
        else:
            self.problem = None
            self._is_reached = True
            membership.answered(asked, answer, sent_at)
            if answer.lost:
                log.warning("no member of group %r any more: %s", asked.group, answer.lost)
        membership.expire(time.monotonic())
        with self._moved:
            self._is_due |= not membership.is_member and self.problem is None
            self._moved.notify_all()
        if membership.version != before or self.problem is not None:
            self._on_change()

    def _failed(self, error: AdminError) -> None:
        if error.code in FINAL:
            self._membership.lose()
            self.problem = GroupRefused(str(error))
            return
        if self._is_reached:
            log.warning("the coordinator of groups was not reached: %s", error)
        self._is_reached = False
        with self._moved:
            if not self._is_closed:
                self._moved.wait(RETRY_S)

    def _leave(self) -> None:
        asked = self._membership.request(time.monotonic(), leaves=True)
        try:
            self._connection.ask(asked, LEAVE_S)
        except AdminError as error:
            log.warning("group %r was left without a word: %s", asked.group, error)
