"""Fixtures for what has to hold for both kinds of TLS session."""

from __future__ import annotations

import pytest

from samelog.runtime.network import _tls
from samelog.runtime.network.tls_session import BioSession

Kind = type[_tls.Session] | type[BioSession]
KINDS: dict[str, Kind] = {"compiled": _tls.Session, "bio": BioSession}


@pytest.fixture(params=KINDS)
def session_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Have connections use this kind, as on a machine that has no other."""
    assert _tls.is_usable, "the fast kind works wherever this project is developed"
    monkeypatch.setattr(_tls, "is_usable", request.param == "compiled")
    return KINDS[request.param]
