"""Where the user's inotify instances are all taken, everything goes on by polling, and says so.

The kernel itself refuses them: in a user namespace, the limit can be set to none.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from samelog.runtime import inotify, watch
from samelog.runtime.inotify import Inotify, open_or_warn
from samelog.subscriber import Subscriber
from tests.patience import PATIENCE_S
from tests.runtime.peers import in_loop, until
from tests.subscriber.merged import Growing, numbers

NONE_LEFT = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
WATCHES = """
    import asyncio, logging, sys
    from samelog.runtime.watch import FileWatch

    async def main():
        logging.basicConfig(format="%(message)s")
        changed = asyncio.Event()
        watch = FileWatch([sys.argv[1]], changed.set)
        with open(sys.argv[1], "w") as file:
            file.write("new")
        await changed.wait()
        watch.close()

    asyncio.run(main())
"""


@pytest.fixture
def none_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> inotify.Inotify:
        raise OSError(24, "Too many open files", "inotify_init1")

    monkeypatch.setattr(inotify.Inotify, "__init__", lambda self: refused())
    monkeypatch.setattr(watch, "Observer", refused)
    monkeypatch.setattr(watch, "POLL_S", 0.05)


def test_the_warning_names_the_limit(none_left: None, caplog: pytest.LogCaptureFixture) -> None:
    assert open_or_warn(Inotify) is None
    assert "fs.inotify.max_user_instances" in caplog.text


def test_files_are_polled(
    none_left: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, calls = tmp_path / "cert.pem", list[int]()
    path.write_text("old")

    async def main() -> None:
        watched = watch.FileWatch([str(path)], lambda: calls.append(1), settle_s=0.01)
        path.write_text("a new one")
        await until(lambda: calls)
        watched.close()

    in_loop(main)
    assert "fs.inotify.max_user_instances" in caplog.text


def test_a_subscriber_reads_what_comes(none_left: None, tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    with Subscriber("t", directory=tmp_path) as subscriber:
        for number in range(3):
            growing.count(number, number + 1)
            record = subscriber.poll(PATIENCE_S)
            assert record is not None
            assert record.value == numbers(number, number + 1)[0]


def test_a_missing_directory_is_still_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        watch.FileWatch([str(tmp_path / "nowhere" / "cert.pem")], lambda: None)

    with pytest.raises(FileNotFoundError):
        in_loop(main)


def test_the_kernels_refusal_is_understood(tmp_path: Path) -> None:
    program = [sys.executable, "-c", textwrap.dedent(WATCHES), str(tmp_path / "cert.pem")]
    inside = ["unshare", "--user", "--map-root-user", "sh", "-c", NONE_LEFT, "sh"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    done = subprocess.run(
        [*inside, *program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert "fs.inotify.max_user_instances" in done.stderr
