"""Fetch sessions: against a plain model of what a client must know, and with a client that uses
them.
"""

from __future__ import annotations

import itertools
import uuid
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from samelog.kafka.clients.fetch_sessions import EPOCH_MAX, STALE_S, FetchContext, FetchSessions
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import FETCH, Wire, fetch_tree, metadata
from tests.patience import PATIENCE_S

PLACES = [(topic, index) for topic in ("a", "b") for index in range(3)]
Place = tuple[str, int]


def sessions(**limits: int) -> FetchSessions:
    return FetchSessions(itertools.count(1).__next__, **limits)


def request(
    offsets: dict[Place, int], session: int = 0, epoch: int = 0, forget: Any = ()
) -> FetchRequest:
    topics: list[Any] = [
        (topic, [FetchPartition(index, -1, offset, 100)])
        for (topic, index), offset in offsets.items()
    ]
    return FetchRequest(0, 1, 100, 0, session, epoch, topics, [(t, [i]) for t, i in forget])


def code_of(kept: FetchSessions, asked: FetchRequest, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        kept.begin(asked, 0, by_id=by_id)
    return refused.value.code


class Server:
    """The logs that are read: where they end and begin, or what is wrong with them."""

    def __init__(self) -> None:
        self.logs = {place: [0, 0, 0] for place in PLACES}

    def answer(self, context: FetchContext) -> FetchResponse:
        return FetchResponse(
            0,
            [
                (key, [self.part((str(key), p.partition), p.offset)])
                for key, parts in context.topics
                for p in parts
            ],
        )

    def part(self, place: Place, offset: int) -> FetchedPartition:
        end, start, error = self.logs[place]
        if error:
            return FetchedPartition(place[1], error)
        records = [b"x" * (end - offset)] if end > offset else []
        return FetchedPartition(place[1], 0, end, start, records)


class Client:
    """What a consumer keeps: its session, its offsets, and what it was told of the logs."""

    def __init__(self, server: Server) -> None:
        self.server, self.kept = server, sessions()
        self.session, self.epoch = 0, 0
        self.offsets: dict[Place, int] = {}
        self.in_session: dict[Place, int] = {}
        self.told: dict[Place, tuple[int, int] | None] = {}

    def exchange(self) -> None:
        is_full = self.epoch == 0
        changed = {p: o for p, o in self.offsets.items() if self.in_session.get(p) != o}
        gone = [place for place in self.in_session if place not in self.offsets]
        for place in gone:
            del self.told[place]
        asked = request(changed, self.session, self.epoch, gone)
        context = self.kept.begin(asked, 0, by_id=False)
        answer = self.kept.finish(context, self.server.answer(context), 0)
        self.check(answer, is_full=is_full)
        self.in_session = dict(self.offsets)
        if not self.offsets:
            assert answer.session_id == 0
            self.session, self.epoch, self.in_session = 0, 0, {}
            return
        assert answer.session_id == self.session or is_full
        self.repeat(asked, is_full=is_full)
        self.session, self.epoch = answer.session_id, self.epoch + 1
        for key, parts in answer.topics:
            for part in parts:
                self.take((str(key), part.partition), part)

    def check(self, answer: FetchResponse, *, is_full: bool) -> None:
        """What has to be there is there, and nothing else."""
        found = {(key, part.partition): part for key, parts in answer.topics for part in parts}
        expected = {}
        for place, offset in self.offsets.items():
            part = self.server.part(place, offset)
            is_known = self.told.get(place) == (part.high_watermark, part.log_start)
            if is_full or part.error or part.records or not is_known:
                expected[place] = part
        assert found == expected

    def take(self, place: Place, part: FetchedPartition) -> None:
        self.told[place] = None if part.error else (part.high_watermark, part.log_start)
        self.offsets[place] += sum(map(len, part.records))

    def repeat(self, asked: FetchRequest, *, is_full: bool) -> None:
        """The same request once more is noticed."""
        if not is_full:
            assert code_of(self.kept, asked) == ErrorCode.invalid_fetch_session_epoch


@given(data=st.data())
def test_a_client_knows_what_it_would_know_without_sessions(data: st.DataObject) -> None:
    server = Server()
    client = Client(server)
    for _ in range(data.draw(st.integers(1, 12))):
        for place in data.draw(st.sets(st.sampled_from(PLACES))):
            field, value = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 3)))
            server.logs[place][field] = value if field == 2 else server.logs[place][field] + value
        wanted = data.draw(st.sets(st.sampled_from(PLACES)))
        client.offsets = {place: client.offsets.get(place, 0) for place in sorted(wanted)}
        if client.offsets or client.session:
            client.exchange()


def test_session_errors_are_kafkas() -> None:
    kept = sessions()
    opened = kept.begin(request({("a", 0): 0}), 0, by_id=False)
    number = kept.finish(opened, Server().answer(opened), 0).session_id
    assert code_of(kept, request({}, 99, 1)) == ErrorCode.fetch_session_id_not_found
    assert code_of(kept, request({}, number, 2)) == ErrorCode.invalid_fetch_session_epoch
    refused = code_of(kept, request({}, number, 1), by_id=True)
    assert refused == ErrorCode.fetch_session_topic_id_error
    kept.begin(request({}, number, -1), 0, by_id=False)  # closes it
    assert code_of(kept, request({}, number, 1)) == ErrorCode.fetch_session_id_not_found
    assert (len(kept), kept.partitions) == (0, 0)


