"""Command line: python -m tests.interop [CLIENT…] [--record] [--keep]. CLIENT: what `make interop`
has built, go or java-4.3.1 for example; all of it by default.

The exit code is 0 if every client that is to be tried ran, and showed every feature that it has.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from samelog.cli.local_cluster import LocalCluster
from tests.interop.results import RESULTS, Client, missing
from tests.interop.run import BUILT, CLIENTS, Runner, wait_newest
from tests.kafka.features import FEATURES
from tests.kafka.secure import Secure


def say(text: str) -> None:
    """One line of data."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show(clients: Sequence[Client]) -> None:
    """The table, and what went wrong below."""
    say(f"{'':36} " + "  ".join(f"{client.title:26}" for client in clients))
    for feature in FEATURES:
        words = (client.word(feature) for client in clients)
        say(f"{feature:36} " + "  ".join(f"{word:26}" for word in words))
    for client in clients:
        for feature, why in client.failed.items():
            say(f"{client.title}: {feature}: {why}")


def parse() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description="Kafka clients in other languages.")
    parser.add_argument("client", nargs="*", help=f"of {', '.join(CLIENTS)}; all by default")
    parser.add_argument(
        "--record", action="store_true", help=f"write {RESULTS.name} if all is well"
    )
    parser.add_argument("--keep", action="store_true", help="keep the cluster's files")
    return parser.parse_args()


def run(names: Sequence[str], *, keep: bool) -> list[Client]:
    """Each client, one after the other, against one cluster."""
    path = Path(tempfile.mkdtemp(prefix="interop-"))
    try:
        with LocalCluster(str(path / "cluster")) as cluster:
            cluster.prepare()
            secure = Secure(cluster, path)
            cluster.start()
            wait_newest(cluster)
            return [Runner(secure, name).run() for name in names]
    finally:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)


def main() -> int:
    """Run what was asked for."""
    options = parse()
    names = options.client or list(CLIENTS)
    absent = [name for name in names if not (BUILT / name).is_dir()]
    for name in absent:
        sys.stderr.write(f"{name} is not built: `make interop` says why\n")
    clients = run([name for name in names if name not in absent], keep=options.keep)
    show(clients)
    gaps = [f"{client.title}: {gap}" for client in clients for gap in missing(client)]
    for gap in gaps:
        say(gap)
    is_good = not absent and not gaps and not any(client.failed for client in clients)
    if options.record and is_good:
        tables = [client.as_dict() for client in clients]
        RESULTS.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
