"""Keys that more than one table has: PEM files, HTTP, the log."""

from __future__ import annotations

from samelog.config.schema import Key, Kind, Reload, Section
from samelog.config.tables.shared import HTTP_ADDRESS, HttpSecurity, LogLevel

TLS = {
    "ca": Key(
        kind=Kind.FILE,
        meaning="The authority's certificates, PEM; more than one while it changes",
        reload=Reload.CONTENTS,
    ),
    "cert": Key(
        kind=Kind.FILE, meaning="The own certificate, PEM, with its chain", reload=Reload.CONTENTS
    ),
    "key": Key(
        kind=Kind.FILE,
        meaning="Its private key, PEM, for nobody else to read (0600; 0640 if it is root's)",
        reload=Reload.CONTENTS,
    ),
    "crl": Key(
        kind=Kind.FILE,
        meaning="The authorities' revocation lists, PEM: who is on them is not let in",
        without="nobody is revoked",
        reload=Reload.CONTENTS,
    ),
}


def http_sections(name: str, who: str) -> tuple[Section, ...]:
    """A table where somebody answers HTTP, and its TLS."""
    keys = {
        "listen": Key(kind=Kind.ADDRESS, meaning="Where", default=str(HTTP_ADDRESS)),
        "security": Key(
            kind=Kind.CHOICE,
            meaning="`plaintext` only on loopback addresses",
            choices=HttpSecurity,
            default=HttpSecurity.PLAINTEXT,
        ),
    }
    without = f"Other PEM files than the {who}'s own, for HTTP (docs/rest.md)"
    return (
        Section(
            name=name,
            meaning=f"The {who} answers HTTP if this table is there: docs/rest.md",
            keys=keys,
        ),
        Section(name=f"{name}.tls", meaning=without, keys=TLS),
    )


def log_section(reload: Reload) -> Section:
    """What a process writes to stderr."""
    level = Key(
        kind=Kind.CHOICE,
        meaning="The least important lines that are written",
        choices=LogLevel,
        default=LogLevel.INFO,
        reload=reload,
    )
    return Section(name="log", meaning="What is written to stderr", keys={"level": level})