def test_an_answer_that_the_next_request_overtook_is_an_error() -> None:
    kept = sessions()
    opened = kept.begin(request({("a", 0): 0}), 0, by_id=False)
    number = kept.finish(opened, Server().answer(opened), 0).session_id
    parked = kept.begin(request({}, number, 1), 0, by_id=False)
    kept.begin(request({}, number, 2), 0, by_id=False)
    answer = kept.finish(parked, Server().answer(parked), 0)
    assert answer.error == ErrorCode.invalid_fetch_session_epoch
    assert answer.session_id == number


def test_what_was_told_last_is_read_last() -> None:
    kept, server = sessions(), Server()
    opened = kept.begin(request(dict.fromkeys(PLACES, 0)), 0, by_id=False)
    number = kept.finish(opened, server.answer(opened), 0).session_id
    server.logs["a", 1][0] = 9
    second = kept.begin(request({}, number, 1), 0, by_id=False)
    kept.finish(second, server.answer(second), 0)
    third = kept.begin(request({}, number, 2), 0, by_id=False)
    places = [(key, part.partition) for key, parts in third.topics for part in parts]
    assert places == [*(place for place in PLACES if place != ("a", 1)), ("a", 1)]


def test_sessions_are_bounded_and_stale_ones_make_room() -> None:
    kept, server = sessions(sessions_max=2), Server()

    def opens(now: float) -> int:
        context = kept.begin(request({("a", 0): 0}), now, by_id=False)
        return kept.finish(context, server.answer(context), now).session_id

    assert [opens(0), opens(1), opens(2)] == [1, 2, 0]
    kept.begin(request({}, 1, 1), 3, by_id=False)
    assert opens(1 + STALE_S) == 0
    assert opens(2 + STALE_S) == 3  # for the second, which was not used since
    assert code_of(kept, request({}, 2, 1)) == ErrorCode.fetch_session_id_not_found
    kept.begin(request({}, 1, 2), 4, by_id=False)


def test_partitions_are_bounded() -> None:
    """A session that outgrows the bound ends with an answer that tells all, and has no session."""
    kept, server = sessions(partitions_max=4), Server()
    many = kept.begin(request(dict.fromkeys(PLACES, 0)), 0, by_id=False)
    assert kept.finish(many, server.answer(many), 0).session_id == 0
    few = kept.begin(request(dict.fromkeys(PLACES[:3], 0)), 0, by_id=False)
    number = kept.finish(few, server.answer(few), 0).session_id
    assert (number, kept.partitions) == (1, 3)
    more = kept.begin(request(dict.fromkeys(PLACES, 0), number, 1), 0, by_id=False)
    answer = kept.finish(more, server.answer(more), 0)
    assert (answer.session_id, len(answer.topics)) == (0, len(PLACES))
    assert (len(kept), kept.partitions) == (0, 0)


def test_epochs_go_on_at_1() -> None:
    kept = sessions()
    opened = kept.begin(request({("a", 0): 0}), 0, by_id=False)
    number = kept.finish(opened, Server().answer(opened), 0).session_id
    kept._sessions[number].epoch = EPOCH_MAX
    kept.begin(request({}, number, EPOCH_MAX), 0, by_id=False)
    kept.begin(request({}, number, 1), 0, by_id=False)


# --- real nodes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 12])
def test_an_incremental_fetch_tells_what_has_changed(world: World, version: int) -> None:
    address = world.cluster.nodes[0].kafka
    assert address is not None
    name = f"topic-{uuid.uuid4()}"
    with Wire(address) as wire:
        metadata(wire, name, allow_auto_topic_creation=True)
        producer = KafkaProducer(bootstrap_servers=str(address))
        opened = wire.ask(FETCH, version, fetch_tree(name, 0, session_epoch=0))
        assert opened.session_id > 0
        assert len(opened.responses) == 1
        session = {"session_id": opened.session_id, "max_wait_ms": 100}
        nothing = fetch_tree(name, 0, **session, session_epoch=1) | {"topics": []}
        assert wire.ask(FETCH, version, nothing).responses == ()
        producer.send(name, b"news").get(PATIENCE_S)
        producer.close()
        wait = {"max_wait_ms": 10_000}
        told = wire.ask(FETCH, version, nothing | wait | {"session_epoch": 2})
        assert told.session_id == opened.session_id
        assert b"news" in told.responses[0].partitions[0].records
        again = wire.ask(FETCH, version, nothing | {"session_epoch": 2})
        assert (again.error_code, again.session_id) == (71, 0)


def test_kafka_python_reads_through_a_session(world: World) -> None:
    boot = world.cluster.client_config().kafka_bootstrap
    name = f"topic-{uuid.uuid4()}"
    address = world.cluster.nodes[0].kafka
    assert address is not None
    with Wire(address) as wire:
        topic = {"name": name, "num_partitions": 4, "replication_factor": 1}
        tree = {"topics": [topic | {"assignments": [], "configs": []}], "timeout_ms": 10_000}
        assert wire.ask(19, 4, tree | {"validate_only": False}).topics[0].error_code == 0
    producer = KafkaProducer(bootstrap_servers=boot)
    consumer = KafkaConsumer(bootstrap_servers=boot, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(name, index) for index in range(4)])
    found: list[tuple[int, bytes]] = []

    def reads(count: int) -> bool:
        for records in consumer.poll(200).values():
            found.extend((record.partition, record.value) for record in records)
        return len(found) >= count

    for number in range(12):
        producer.send(name, b"%d" % number, partition=number % 3).get(PATIENCE_S)
        wait_for(partial(reads, number + 1), "the record")
    assert found == [(number % 3, b"%d" % number) for number in range(12)]
    used = [handler.next_metadata for handler in consumer._fetcher._session_handlers.values()]
    assert any(metadata.session_id > 0 and metadata.epoch > 3 for metadata in used)
    consumer.close()
    producer.close()
