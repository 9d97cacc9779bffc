"""Changes of small files are noticed, however they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samelog.runtime.watch import FileWatch, watched_directories
from tests.patience import PATIENCE_S


class Mounted:
    """A volume of Kubernetes: files are links through `..data`, which swings to a new directory."""

    def __init__(self, directory: Path, *names: str) -> None:
        self._directory = directory
        self._names = names
        self._count = 0
        directory.mkdir()
        self.write("first")
        for top in {name.split("/")[0] for name in names}:
            (directory / top).symlink_to(Path("..data") / top)

    def write(self, text: str) -> None:
        """Replace all files at once, and remove the old ones."""
        data = self._directory / "..data"
        old = data.resolve() if data.exists() else None
        self._count += 1
        new = self._directory / f"..{self._count}"
        for name in self._names:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_text(text)
        beside = self._directory / "..data_tmp"
        beside.symlink_to(new.name)
        beside.replace(data)
        if old is not None:
            for path in sorted(old.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            old.rmdir()


@contextmanager
def watching(path: Path, found: list[str]) -> Iterator[asyncio.Event]:
    """Each change, and what the file holds then."""
    changed = asyncio.Event()

    def look() -> None:
        found.append(path.read_text())
        changed.set()

    watch = FileWatch([str(path)], look, settle_s=0.01)
    try:
        yield changed
    finally:
        watch.close()


@pytest.mark.parametrize("name", ["tls.crt", "rt-sequencer-0/tls.crt"])
def test_a_mounted_secret_is_followed_every_time(tmp_path: Path, name: str) -> None:
    volume = Mounted(tmp_path / "volume", name)
    path = tmp_path / "volume" / name

    async def follow() -> None:
        found: list[str] = []
        with watching(path, found) as changed:
            for text in ("second", "third", "fourth"):
                volume.write(text)
                async with asyncio.timeout(PATIENCE_S):
                    while text not in found:
                        await changed.wait()
                        changed.clear()

    asyncio.run(follow())


def test_plain_files_take_one_directory(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    assert watched_directories(paths) == [str(tmp_path)]
