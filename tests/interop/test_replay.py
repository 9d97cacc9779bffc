"""A consumer in Java reads `samelog replay serve`: a part of `make interop`. Left out where
`scripts/interop.sh` has not fetched kafka-tools.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.e2e.harness import World
from tests.interop.test_state_topics import FORMATTERS, TOOLS
from tests.kafka.test_replay import publish, replaying

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not list(TOOLS.glob("lib/kafka-tools-*.jar")), reason="kafka-tools is not fetched"
    ),
]


def test_a_java_consumer_reads_in_the_order_of_time(world: World, tmp_path: Path) -> None:
    topic = f"t-{uuid.uuid4()}"
    publish(world, topic, {0: [0, 40, 80], 1: [20, 60, 100]})
    with replaying(world, tmp_path, topic, "--speed", "10") as boot:
        command = [
            "java",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            f"{TOOLS}/lib/*",
            f"{FORMATTERS}.ConsoleConsumer",
            *("--bootstrap-server", boot, "--topic", topic, "--group", "java"),
            *("--from-beginning", "--max-messages", "6"),
        ]
        began = time.monotonic()
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        assert ran.stdout.split() == ["0", "20", "40", "60", "80", "100"], ran.stderr
        assert time.monotonic() - began >= 9
