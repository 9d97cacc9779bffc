"""`samelog ui`: it prints a link, serves who has it, and ends when it is asked to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from samelog.admin.views import Whoami
from tests.cli.fake_nodes import FakeCluster
from tests.patience import PATIENCE_S


def test_the_link_that_is_printed_shows_the_cluster(tmp_path: Path) -> None:
    with FakeCluster(tmp_path) as cluster:
        for node in cluster.nodes:
            node.answer = lambda _: Whoami("fake", "n0", "0", "samelog://admin/test", True)
        command = ["ui", "--port", "0", "--config", cluster.client_file]
        with subprocess.Popen(
            [sys.executable, "-m", "samelog", *command], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            check(process.stdout.readline().strip())
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0


def check(link: str) -> None:
    """With the link, and without it."""
    base = link.partition("/login")[0]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{base}/whoami", timeout=PATIENCE_S)
    jar = urllib.request.HTTPCookieProcessor(CookieJar())
    asked = urllib.request.build_opener(jar)
    with asked.open(link, timeout=PATIENCE_S) as page:
        assert b"samelog" in page.read()
    with asked.open(f"{base}/whoami", timeout=PATIENCE_S) as answer:
        assert json.load(answer)["node"] == "n0"
    for path in ("/whoami", "/ui", "/ui/dom.js"):
        head = urllib.request.Request(base + path, method="HEAD")
        with asked.open(head, timeout=PATIENCE_S) as answer:
            assert (answer.status, answer.read()) == (200, b"")


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with FakeCluster(tmp_path, count=1) as cluster:
        taken = str(cluster.nodes[0].address.port)
        command = ["ui", "--port", taken, "--config", cluster.client_file]
        ended = subprocess.run(
            [sys.executable, "-m", "samelog", *command], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 1
        assert "choose another --port" in ended.stderr
