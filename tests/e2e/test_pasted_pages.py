"""Pages of typed topics, groups, events, sites and mirrors, pasted into a shell beside real
clusters: their blocks, in order, as they stand.

Directories are below the test's, and what follows for ever ends with what is there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from samelog.config.schema.render import to_toml
from tests import tiers
from tests.e2e.harness import World, wait_for
from tests.e2e.mirroring import two_clusters
from tests.e2e.test_readme import outside_make
from tests.patience import PATIENCE_S
from tests.typed.registries import running

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 240.0


def blocks(page: str, language: str) -> list[str]:
    """A page's blocks of a language, each command on one line."""
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8").replace("\\\n", "")
    return [textwrap.dedent(body) for kind, body in BLOCK.findall(text) if kind == language]


class Shell:
    """A directory with a `client.toml`, in which blocks are pasted."""

    def __init__(self, world: World, **changes: str) -> None:
        self.directory = world.directory / "shell"
        self.directory.mkdir(parents=True)
        self._changes = {"/var/lib/": f"{self.directory}/", **changes}
        client = to_toml(world.cluster.client_config())
        (self.directory / "client.toml").write_text(client, "utf-8")

    def changed(self, text: str) -> str:
        """With the directories of this test."""
        for old, new in self._changes.items():
            text = text.replace(old, new)
        return re.sub(r"^samelog subscribe .*$", r"\g<0> --no-follow", text, flags=re.MULTILINE)

    def paste(self, block: str) -> str:
        """What the commands print, all of which have to succeed."""
        return self._run(["bash", "-e", "-c", self.changed(block)])

    def python(self, block: str, before: str = "", behind: str = "") -> str:
        """The same of Python, between lines that the page takes for granted."""
        program = "\n".join([before, self.changed(block), behind])
        return self._run([str(ROOT / ".venv/bin/python"), "-c", program])

    def _run(self, command: list[str]) -> str:
        tiers.require("pastes_pages")
        path = f"{ROOT}/.venv/bin:{os.environ['PATH']}"
        ended = subprocess.run(
            command,
            cwd=self.directory,
            env={**outside_make(), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


IMPORTS = "from samelog import Publisher, Subscriber\nconfig = 'client.toml'"


def publish(shell: Shell, topic: str, text: str, config: str = "--config client.toml") -> None:
    options = f"--topic {topic} --session {topic}-{text} --dir p --wait {config}"
    shell.paste(f"echo {text} | samelog publish {options}")


@pytest.mark.usefixtures("pastes_pages")
def test_typed_topics(single: World) -> None:
    with running() as registry:
        shell = Shell(single, **{"http://registry.example:8081": registry.url})
        schema = blocks("typed", "json")[0]
        set_it, look, with_registry = blocks("typed", "console")
        (shell.directory / "ticks.json").write_text(schema, "utf-8")
        shell.paste("samelog topic create ticks --config client.toml")
        assert "price" in shell.paste(set_it)
        rows, with_ids, handler = blocks("typed", "python")
        assert "AAPL 189.7" in shell.python(rows, IMPORTS)
        assert "189.7" in shell.paste(look)
        called = "subscriber.close(); print(rows.to_pylist()[0]['price'])"
        begin = f"{IMPORTS}\nsubscriber = Subscriber('ticks', directory='h', config=config)\n"
        begin += f"def store(rows):\n    {called}\n"
        assert "189.7" in shell.python(handler, begin)
        avro = schema.replace('"json"', '"avro"')
        (shell.directory / "avro.json").write_text(avro, "utf-8")
        shell.paste("samelog topic create orders --config client.toml")
        shell.paste("samelog schema set orders avro.json --config client.toml")
        assert "189.7" in shell.python(with_ids, IMPORTS, "print(table.to_pylist())")
        for command in with_registry.splitlines():
            assert "189.7" in shell.paste(command), command


@pytest.mark.usefixtures("pastes_pages")
def test_groups_of_subscribers(single: World) -> None:
    shell = Shell(single)
    shell.paste("samelog topic create trades --config client.toml")
    publish(shell, "trades", "one")
    plain, exactly_once = blocks("subscriber-groups", "python")
    table = "import sqlite3\nsqlite3.connect('results.db').execute("
    table += "'CREATE TABLE results (partition, at, value)')"
    shell.python("", table)
    stop = "        subscriber.close()\n"
    once = exactly_once.replace("in_hand())\n", f"in_hand())\n{stop}")
    shown = "print(sqlite3.connect('results.db').execute('SELECT value FROM results').fetchall())"
    assert "one" in shell.python(once, behind=shown)
    store = "def store(records):\n    print(*(each.value for each in records))\n"
    store += "    if records[-1].value == b'two':\n        subscriber.close()\n"
    plain = plain.replace('as_="rows", ', "").replace("lib/billing", "lib/other")
    shell.paste("samelog group list --config client.toml")
    publish(shell, "trades", "two")
    assert "two" in shell.python(plain, store)
    said = shell.paste(blocks("subscriber-groups", "console")[0])
    assert "billing" in said


@pytest.mark.usefixtures("pastes_pages")
def test_events_as_a_topic(single: World) -> None:
    shell = Shell(single)
    assert "election" in shell.paste(
        blocks("events", "console")[0].replace("\nsamelog schema", "\nsleep 1; samelog schema")
    )


@pytest.mark.usefixtures("pastes_pages")
def test_a_second_site(single: World) -> None:
    shell = Shell(single, **{"HOST:PORT": "far.example:7000"})
    said = shell.paste(blocks("sites", "console")[0])
    assert re.search(r"nyc +.*", said), said


@pytest.mark.usefixtures("starts_nodes", "pastes_pages")
@pytest.mark.timeout(900)
def test_a_second_cluster(tmp_path: Path) -> None:
    with two_clusters(tmp_path) as pair:
        places = {
            "/etc/samelog/eu.toml": pair.source.cluster.client_file,
            "/etc/samelog/client.toml": pair.destination.cluster.client_file,
        }
        shell = Shell(pair.destination, **places)
        config = f"--config {pair.source.cluster.client_file}"
        for topic in ("ticks", "orders-7", "flights"):
            shell.paste(f"samelog topic create {topic} {config}")
            publish(shell, topic, topic, config)
        first, from_files = (blocks("mirror", "toml")[each] for each in (0, 2))
        Path(pair.config).write_text(shell.changed(first), "utf-8")
        with pair.sidecar():
            for topic in ("ticks", "orders-7"):
                pair.wait_mirrored(1, f"eu.{topic}")
            status = shell.paste(f"samelog mirror status --config {pair.config}")
            assert "eu.ticks" in status
            assert "eu.flights" not in status, "no pattern means it"
        shell.paste("samelog mirror promote 'eu.*' --confirm 'eu.*' --config client.toml")
        pair.source.cluster.nodes[0].stop()
        merged = Path(pair.source.cluster.nodes[0].data) / "merged"
        shutil.copytree(merged, shell.directory / "samelog/back")
        (shell.directory / "mirror.toml").write_text(shell.changed(from_files), "utf-8")
        run, promote = blocks("mirror", "console")[0].splitlines()[2:]
        assert "everything" in shell.paste(f"{run} 2>&1")
        shell.paste(promote.replace("--confirm NAME", "--confirm flights"))
        publish(shell, "flights", "more")
        read = "samelog subscribe --topic flights --dir r --config client.toml"
        wait_for(lambda: shell.paste(read).split() == ["flights", "more"], "both", PATIENCE_S)
