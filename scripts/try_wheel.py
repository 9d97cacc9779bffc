"""Try samelog as it is installed where this runs: three nodes take a thousand records and give them
back, by the command line alone. Fails with the first command that does.

    python scripts/try_wheel.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

KERNELS = [
    "samelog.format._kernels",
    "samelog.kafka.codec.primitives",
    "samelog.runtime.disk._disk_threads",
    "samelog.runtime.network._tls",
    "samelog.store.keys._key_pages",
]
METADATA = 3
RECORDS = "".join(f"{number}\n" for number in range(1000))
COMMAND = Path(sys.executable).with_name("samelog")


def samelog(directory: Path, *arguments: str, given: str = "") -> str:
    """What a command prints."""
    environment = os.environ | {"SAMELOG_CONFIG": str(directory / "cluster" / "client.toml")}
    done = subprocess.run(
        [str(COMMAND), *arguments],
        cwd=directory,
        env=environment,
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def check_files() -> None:
    """What is not a module of Python: data and compiled code."""
    from samelog.kafka.codec.descriptions import structure_of

    for kernel in KERNELS:
        import_module(kernel)
    assert files("samelog").joinpath("py.typed").is_file()
    assert structure_of("request", METADATA, 12).is_flexible


def check_cluster(directory: Path) -> None:
    """Three nodes, a publisher and a subscriber."""
    samelog(directory, "up", "--dir", "cluster", "--detach")
    try:
        publish = ("publish", "--topic", "numbers", "--session", "s", "--dir", "publisher")
        samelog(directory, *publish, "--wait", given=RECORDS)
        subscribe = ("subscribe", "--topic", "numbers", "--dir", "subscriber", "--no-follow")
        assert samelog(directory, *subscribe) == RECORDS
        nodes = sorted(str(path) for path in directory.glob("cluster/rt-sequencer-*/data"))
        assert len(nodes) == 3
        samelog(directory, "verify", *nodes, str(directory / "subscriber"))
    finally:
        samelog(directory, "down", "--dir", "cluster")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        assert samelog(Path(name), "--version") == f"samelog {version('samelog')}\n"
        check_files()
        check_cluster(Path(name))
    print("try_wheel: works")
