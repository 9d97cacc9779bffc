"""What is released: an sdist of all that git keeps, and a wheel made of it that works without it.

The environment has nothing of the checkout: Python, the wheel, and what it needs from elsewhere.
`make dist` does the same with a released commit, and takes that from the package index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest

from samelog import __version__
from tests import tiers

ROOT = Path(__file__).resolve().parent.parent
NAME = f"samelog-{__version__}"
MADE = {"PKG-INFO", "setup.cfg", "samelog.egg-info"}
INSTALL = ("install", "-q", "--no-deps", "--no-index")
BUILD = "from setuptools.build_meta import build_sdist; build_sdist('..')"
KERNELS = {
    "samelog/format/_kernels",
    "samelog/kafka/codec/primitives",
    "samelog/runtime/disk/_disk_threads",
    "samelog/runtime/network/_tls",
    "samelog/store/keys/_key_pages",
}
IMAGE = re.compile(r"""samelog:([0-9.]*[0-9])|(?:newTag|appVersion): "([^"]*)\"""")
TIMEOUT_S = 900


def run(*command: str | Path, where: Path) -> None:
    """Run a command that must succeed."""
    tiers.require("builds_packages")
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def kept() -> list[str]:
    """What git keeps or would, but for the links at the top."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    paths = done.stdout.decode().rstrip("\0").split("\0")
    return [path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory, builds_packages: None) -> Path:
    """Made from a copy, so that nothing that lies about gets into it."""
    source = tmp_path_factory.mktemp("dist") / "source"
    for path in kept():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, source / path)
    run(sys.executable, "-c", BUILD, where=source)
    return source.with_name(f"{NAME}.tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, sdist, where=sdist.parent)
    (found,) = sdist.parent.glob("*.whl")
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return BytesParser().parsebytes(archive.read(f"{NAME}.dist-info/METADATA"))


@pytest.mark.timeout(TIMEOUT_S)
def test_the_sdist_has_all_that_git_has(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [each.name.split("/", 1)[1] for each in archive if each.isfile()]
    assert {name for name in names if name.split("/")[0] not in MADE} == set(kept())


@pytest.mark.campaign
@pytest.mark.timeout(TIMEOUT_S)
def test_the_wheel_has_modules_data_and_stripped_kernels(wheel: Path) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith(NAME)}
        kernels = {name: archive.read(name) for name in names if name.endswith(".so")}
    ours = {path for path in kept() if path.startswith("samelog/") and path.endswith(".py")}
    stubs = {f"{name}.pyi" for name in KERNELS}
    data = {"samelog/py.typed", "samelog/kafka/codec/descriptions.json", "pyspark_samelog.py"}
    data |= {path for path in kept() if path.startswith("samelog/http/console/files/")}
    assert names == ours | stubs | data | set(kernels)
    assert set(kernels) == {name + suffix for name in KERNELS}
    assert not [name for name, code in kernels.items() if b".debug_info" in code]
    assert not [name for name, code in kernels.items() if b".symtab" in code]


@pytest.mark.campaign
@pytest.mark.timeout(TIMEOUT_S)
def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    found = metadata(wheel)
    assert (found["Name"], found["Version"]) == ("samelog", __version__)
    assert found["License-Expression"] == "Apache-2.0"
    assert found.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert "Typing :: Typed" in found.get_all("Classifier", [])
    page = str(found.get_payload())
    assert "](docs/" not in page, "such a link leads nowhere from a package index"
    assert "configuration (`docs/configuration.md`)" in page


@pytest.mark.campaign
@pytest.mark.usefixtures("starts_nodes")
@pytest.mark.timeout(TIMEOUT_S)
def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path, where=tmp_path)
    python = tmp_path / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, *INSTALL, wheel, where=tmp_path)
    (packages,) = tmp_path.glob("lib/python*/site-packages")
    # A path alone: the lines of its .pth files, which lead to the checkout, do not count.
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib") + os.linesep)
    run(python, ROOT / "scripts" / "try_wheel.py", where=tmp_path)


def test_images_and_chart_have_this_version() -> None:
    deploy = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in (*deploy, *(ROOT / "docs").glob("*.md"))]
    tags = [tag or other for text in texts for tag, other in IMAGE.findall(text)]
    assert len(tags) >= 5
    assert set(tags) == {__version__.rpartition(".")[0]}
    assert f"\nversion: {__version__}\n" in (ROOT / "deploy/helm/samelog/Chart.yaml").read_text()


def test_changes_are_listed_by_release() -> None:
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (\S+)", page, re.MULTILINE)
    assert found[-1] == "0.1.0"
    assert found[0] in ("Unreleased", __version__)
