"""Ships a publisher's session from within the process: a push client in a thread of its own.

Invariant: what is told as acknowledged or merged was told by the cluster; nobody waits for a
position that cannot come any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from random import Random

from samelog.config.tables.client import ClientConfig
from samelog.format.positions import SessionPosition
from samelog.publisher.errors import NotMerged, ShippingStopped
from samelog.publisher.places import TopicPartition, behind
from samelog.publisher.ship_lock import lock_shipping
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.client import PushClient, PushStatus
from samelog.replicator.push.progress import InputProgress
from samelog.runtime.clock import SystemClock
from samelog.runtime.following import ConfigFollower
from samelog.runtime.loop_thread import LoopThread
from samelog.runtime.network.tls import ReloadingContext
from samelog.store.disk.files import OsFileSystem

Places = Mapping[TopicPartition, SessionPosition]


class Shipper:
    """The embedded push client. All methods may be called from any thread but its own."""

    def __init__(self, path: str, config: ClientConfig) -> None:
        """Start shipping.

        Raises:
            DirectoryInUse: the session is shipped already.
            TlsFault: the certificate files cannot be used.
        """
        tls = ReloadingContext(config.tls)
        self._moved = threading.Condition()
        self._progress: Mapping[InputName, InputProgress] = {}
        self._status: PushStatus | None = None
        self._status_version = -1
        self._lock = lock_shipping(OsFileSystem(), path)
        self._thread = LoopThread("samelog-push")
        self._client, self._follower = self._thread.run(self._start(path, config, tls))

    async def _start(
        self, path: str, config: ClientConfig, tls: ReloadingContext
    ) -> tuple[PushClient, ConfigFollower]:
        client = PushClient(
            path,
            config,
            tls=tls,
            fs=OsFileSystem(),
            clock=SystemClock(),
            random=Random(),
            on_progress=lambda: self._take_over(client),
        )
        client.start()
        follower = ConfigFollower(config, client.follow)
        follower.start()
        return client, follower

    def _take_over(self, client: PushClient) -> None:
        """In the loop's thread: positions or connections have changed."""
        with self._moved:
            self._progress = dict(client.progress)
            if client.status_version != self._status_version:
                self._status, self._status_version = client.status, client.status_version
            self._moved.notify_all()

    def acknowledged(self) -> Places:
        """How far each partition is committed."""
        with self._moved:
            return _begun(self._places_acknowledged())

    def merged(self) -> Places:
        """How far each partition is merged, durably on a majority."""
        with self._moved:
            return _begun(self._places_merged())

    def _places_acknowledged(self) -> Places:
        return {
            TopicPartition(*name): SessionPosition(*reached.acknowledged)
            for name, reached in self._progress.items()
        }

    def _places_merged(self) -> Places:
        return {
            TopicPartition(*name): SessionPosition(*reached.merged)
            for name, reached in self._progress.items()
        }

    def wait_acknowledged(self, wanted: Places, timeout_s: float | None) -> None:
        """Wait until everything up to `wanted` is acknowledged. Raises as `wait_merged`."""
        self._wait(wanted, self._places_acknowledged, timeout_s, "acknowledged")

    def wait_merged(self, wanted: Places, timeout_s: float | None) -> None:
        """Wait until everything up to `wanted` is merged.

        Raises:
            NotMerged: not within `timeout_s`.
            ShippingStopped: it never will be.
        """
        self._wait(wanted, self._places_merged, timeout_s, "merged")

    def _wait(
        self, wanted: Places, reached: Callable[[], Places], timeout_s: float | None, what: str
    ) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._moved:
            while missing := behind(wanted, reached()):
                self._check_possible(missing)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise NotMerged(self._explain(missing, reached(), what))
                self._moved.wait(left)
            self._check_lost(wanted)

    def _check_possible(self, missing: Places) -> None:
        """Raise ShippingStopped if a missing position cannot come any more."""
        status = self._status
        if status is None:
            return
        if status.stopped is not None:
            raise ShippingStopped(f"shipping has stopped: {status.stopped}")
        for name, place in missing.items():
            if status.gone.get(name, -1) >= place.run:
                raise ShippingStopped(f"topic {name.topic!r} was deleted")
        self._check_lost(missing)

    def _check_lost(self, wanted: Places) -> None:
        for lost in () if self._status is None else self._status.lost:
            place = wanted.get(TopicPartition(*lost.name))
            if place is not None and place.run == lost.run:
                raise ShippingStopped(
                    f"the cluster closed run {lost.run} of {lost.name[0]}-{lost.name[1]} at "
                    f"{lost.start[0]}:{lost.start[1]}: what lies behind is kept here, not merged"
                )

    def _explain(self, missing: Places, reached: Places, what: str) -> str:
        parts = [
            f"{name} is {what} up to {_shown(reached.get(name))} of {_shown(place)}"
            for name, place in missing.items()
        ]
        status = self._status
        if status is not None:
            parts += [
                f"node {node.node or node.address}: {node.last_error or 'not connected'}"
                for node in status.nodes
                if node.phase is None
            ]
            parts += [
                f"node {node.node or node.address} refuses {name[0]}-{name[1]}: {problem}"
                for node in status.nodes
                for name, problem in node.problems.items()
            ]
            if status.session_fault is not None:
                parts.append(str(status.session_fault))
        if self._follower.problem:
            parts.append(f"configuration not taken: {self._follower.problem}")
        return "; ".join(parts)

    def abandon(self) -> None:
        """In a forked child, which has no thread of this: the parent goes on shipping."""
        self._lock.close()

    def stop(self) -> None:
        """Ship no more."""
        self._thread.run(self._end())
        self._thread.stop()
        self._lock.close()

    async def _end(self) -> None:
        self._follower.stop()
        await self._client.stop()


def _begun(places: Places) -> Places:
    """Without those that have not reached anything."""
    return {name: place for name, place in places.items() if place.run >= 0}


def _shown(place: SessionPosition | None) -> str:
    return "nothing" if place is None or place.run < 0 else f"{place.run}.{place.roll}:{place.byte}"
