"""Every feature with every client that has it; docs/kafka.md shows which (compatibility.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import World
from tests.kafka.clients import CLIENTS, PYTHON, Access, Rec, Writing, client_named
from tests.kafka.features import cells, each

COUNT = 100
NUMBERS = [Rec(b"%d" % number) for number in range(COUNT)]


def written(boot: str, topic: str, client: str, how: Writing) -> list[bytes]:
    """What a client reads of what it wrote."""
    access = Access(bootstrap=boot)
    client_named(client).write(access, topic, NUMBERS, how)
    return [record.value for record in client_named(client).read(access, topic, COUNT)]


@pytest.mark.parametrize(("client", "acks"), cells("produce: acks ", "0", "1", "all"))
def test_acks(boot: str, topic: str, client: str, acks: str) -> None:
    assert written(boot, topic, client, Writing(acks=acks)) == [each.value for each in NUMBERS]


@pytest.mark.parametrize(("client", "codec"), cells("produce: ", "gzip", "snappy", "lz4", "zstd"))
def test_codecs(boot: str, topic: str, client: str, codec: str) -> None:
    assert written(boot, topic, client, Writing(codec=codec)) == [each.value for each in NUMBERS]


@pytest.mark.parametrize("client", each(CLIENTS, "produce: idempotent"))
def test_idempotent(boot: str, topic: str, client: str) -> None:
    found = written(boot, topic, client, Writing(idempotent=True))
    assert found == [each.value for each in NUMBERS]


@pytest.mark.parametrize("client", each(PYTHON, "produce: the leader is killed"))
def test_the_leader_is_killed(world: World, boot: str, topic: str, client: str) -> None:
    leader = world.leader()
    values = [b"%d" % number for number in range(600)]

    def meanwhile() -> Iterator[Rec]:
        for value in values:
            yield Rec(value)
            if value == b"300":
                leader.kill()

    try:
        access = Access(bootstrap=boot)
        client_named(client).write(access, topic, meanwhile(), Writing(idempotent=True))
    finally:
        leader.start()
        world.wait_live(leader)
    assert [each.value for each in client_named(client).read(access, topic, 600)] == values


@pytest.mark.smoke
@pytest.mark.parametrize("client", each(PYTHON, "records: keys, headers, timestamps"))
def test_records(boot: str, topic: str, client: str) -> None:
    access = Access(bootstrap=boot)
    records = [
        Rec(b"value", b"key", 1_234_567, (("h", b"1"), ("h", b"2"))),
        Rec(b"", b"", 1_234_568),
        Rec(b"no key", None, 1_234_569),
    ]
    client_named(client).write(access, topic, records, Writing())
    assert client_named(client).read(access, topic, 3) == records


@pytest.mark.parametrize("client", each(CLIENTS, "consume: seek"))
def test_seek(boot: str, topic: str, client: str) -> None:
    access = Access(bootstrap=boot)
    client_named("confluent-kafka").write(access, topic, NUMBERS, Writing())
    for place in (40, 7, 99):
        (found,) = client_named(client).read(access, topic, 1, start=place)
        assert found.value == b"%d" % place


@pytest.mark.parametrize("client", each(CLIENTS, "consume: by timestamp"))
def test_by_timestamp(boot: str, topic: str, client: str) -> None:
    access = Access(bootstrap=boot)
    records = [Rec(b"v", timestamp=1000 + number) for number in range(COUNT)]
    client_named("confluent-kafka").write(access, topic, records, Writing())
    assert client_named(client).place(access, topic, 1050) == 50


@pytest.mark.parametrize("client", each(PYTHON, "groups: commits with metadata"))
def test_commits(boot: str, topic: str, client: str) -> None:
    client_named("confluent-kafka").write(Access(bootstrap=boot), topic, NUMBERS, Writing())
    found = PYTHON[client].commit(Access(bootstrap=boot), topic, 17, "a note")
    assert found == (17, "a note")
