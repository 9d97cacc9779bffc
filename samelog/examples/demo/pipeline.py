"""The demo's last part: the pipeline `flights`, run as its user would, on the demo's cluster.

Invariant: the pipeline's process is ended here, whatever happens; why it failed is part of the
report, and nothing else of the demo fails with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from samelog import Publisher
from samelog.examples.flights.data import TOPIC, WEATHER, load_weather

TIMEOUT_S = 600.0
MERGE_TIMEOUT_S = 60.0


def publish_weather(config: str, directory: str) -> None:
    """Publish the weather, and wait until it is merged. Raises DataMissing, PublisherError."""
    weather = load_weather()
    with Publisher(WEATHER, session="weather", directory=directory, config=config) as publisher:
        publisher.append_many(weather.values, keys=weather.keys, timestamps=weather.timestamps_ms)
        publisher.wait_merged(timeout=MERGE_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A run of the pipeline: paths of a client.toml, of its lake, and of the picture."""

    config: str
    lake: str
    picture: str

    def run(self, log_file: str) -> dict[str, Any]:
        """Its report, as `--json` gives it; or `error`, why there is none."""
        options = {
            "config": self.config,
            "path": self.lake,
            "flights": TOPIC,
            "weather": WEATHER,
            "picture": self.picture,
        }
        told = [part for key, value in options.items() for part in (f"--{key}", value)]
        command = [sys.executable, "-m", "samelog", "pipeline", "run", "flights", "--json", *told]
        with open(log_file, "w+", encoding="utf-8") as log:
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=log, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return {"error": f"the pipeline did not end within {TIMEOUT_S:.0f} s"}
            log.seek(0)
            if done.returncode != 0:
                return {"error": _reason(log.read())}
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def _reason(text: str) -> str:
    """What the command said last."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("samelog: ") if lines else "the pipeline said nothing"
