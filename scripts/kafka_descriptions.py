"""Write samelog/kafka/codec/descriptions.json from the descriptions in Kafka's own library:

    python scripts/kafka_descriptions.py kafka-clients-4.1.1.jar

One message a line, without comments and what only documents.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samelog.kafka.registry import ALL

TO = Path(__file__).resolve().parent.parent / "samelog" / "kafka" / "codec" / "descriptions.json"
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
KEPT = {
    *("apiKey", "type", "name", "validVersions", "flexibleVersions", "fields", "commonStructs"),
    *("versions", "nullableVersions", "taggedVersions", "tag", "default"),
}


def described(jar: Path) -> Iterator[dict[str, Any]]:
    """What is served, by key."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.match(r"common/message/.*\.json", name)]
        every = [json.loads(COMMENT.sub("", archive.read(name).decode())) for name in names]
    keys = {api.key for api in ALL}
    found = [each for each in every if each.get("apiKey") in keys and each["type"] != "data"]
    yield from sorted(found, key=lambda each: (each["apiKey"], each["type"]))


def kept(value: Any) -> Any:
    """Without what only documents."""
    if isinstance(value, list):
        return [kept(each) for each in value]
    if isinstance(value, dict):
        return {name: kept(each) for name, each in value.items() if name in KEPT}
    return value


if __name__ == "__main__":
    lines = [json.dumps(kept(each), separators=(",", ":")) for each in described(Path(sys.argv[1]))]
    TO.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
