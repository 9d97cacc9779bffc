"""`python -m tests.fuzz`: run targets for long, guided by coverage.

    python -m tests.fuzz --list
    python -m tests.fuzz --seconds 600 batches frames
    python -m tests.fuzz --replay crash-1a2b batches

Found inputs are kept in --corpus, crashes as `crash-<hash>` in the present directory. Without
atheris, the coverage-guided fuzzer, the same targets get random damage for the same time.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.damage import damaged

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

HAS_ATHERIS = importlib.util.find_spec("atheris") is not None


def main() -> int:
    """One process for each target, because the fuzzer never gives its own back."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n")[0]
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, if none is named")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--corpus", default="fuzz-corpus", help="directory of what was found")
    parser.add_argument("--replay", metavar="FILE", help="run one input through the targets")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the logs speak of every damage
    targets = _load(guided=options.inner and HAS_ATHERIS)
    unknown = set(options.targets) - targets.keys()
    if unknown:
        parser.error(f"unknown target {min(unknown)}; known are {', '.join(sorted(targets))}")
    chosen = options.targets or list(targets)
    if options.list:
        print("\n".join(targets))
    elif options.replay:
        for name in chosen:
            targets[name].run(Path(options.replay).read_bytes())
    elif options.inner:
        _fuzz(targets[chosen[0]], Path(options.corpus) / chosen[0], options.seconds)
    else:
        return max(_run(name, options.seconds, options.corpus) for name in chosen)
    return 0


def _load(*, guided: bool) -> dict[str, Target]:
    """The targets; what they test is watched for coverage if the fuzzer is to be guided."""
    if guided:
        import atheris

        with atheris.instrument_imports(include=["samelog"]):
            from tests.fuzz.targets import make_targets
    else:
        from tests.fuzz.targets import make_targets
    return make_targets()


def _run(name: str, seconds: float, corpus: str) -> int:
    command = [sys.executable, "-m", "tests.fuzz", "--inner", name]
    done = subprocess.run(
        [*command, "--seconds", str(seconds), "--corpus", corpus],
        check=False,
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        print(done.stdout)
    print(f"{name}: {'FAILED' if done.returncode else 'ok'}, {seconds:g} s", flush=True)
    return int(done.returncode != 0)


def _fuzz(target: Target, corpus: Path, seconds: float) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    if not HAS_ATHERIS:
        _damage_for(target, seconds)
        return
    import atheris

    arguments = [sys.argv[0], f"-max_total_time={int(seconds)}", "-max_len=65536", str(corpus)]
    atheris.Setup(arguments, target.run)
    atheris.Fuzz()


def _damage_for(target: Target, seconds: float) -> None:
    source = random.Random()
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        data = damaged(source, target.seeds)
        try:
            target.run(data)
        except BaseException:
            path = Path(f"crash-{abs(hash(data)):x}")
            path.write_bytes(data)
            print(f"the input is kept as {path}")
            raise


if __name__ == "__main__":
    sys.exit(main())
