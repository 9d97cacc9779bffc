"""What becomes of a session's bytes when the topic that they are shipped to is deleted.

A partition's bytes follow the id of a topic, not its name. If all of them are merged when the
deletion becomes known, the bytes that follow go to the topic that has the name then. If not, the
unmerged bytes and all behind them are held, until an operator or the application decides whether
they continue into the new topic or are discarded (docs/state-machine.md).

If a run was closed before it took any of an input's bytes for its topic, a later run carries them.

Invariant: no byte that was not merged is shipped to another topic, or given up, without that
decision; each decision is durable before it is carried out.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import msgspec

from samelog.config.tables.client import OnRecreate
from samelog.format.directory_files import CarriedFile, ShippingFile
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.replicator.client_errors import held_remedy
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.progress import START, LostRange, SessionProgress
from samelog.runtime.clock import Clock
from samelog.wire.holds import HELD_PARTS_TOLD, HeldPart

log = logging.getLogger(__name__)

FORMER_KEPT = 16
UNKNOWN_S = 10.0
"""A topic that is created again within that time takes the bytes that wait for it."""


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes of an input that are held. `decision`: what becomes of them as soon as it can; empty:
    that is not decided.
    """

    topic: str
    partition: int
    topic_id: str
    """Of the topic that was deleted."""
    begin: SessionPosition
    size_bytes: int
    decision: str
    session: str

    def explain(self) -> str:
        """Describe the hold and its remedy."""
        name = self.session
        return (
            f"{self.size_bytes} bytes of session {name!r} for partition {self.partition} are held: "
            f"{held_remedy(name)}"
        )


