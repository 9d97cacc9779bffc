"""Members of a group that keep their positions beside their results in PostgreSQL are killed: each
record has its result once. Skipped where PostgreSQL, or psycopg, is not installed.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.postgres import running

psycopg: Any = pytest.importorskip("psycopg", reason="psycopg is not here: pip install psycopg")
COUNT = 400
STORING = """
import sys
import psycopg
from samelog import Subscriber
from samelog.subscriber import PositionTable

config, directory, where = sys.argv[1:]
database = psycopg.connect(where)
positions = PositionTable(database, "g", parameter="%s")

def store(records):
    with database.transaction(), database.cursor() as cursor:
        rows = [(record.partition, record.offset) for record in records]
        cursor.executemany("INSERT INTO results VALUES (%s, %s)", rows)
        positions.advance(subscriber.in_hand())

subscriber = Subscriber("t", group="g", directory=directory, config=config, positions=positions)
with subscriber:
    subscriber.run(store, batch=7, throttle_s=0.01)
"""


def start_member(world: World, where: str, name: str) -> subprocess.Popen[str]:
    directory = str(world.directory / "subscribers" / name)
    code = [sys.executable, "-c", STORING, world.cluster.client_file, directory, where]
    return subprocess.Popen(code, text=True)


def stored(where: str) -> list[tuple[int, int]]:
    with psycopg.connect(where) as database:
        rows = database.execute("SELECT part, at FROM results").fetchall()
    return sorted(rows)


def has(where: str, count: int) -> bool:
    return len(stored(where)) >= count


def test_results_and_positions_in_one_transaction(brief: World) -> None:
    with running() as where:
        with psycopg.connect(where) as database:
            database.execute("CREATE TABLE results (part INTEGER, at INTEGER)")
        with brief.publisher("p", partitions=2) as publisher:
            for number in range(COUNT):
                publisher.append(b"%d" % number, partition=number % 2)
            publisher.wait_merged(PATIENCE_S)
        members = [start_member(brief, where, f"m{number}") for number in range(2)]
        wait_for(partial(has, where, 50), "some are stored")
        for number, killed in enumerate(members):
            killed.kill()
            killed.wait()
            members[number] = start_member(brief, where, f"n{number}")
        wait_for(partial(has, where, COUNT), "all are stored")
        for member in members:
            member.terminate()
            member.wait()
        assert stored(where) == sorted((n % 2, n // 2) for n in range(COUNT))
