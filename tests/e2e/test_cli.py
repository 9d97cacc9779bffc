"""The command line against a real cluster, as a user types it."""

from __future__ import annotations

import json
import subprocess

from samelog import Publisher
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World
from tests.patience import PATIENCE_S


def test_publish_subscribe_status_topic_and_verify(world: World) -> None:
    config = ("--config", world.cluster.client_file)
    where = str(world.directory / "pub")
    lines = "".join(f"line {number}\n" for number in range(1_000))
    published = as_json(
        "publish",
        *config,
        *("--topic", "lines", "--session", "s", "--dir", where, "--wait"),
        stdin=lines,
    )
    assert published["records"] == 1_000
    nowhere = samelog("publish", *config, "--topic", "lines", "--session", "s", stdin=lines)
    assert (nowhere.returncode, "Traceback" in nowhere.stderr) == (2, False)
    assert "--dir" in nowhere.stderr
    copy = str(world.directory / "sub")
    read = samelog(
        "subscribe",
        *config,
        *("--topic", "lines", "--dir", copy, "--from", "earliest", "--max", "1000"),
    )
    assert read.returncode == 0, read.stderr
    assert read.stdout == lines

    peek = ("peek", "lines", *config)
    assert samelog(*peek, "--max", "3").stdout == "line 0\nline 1\nline 2\n"
    assert samelog(*peek, "--last", "2").stdout == "line 998\nline 999\n"
    assert samelog(*peek, "--offset", "500", "--max", "1").stdout == "line 500\n"
    assert json.loads(samelog(*peek, "--last", "1", "--json").stdout)["offset"] == 999
    beyond = samelog(*peek, "--offset", "1000")
    assert (beyond.returncode, "from 0 to 1000" in beyond.stderr) == (1, True)
    assert samelog(*peek, "--grep", "e 9{2}.$", "--max", "2").stdout == "line 990\nline 991\n"
    assert samelog(*peek, "--last", "5", "--grep", "[78]$").stdout == "line 997\nline 998\n"
    assert samelog(*peek, "--at", "2001-01-01", "--max", "1").stdout == "line 0\n"
    assert samelog(*peek, "--at", "9001-01-01").returncode == 1
    unknown = samelog(*peek, "--key", "nobody")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    short = samelog(*peek, "--key", "nobody", "--timeout", "0.000001")
    assert (short.returncode, "--timeout" in short.stderr) == (1, True)
    assert samelog("peek", "none", *config).returncode == 1

    topics = as_json("topic", "list", *config)
    assert [topic["name"] for topic in topics] == ["lines"]
    described = as_json("topic", "describe", "lines", *config)
    assert described["partitions"][0]["end_offset"] == 1_000
    status = as_json("status", *config)
    assert len(status["nodes"]) == 3
    seen = as_json("top", "--once", "--every", "0.1", *config)
    assert (len(seen["nodes"]), seen["topics"][0]["records"]) == (3, 1_000)

    world.wait_offset(1_000, topic="lines")
    nodes = [node.data for node in world.cluster.nodes]
    verified = samelog("verify", *nodes, copy)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_records_of_all_versions_are_rows_of_one(single: World) -> None:
    config = ("--config", single.cluster.client_file)
    file = single.directory / "schema.json"

    def set_schema(*columns: str) -> subprocess.CompletedProcess[str]:
        fields = [dict(zip(("name", "type"), each.split(" "), strict=True)) for each in columns]
        file.write_text(json.dumps({"format": "json", "columns": fields}))
        return samelog("schema", "set", "t", str(file), *config)

    def publish(*values: bytes) -> None:
        with single.publisher("a") as publisher:
            for value in values:
                publisher.append(value)
            publisher.wait_merged(timeout=PATIENCE_S)

    publish(b'{"a":1}')
    assert set_schema("a int32").returncode == 0
    publish(b'{"a":2}', b"no json")
    assert set_schema("a string").returncode == 1
    assert set_schema("a int64", "b bool").returncode == 0
    publish(b'{"a":3,"b":true}')
    peeked = samelog("schema", "rows", "t", *config)
    assert peeked.returncode == 1
    assert [json.loads(line) for line in peeked.stdout.splitlines()] == [
        {"a": 1, "b": None},
        {"a": 2, "b": None},
        {"a": 3, "b": True},
    ]
    assert "offset 2, written with version 1, read with version 2" in peeked.stderr
    only = ("--offset", "1", "--max", "1", "--json")
    newest = samelog("schema", "rows", "t", *only, *config)
    assert (newest.returncode, json.loads(newest.stdout)) == (
        0,
        {"offset": 1, "row": {"a": 2, "b": None}},
    )
    where = samelog(*("schema", "rows", "t", "--where", "a > 1 AND b", "--columns", "a"), *config)
    assert [json.loads(line) for line in where.stdout.splitlines()] == [{"a": 3}]
    bad = samelog("schema", "rows", "t", "--where", "c = 1", *config)
    assert (bad.returncode, "there is no column 'c'" in bad.stderr) == (1, True)
    older = samelog("schema", "rows", "t", "--version", "9", *config)
    assert (older.returncode, "has 2 versions" in older.stderr) == (1, True)