class Recreation:
    """Of one session."""

    def __init__(
        self,
        session: LocalSession,
        progress: SessionProgress,
        clock: Clock,
        on_reset: Callable[[InputName], None],
    ) -> None:
        """`on_reset`: an input is shipped differently from now on."""
        self.option = OnRecreate.HOLD
        self.on_left: Callable[[str, str], None] = lambda topic, topic_id: None
        """Called with the name and the id of a topic that was deleted."""
        self.lets_go = False
        """Whether bytes of a deleted topic are dropped, because they can be had again."""
        self._session = session
        self._progress = progress
        self._clock = clock
        self._on_reset = on_reset
        self._has_told = False
        """Whether `told` last found anything."""
        self._gone: set[tuple[InputName, str]] = set()
        """Inputs, and the ids of their deleted topics, until that is noted on the disk."""
        self._moving: set[InputName] = set()
        """Inputs whose shipping.json names the next topic's first byte, and whose topic.json may
        still name the deleted topic.
        """
        self._untaken: dict[InputName, list[LostRange]] = {}
        """The bytes that closed runs did not take, by run, until a later run carries them."""
        self._unknown: dict[InputName, float] = {}
        """Inputs whose bytes wait for the next topic of the name, or for its partition, and since
        when nodes have said that there is none.
        """
        self._opened = -1, -1
        """The newest run that a node has opened, and its number in the cluster."""

    @property
    def held(self) -> Mapping[InputName, HeldBytes]:
        """The inputs whose bytes are held."""
        return {name: self._held(name) for name in self._session.held()}

    def _held(self, name: InputName) -> HeldBytes:
        shipping = self._session.shipping(name)
        begin = SessionPosition(*(shipping.held or shipping.begin))
        size = self._session.bytes_behind(name, begin)
        topic_id = self._session.topic_id(name) or (shipping.former or ("",))[-1]
        session = (self._session.identity or (self._path,))[0]
        return HeldBytes(*name, topic_id, begin, size, shipping.decision, session)

    def _waiting(self) -> dict[InputName, tuple[str, SessionPosition]]:
        """The inputs whose bytes wait for a topic, or a partition, for long: the id of the deleted
        topic, and the first byte.
        """
        found, now = {}, self._clock.now()
        for name, since in tuple(self._unknown.items()):
            shipping = self._session.shipping_if_known(name)
            is_unbound = self._session.topic_id(name) is None
            is_waiting = shipping is not None and shipping.held is None and is_unbound
            if is_waiting and now < since + UNKNOWN_S:
                continue
            begin = self._begin_of_rest(name) if is_waiting else None
            if shipping is None or begin is None:
                del self._unknown[name]
            else:
                found[name] = shipping.former[-1], begin
        return found

    def _begin_of_rest(self, name: InputName) -> SessionPosition | None:
        """The first byte that waits; None: there is none, or it cannot be read now."""
        try:
            return self._first_unmerged(name)
        except LogFormatError as error:
            text = "session %s: the bytes of %s-%d that wait for a topic are not known: %s"
            log.error(text, self._path, *name, error)
            return None

    def told(self) -> tuple[HeldPart, ...] | None:
        """What is held and what waits, for nodes, and the damaged ranges: of many inputs those with
        the most bytes. None: there is nothing, and there was nothing when this was called last.
        """
        damaged = Counter(each.name for each in self._session.damaged())
        held = [(name, each.topic_id, each.size_bytes) for name, each in self.held.items()]
        held += [
            (name, topic_id, self._session.bytes_behind(name, begin))
            for name, (topic_id, begin) in self._waiting().items()
        ]
        parts = [
            HeldPart(*name, topic_id, size, damaged.pop(name, 0)) for name, topic_id, size in held
        ]
        parts += (HeldPart(*name, "", 0, count) for name, count in damaged.items())
        if not (parts or self._has_told):
            return None
        self._has_told = bool(parts)
        parts.sort(key=lambda part: (-part.size_bytes, part))
        return tuple(parts[:HELD_PARTS_TOLD])

    @property
    def is_settled(self) -> bool:
        """Whether nothing is held, and all steps are done."""
        unsettled = self._gone or self._moving or self._untaken or self._unknown
        return not (unsettled or self._session.held())

    # --- events -----------------------------------------------------------------------------------

    def topic_deleted(self, name: InputName, topic_id: str) -> None:
        """The cluster has deleted a topic that an input is or was shipped to."""
        self._gone.add((name, topic_id))
        self._attempt(self._leave, name, topic_id)
        self._attempt(self._carry_out, name)

    def left_out(self, lost: LostRange) -> None:
        """The cluster has closed a run without the bytes of an input that none of its topic's runs
        had before. They are not shipped before it is noted which later run carries them.
        """
        self._session.withhold(lost.name, is_withheld=True)
        self._untaken.setdefault(lost.name, []).append(lost)

    def note_unknown(self, name: InputName) -> None:
        """A node says that there is no topic of an input's name, or that it lacks the partition."""
        shipping = self._session.shipping_if_known(name)
        if shipping is not None and shipping.former and self._session.topic_id(name) is None:
            self._unknown.setdefault(name, self._clock.now())

    def run_opened(self, run: int, number: int) -> None:
        """A node has opened a run, to which the cluster gave this number."""
        self._opened = max(self._opened, (run, number))
        for name in tuple(self._untaken):
            self._attempt(self._carry_on, name)

    def decide(self, decision: OnRecreate, topic_ids: Container[str]) -> None:
        """Continue or discard what is held for these deleted topics. A decision that comes late
        concerns nothing that is held since. Bytes that wait for a topic or a partition are
        discarded; they continue by themselves. Raises LogFormatError: the decision is not noted.
        """
        for name, held in self.held.items():
            if held.topic_id in topic_ids:
                self._note(name, decision, held.begin)
        waiting = self._waiting() if decision is OnRecreate.DISCARD else {}
        for name, (topic_id, begin) in waiting.items():
            if topic_id in topic_ids:
                self._note(name, decision, begin)
        self.settle()

    def _note(self, name: InputName, decision: OnRecreate, held: SessionPosition) -> None:
        shipping = self._session.shipping(name)
        later = msgspec.structs.replace(shipping, held=tuple(held), decision=decision.value)
        self._session.ship_differently(name, later)

    def settle(self) -> None:
        """Carry out what is decided; to be called about once a second, too. An input whose files
        cannot be read or written holds up no other one.
        """
        for name in tuple(self._moving):
            self._attempt(self._move, name)
        for name, topic_id in tuple(self._gone):
            self._attempt(self._leave, name, topic_id)
        for name in tuple(self._untaken):
            self._attempt(self._carry_on, name)
        for name in self._session.held():
            self._attempt(self._carry_out, name)

    def _attempt(self, step: Callable[..., None], name: InputName, *arguments: str) -> None:
        try:
            step(name, *arguments)
        except LogFormatError as error:
            text = "session %s: a change of how %s-%d is shipped is retried: %s"
            log.error(text, self._path, *name, error)

    def note_merged(self) -> None:
        """Note how far inputs are merged, so that a later life knows it. Raises LogFormatError."""
        for name, reached in self._progress.inputs.items():
            place = reached.merged
            shipping = self._session.shipping_if_known(name)
            if (
                shipping is not None
                and place > shipping.merged
                and self._session.has_files_of(name)
            ):
                later = msgspec.structs.replace(shipping, merged=tuple(place))
                self._session.ship_differently(name, later, durable=False)

    # --- deciding ---------------------------------------------------------------------------------

    def _leave(self, name: InputName, topic_id: str) -> None:
        """Move an input from its deleted topic to the next topic of that name, or hold its bytes.
        Raises LogFormatError.
        """
        shipping = self._session.shipping_if_known(name)
        is_left = shipping is None or shipping.held is not None or topic_id in shipping.former
        if shipping is not None and not is_left:
            if self._session.topic_id(name) is None:  # the topic was to be noted just now
                former = (*shipping.former, topic_id)[-FORMER_KEPT:]
                shipping = msgspec.structs.replace(shipping, former=former)
            self._session.look_again(name)
            self.on_left(name[0], topic_id)
            self._leave_topic(name, shipping)
        self._gone.discard((name, topic_id))

    def _leave_topic(self, name: InputName, shipping: ShippingFile) -> None:
        begin = self._first_unmerged(name)
        if begin is None:
            self._go_on(name, shipping, self._end(name))
            log.warning(
                "topic %r was deleted after all of session %s was merged: what follows goes to the "
                "next topic of that name",
                name[0],
                self._path,
            )
            return
        held = msgspec.structs.replace(shipping, held=tuple(begin), decision="")
        self._progress.find(name)
        self._ship_differently(name, held)
        if self.option is OnRecreate.HOLD:
            log.error("topic %r was deleted; %s", name[0], self._held(name).explain())

    def _carry_out(self, name: InputName) -> None:
        """Carry out the decision about held bytes, if there is one. Raises LogFormatError."""
        shipping = self._session.shipping_if_known(name)
        if shipping is None or shipping.held is None:
            return
        held = SessionPosition(*shipping.held)
        if not shipping.decision and self.option is not OnRecreate.HOLD:
            self._note(name, self.option, held)
            shipping = self._session.shipping(name)
        if not shipping.decision:
            return
        self._session.look_again(name)
        size = self._session.bytes_behind(name, held)
        if shipping.decision == OnRecreate.DISCARD.value:
            self._go_on(name, shipping, self._end(name))
        elif not self._continue(name, shipping, held):
            return
        log.warning(
            "topic %r was deleted: %d unmerged bytes of session %s, partition %d: %s",
            name[0],
            size,
            self._path,
            name[1],
            shipping.decision,
        )

    def _continue(self, name: InputName, shipping: ShippingFile, held: SessionPosition) -> bool:
        """Ship held bytes in the newest run; False: it takes nothing more."""
        newest = self._open_run(held.run)
        if newest is None:
            return False
        if held.run == newest:
            self._change_topic(name, shipping, held, ())
        else:
            carried = tuple(self._files(name, held, newest))
            self._change_topic(name, shipping, SessionPosition(newest, 0, 0), carried)
        self._move(name)
        return True

    def _open_run(self, held: int) -> int | None:
        """Return the newest run, begun now if all are closed; None if it is closed, too."""
        if self._session.runs[-1].run in self._progress.ends:
            self._begin_run(held)
        newest = self._session.runs[-1].run
        return None if newest in self._progress.ends else newest

    def _carry_on(self, name: InputName) -> None:
        """Carry bytes that a closed run did not take in the newest run, for the same topic. Raises
        LogFormatError: try again later.
        """
        shipping = self._session.shipping_if_known(name)
        if shipping is not None and shipping.held is None:
            self._session.look_again(name)
            begin = self._first_unmerged(name)
            if begin is not None and begin.run <= self._untaken[name][-1].run:
                newest = self._open_run(begin.run)
                is_open = newest is not None and newest == self._opened[0]
                if newest is None or not is_open or not self._takes(newest, begin.run, name):
                    return
                if self._may_be_taken(name, begin.run, newest):
                    self._lose(name)
                else:
                    self._carry(name, shipping, begin, newest)
        del self._untaken[name]
        self._session.withhold(name, is_withheld=False)
        self._on_reset(name)

    def _carry(
        self, name: InputName, shipping: ShippingFile, begin: SessionPosition, newest: int
    ) -> None:
        carried = tuple(self._files(name, begin, newest))
        later = msgspec.structs.replace(shipping, begin=(newest, 0, 0), carried=carried)
        self._session.ship_differently(name, later)
        text = "session %s: run %d was closed without the records of %s-%d, run %d carries them"
        log.warning(text, self._path, begin.run, *name, newest)

    def _may_be_taken(self, name: InputName, first: int, newest: int) -> bool:
        """Whether a run that is not known in this directory may have carried these bytes: the
        directory was put back from a copy, so that the cluster knows other runs by their numbers.
        """
        known = [self._progress.ends.get(run, {}) for run in range(first, newest)]
        is_known = self._opened == (newest, newest)
        return not is_known or any(ends.get(name, START) > START for ends in known)

    def _lose(self, name: InputName) -> None:
        text = "session %s: run %d was closed without the records of %s-%d, which are kept: other"
        for lost in self._untaken[name]:
            log.error(text + " runs of the session may have them", self._path, lost.run, *name)
            self._progress.lose(lost)

    def _takes(self, newest: int, first: int, name: InputName) -> bool:
        """Whether a run may carry an input's bytes of the runs from `first` on: dedup ids count
        from where the run begins.
        """
        own = self._session.runs[-1]
        return all(
            each.dedup_id is None
            or (own.dedup_id == each.dedup_id and (own.dedup_base or 0) <= (each.dedup_base or 0))
            for each in self._session.runs
            if first <= each.run < newest and self._session.has_bytes(each.run, name)
        )

    def _begin_run(self, held: int) -> None:
        """Begin a run that takes held bytes, with the dedup id of the run that they are of. If the
        writer is in a run already, or its file system lets only it begin one, that run takes them.
        """
        of_held = next((each for each in self._session.runs if each.run == held), None)
        dedup = (None, None) if of_held is None else (of_held.dedup_id, of_held.dedup_base)
        self._session.begin_run(secrets.token_hex(16), self._clock.wall_ms(), *dedup)

    def _go_on(self, name: InputName, shipping: ShippingFile, begin: SessionPosition) -> None:
        self._change_topic(name, shipping, begin, ())
        self._progress.forget_end(begin.run, name)
        self._progress.skip(name, begin)
        self._move(name)

    def _change_topic(
        self,
        name: InputName,
        shipping: ShippingFile,
        begin: SessionPosition,
        carried: tuple[CarriedFile, ...],
    ) -> None:
        """Note that bytes from `begin` on, behind the carried ones, belong to the next topic of the
        name; `_move` is to follow.
        """
        gone = self._session.topic_id(name)
        is_noted = gone is None or gone in shipping.former
        former = shipping.former if is_noted else (*shipping.former, gone)
        later = msgspec.structs.replace(
            shipping,
            former=former[-FORMER_KEPT:],
            begin=tuple(begin),
            carried=carried,
            held=None,
            decision="",
        )
        self._session.ship_differently(name, later)
        self._moving.add(name)

    def _move(self, name: InputName) -> None:
        """Ship an input to the next topic of its name. Raises LogFormatError: try again later."""
        if self._session.shipping_if_known(name) is not None:
            self._session.unbind(name)
            self._on_reset(name)
        self._moving.discard(name)

    def _ship_differently(self, name: InputName, shipping: ShippingFile) -> None:
        self._session.ship_differently(name, shipping)
        self._on_reset(name)

    # --- how far it has come ----------------------------------------------------------------------

    def _first_unmerged(self, name: InputName) -> SessionPosition | None:
        """The first byte that belongs to the topic and is not known to be merged."""
        shipping = self._session.shipping(name)
        for known in self._session.runs:
            run = known.run
            if not self._session.has_bytes(run, name) or shipping.drops(run):
                continue
            if shipping.carries(run):
                continue  # it is part of the run that carries it
            tail = self._session.tail(run, name)
            merged = self._progress.merged_as(run, name, tail.layout)
            noted = SessionPosition(*shipping.merged)
            if noted.run > run and tail.layout is None:
                continue
            if noted.run >= run or tail.layout is not None:
                merged = max(merged, tail.wire(noted))
            merged = max(merged, tail.first)
            if tail.reaches_beyond(merged):
                return tail.local(merged)
        return None

    def _end(self, name: InputName) -> SessionPosition:
        """Behind the last whole batch of an input."""
        newest = [each.run for each in self._session.runs]
        for run in reversed(newest):
            if self._session.has_bytes(run, name):
                tail = self._session.tail(run, name)
                tail.advance_to_end()
                return tail.local(tail.end)
        return SessionPosition(*self._session.shipping(name).begin)

    def _files(self, name: InputName, held: SessionPosition, below: int) -> list[CarriedFile]:
        """The files from a position on of the runs below one, without empty ones. A missing one and
        the bytes behind damage are included: what is lost is reported when they are shipped.
        """
        found = []
        for known in self._session.runs:
            run = known.run
            if not held.run <= run < below or not self._session.has_bytes(run, name):
                continue
            tail = self._session.plain_tail(run, name)
            for roll, length in tail.all_lengths():
                start = held.byte if (run, roll) == held[:2] else 0
                is_missing = roll not in tail.rolls
                if (run, roll) >= held[:2] and (length > start or is_missing):
                    found.append(CarriedFile(run, roll, start, max(start, length)))
            tail.close()
        return found

    @property
    def _path(self) -> str:
        return self._session.path
