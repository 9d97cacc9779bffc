"""What clients of other languages have shown, as it is kept for the table in docs/kafka.md."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.kafka.features import FEATURES

RESULTS = Path(__file__).parent / "results.json"
OK, FAILED, ABSENT = "ok", "FAILED", "-"


@dataclass(slots=True)
class Client:
    """One client, and what came of each feature that it tried."""

    name: str
    version: str = ""
    shown: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Why not, in the client's words."""

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}".strip()

    def take(self, said: dict[str, Any]) -> None:
        """A line of its output."""
        if "client" in said:
            self.name, self.version = said["client"], said["version"]
        elif said["ok"]:
            self.shown.append(said["feature"])
        else:
            self.failed[said["feature"]] = said["why"]

    def word(self, feature: str) -> str:
        """For a table."""
        if feature in self.failed:
            return FAILED
        return OK if feature in self.shown else ABSENT

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def missing(client: Client) -> list[str]:
    """Features that it neither showed nor failed, and that it made up."""
    tried = [*client.shown, *client.failed]
    gaps = [f"did not try {feature!r}" for feature in FEATURES if feature not in tried]
    return gaps + [f"no feature of ours: {name!r}" for name in tried if name not in FEATURES]


def recorded() -> list[Client]:
    """What was kept."""
    return [Client(**table) for table in json.loads(RESULTS.read_text(encoding="utf-8"))]
