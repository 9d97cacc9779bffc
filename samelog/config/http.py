"""Where a node or a sidecar answers HTTP: [http], [publisher.http] and [subscriber.http].

Invariant: nothing is answered without mutual TLS beyond this host.
"""

from __future__ import annotations

from samelog.config.pki.files import load_tls
from samelog.config.table import Table
from samelog.config.tables.shared import HttpConfig, HttpSecurity
from samelog.config.values import is_loopback


def load_http(table: Table, key: str = "http") -> HttpConfig | None:
    """The table `key` inside `table`; None where there is none. Raises ConfigError."""
    if not table.has(key):
        return None
    known = table.table(key)
    listen = known.address("listen")
    security = known.choice("security", HttpSecurity)
    if security is HttpSecurity.PLAINTEXT and not is_loopback(listen):
        reason = f"{listen} is not a loopback address, and nothing protects plaintext: choose "
        raise known.error("security", reason + 'security = "mtls", or listen on 127.0.0.1')
    tls = load_tls(known.table("tls")) if known.has("tls") else None
    return HttpConfig(listen=listen, security=security, tls=tls)
