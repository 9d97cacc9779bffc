"""The metric of certificate files goes by what the process does with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.config.tables.shared import TlsFiles
from samelog.http.metrics import common
from samelog.runtime.errors import TlsFault
from samelog.runtime.network.expiry import OWN
from tests.runtime.pki import Authority


def test_a_fault_that_is_not_the_files_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = common.Certificates({OWN: Authority(tmp_path).node("n1")})

    def is_unusable() -> bool:
        [value] = [value for name, _, value in found.samples() if name.endswith("_unusable")]
        return bool(value)

    def hinder(files: TlsFiles, own: str | None) -> None:
        raise TlsFault("no descriptor")

    with monkeypatch.context() as hindered:
        hindered.setattr(common, "ReloadingContext", hinder)
        assert is_unusable()
    assert not is_unusable()
