"""Debezium's embedded engine on PostgreSQL, killed in its work and started again: a part of
`make interop`.

How far it has come is in a compacted topic. The topic of the table has each row's newest version
behind all older ones, and nothing else once it is compacted: deleted rows end with tombstones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.maven import DEBEZIUM
from samelog.cli.local_cluster import HOST, free_ports
from tests.e2e.harness import World, wait_for
from tests.interop.program import Program, java, properties
from tests.patience import PATIENCE_S

SOURCE = Path(__file__).parent / "debezium" / "Changes.java"
INSTALLED = Path("/usr/lib/postgresql")
USER = "postgres"
TABLE = "orders"
TOPIC = f"shop.public.{TABLE}"
ROWS = 300
SETTINGS = {
    "name": "changes",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "topic.prefix": "shop",
    "plugin.name": "pgoutput",
    "offset.storage": "org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
    "offset.storage.topic": "debezium-offsets",
    "offset.storage.partitions": 1,
    "offset.storage.replication.factor": -1,
    "offset.flush.interval.ms": 100,
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.01",
}

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]


class Database:
    """A server of the test's own."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self.port = free_ports(1)[0]
        self._binaries, self._files = binaries, directory / "files"
        self._user = USER if os.getuid() == 0 else None
        """It refuses to be run by root."""
        if self._user is not None:
            shutil.chown(directory, USER)
        made = [str(binaries / "initdb"), "-D", str(self._files), "-U", USER, "-A", "trust"]
        subprocess.run(made, cwd=directory, user=self._user, check=True, capture_output=True)
        told = {"wal_level": "logical", "listen_addresses": HOST, "port": self.port}
        self.server = Program(
            directory,
            "server",
            [
                *(str(binaries / "postgres"), "-D", str(self._files), "-k", str(directory)),
                *(word for name, value in told.items() for word in ("-c", f"{name}={value}")),
            ],
            user=self._user,
        )

    def says(self, query: str) -> str | None:
        """What the server answers; None if it does not."""
        command = [str(self._binaries / "psql"), "-h", HOST, "-p", str(self.port), "-U", USER]
        ran = subprocess.run(
            [*command, "-At", "-c", query], capture_output=True, text=True, check=False
        )
        return None if ran.returncode else ran.stdout.strip()

    def do(self, *queries: str) -> None:
        """Change something."""
        for query in queries:
            assert self.says(query) is not None, query

    def rows(self) -> dict[int, int]:
        """The table."""
        lines = (self.says(f"SELECT id, amount FROM {TABLE}") or "").splitlines()
        return {int(key): int(value) for key, value in (line.split("|") for line in lines)}


@pytest.fixture
def database() -> Iterator[Database]:
    found = sorted(INSTALLED.glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not here: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="database-") as directory:
        made = Database(found[-1].parent, Path(directory))
        with made.server:
            made.server.wait(lambda: made.says("SELECT 1") == "1", "answers")
            made.do(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, amount INT)")
            yield made


def engine(world: World, database: Database) -> Program:
    told = {
        **SETTINGS,
        "bootstrap.servers": world.cluster.client_config().kafka_bootstrap,
        "database.hostname": HOST,
        "database.port": database.port,
        "database.user": USER,
        "database.password": USER,
        "database.dbname": USER,
        "table.include.list": f"public.{TABLE}",
    }
    file = properties(world.directory / "changes.properties", told)
    return Program(world.directory, "changes", java(DEBEZIUM, str(SOURCE), str(file)))


class Copy:
    """What the topic says of the table, read from its beginning."""

    def __init__(self, boot: str) -> None:
        reader = Consumer(
            {"bootstrap.servers": boot, "group.id": "none", "enable.partition.eof": True}
        )
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        self.rows: dict[int, int] = {}
        self.records = 0
        is_end = False
        while not is_end:
            for message in reader.consume(1000, 0.5):
                is_end = message.error() is not None
                if not is_end:
                    self._take(message.key() or b"", message.value())
        reader.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        self.records += 1
        row = json.loads(key)["payload"]["id"]
        after = None if value is None else json.loads(value)["payload"]["after"]
        if after is None:
            self.rows.pop(row, None)
        else:
            self.rows[row] = after["amount"]


def test_the_topic_has_the_table(world: World, database: Database) -> None:
    boot = world.cluster.client_config().kafka_bootstrap
    admin = AdminClient({"bootstrap.servers": boot})
    (made,) = admin.create_topics([NewTopic(TOPIC, 1, config=COMPACTED)]).values()
    made.result(PATIENCE_S)
    insert = f"INSERT INTO {TABLE} SELECT n, n FROM generate_series({{}}, {{}}) n"
    database.do(insert.format(1, ROWS))

    def is_same() -> bool:
        return Copy(boot).rows == database.rows()

    with engine(world, database) as program:
        program.wait(is_same, "the table as it was")
        database.do(insert.format(ROWS + 1, 2 * ROWS), f"UPDATE {TABLE} SET amount = -id")
        program.kill()
        database.do(f"DELETE FROM {TABLE} WHERE id % 3 = 0", f"UPDATE {TABLE} SET amount = 7 * id")
        program.start()
        program.wait(is_same, "what changed while it was away")
        leader = world.leader()
        leader.kill()
        database.do(f"DELETE FROM {TABLE} WHERE id % 5 = 0")
        program.wait(is_same, "what changed without a node")
        leader.start()
        world.wait_live(leader)
    written = 7 * ROWS
    wait_for(lambda: Copy(boot).records < written // 2, "the topic is compacted")
    assert is_same()