def test_topics_are_created_and_deleted(single: World) -> None:
    config = ("--config", single.cluster.client_file)
    assert samelog("topic", "create", "t", *config, "--partitions", "3").returncode == 0
    again = samelog("topic", "create", "t", *config)
    assert again.returncode == 1
    assert "exists" in again.stderr
    assert as_json("topic", "describe", "t", *config)["topic"]["partitions"] == 3
    assert samelog("topic", "delete", "t", "--confirm", "t", *config).returncode == 0
    assert as_json("topic", "list", *config) == []


def test_a_deleted_topic_can_be_made_again_and_shares_nothing(single: World) -> None:
    config = ("--config", single.cluster.client_file)
    with single.publisher("a") as publisher:
        publisher.append(b"old")
        publisher.wait_merged(timeout=PATIENCE_S)
    assert samelog("topic", "delete", "t", "--confirm", "t", *config).returncode == 0
    with single.publisher("b") as publisher:
        publisher.append(b"new")
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in single.read(1, name="fresh")] == [b"new"]


def test_what_is_not_there_is_said(single: World) -> None:
    """A partition that the topic does not have is a wrong option; nobody waits in silence."""
    config = ("--config", single.cluster.client_file)
    session = (*config, "--session", "s", "--dir", str(single.directory / "pub"), "--wait")
    publish = ("publish", "--timeout", "30")
    assert samelog("topic", "create", "t", *config).returncode == 0
    refused = samelog(*publish, *session, "--topic", "t", "--partition", "3", stdin="x")
    assert refused.returncode == 2
    assert "partition 3 is not one of the 1 of topic 't'" in refused.stderr
    assert samelog(*publish, *session, "--topic", "t", stdin="y").returncode == 0
    copy = ("--dir", str(single.directory / "copy"), "--no-follow")
    unknown = samelog("subscribe", *config, *copy, "--topic", "other")
    assert unknown.returncode == 1
    assert "other" in unknown.stderr
    known = samelog("subscribe", *config, *copy, "--topic", "t")
    assert (known.returncode, known.stdout) == (0, "y\n")


def test_waiting_counts_the_records_of_earlier_runs(single: World) -> None:
    where = str(single.directory / "pub")
    with Publisher("t", session="s", directory=where) as publisher:
        publisher.append_many([b"%d" % number for number in range(100)])
    publish = ("publish", "--topic", "t", "--session", "s", "--dir", where, "--wait")
    done = samelog(*publish, "--config", single.cluster.client_file)
    assert done.returncode == 0, done.stderr
    assert "100 records merged (100 of them from earlier runs) in " in done.stderr
    assert [record.value for record in single.read(100)][-1] == b"99"
    more = as_json(*publish, "--config", single.cluster.client_file, stdin="a\nb\n")
    assert (more["records"], more["earlier_records"], more["merged"]) == (2, 0, True)


def test_a_session_whose_publisher_has_ended_is_not_open(single: World) -> None:
    config = ("--config", single.cluster.client_file)
    for name in ("a", "b", "c"):
        where = ("--dir", str(single.directory / "pub"), "--session", name)
        done = samelog("publish", *config, *where, "--topic", "t", "--wait", stdin="1\n2\n")
        assert done.returncode == 0, done.stderr
    assert [row["is_open"] for row in as_json("session", "list", *config)] == [False] * 3


def test_a_retired_session_can_be_taken_over(single: World) -> None:
    config = ("--config", single.cluster.client_file)
    with single.publisher("a", directory=str(single.directory / "one")) as publisher:
        publisher.append(b"first")
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [row["session"] for row in as_json("session", "list", *config)] == ["a"]
    assert samelog("session", "retire", "a", "--confirm", "a", *config).returncode == 0
    with single.publisher("a", directory=str(single.directory / "two")) as publisher:
        publisher.append(b"second")
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in single.read(2)] == [b"first", b"second"]


def test_verify_finds_a_difference(world: World) -> None:
    with world.publisher("a") as publisher:
        publisher.append_many([b"%d" % number for number in range(500)])
        publisher.wait_merged(timeout=PATIENCE_S)
    world.wait_offset(500)
    world.cluster.stop()
    nodes = [node.data for node in world.cluster.nodes]
    assert samelog("verify", *nodes).returncode == 0
    import os
    from pathlib import Path

    log = Path(nodes[1], "merged", "t-0", f"{0:020d}.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    os.sync()
    assert samelog("verify", *nodes).returncode == 1


def test_doctor_looks_at_a_running_cluster(single: World) -> None:
    node = single.cluster.nodes[0]
    looked = samelog("doctor", node.config_file, "--config", single.cluster.client_file, "--json")
    seen = {(each["of"], each["subject"]): each for each in json.loads(looked.stdout)["findings"]}
    failed = {subject for (_, subject), each in seen.items() if each["verdict"] == "failed"}
    assert failed <= {"fsync"}  # a busy machine's disk is slow
    assert looked.returncode == len(failed)
    for subject in ("ready", "certificate", "clock"):
        assert seen[(node.name, subject)]["verdict"] == "ok"
    for subject in ("versions", "archiving", "partitions"):
        assert seen[("cluster", subject)]["verdict"] == "ok", seen[("cluster", subject)]
    node.stop()
    gone = samelog("doctor", "--config", single.cluster.client_file, "--json")
    assert gone.returncode == 1
    answers = [each for each in json.loads(gone.stdout)["findings"] if each["subject"] == "answers"]
    assert [each["verdict"] for each in answers] == ["failed"]
