"""All that a client needs as one file: where the cluster is, and a certificate, as texts.

Invariant: what is written can be loaded; it is written whole, for its owner alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from samelog.config.client_keys import CLIENT
from samelog.config.document import Document, Text, parse_toml
from samelog.config.load import client_config
from samelog.config.pki.authority import AUTHORITY, CRL, CertificateRole, PkiError, files_of, issue
from samelog.config.pki.files import replace_file
from samelog.config.render import toml_texts, toml_value
from samelog.config.values import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """What a client is told besides its certificate. `nodes`: each `host:port`, `node_names` of all
    of them or of none; `topics`: what it copies, if it is a subscriber.
    """

    cluster: str
    nodes: tuple[str, ...]
    node_names: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    kafka_bootstrap: str = ""


def enrol(
    directory: str, role: CertificateRole, name: str, enrolment: Enrolment, *, out: str, days: int
) -> None:
    """Write the file `out`, in the place of an older one. The certificate is the one of `directory`
    that the identity has, or a new one of so many days. Raises PkiError, ConfigError, InvalidName.
    """
    files = files_of(directory, role, name)
    if not os.path.exists(files.cert):
        issue(directory, role, name, days=days)
    texts = {
        "ca_pem": _read(os.path.join(directory, f"{AUTHORITY}.pem")),
        "cert_pem": _read(files.cert),
        "key_pem": _read(files.key),
    }
    lists = os.path.join(directory, CRL)
    if os.path.exists(lists):
        texts["crl_pem"] = _read(lists)
    data = "\n".join((*_lines(enrolment), *map(_text, *zip(*texts.items(), strict=True)), ""))
    if enrolment.topics:
        data += f"\n[subscriber]\ntopics = {toml_texts(enrolment.topics)}\n"
    _check(out, data)
    try:
        replace_file(out, data.encode(), 0o600)
    except OSError as error:
        raise PkiError(f"{out}: can't be written: {error.strerror}") from error


def _lines(enrolment: Enrolment) -> Iterable[str]:
    yield f"nodes = {toml_texts(enrolment.nodes)}"
    if enrolment.node_names:
        yield f"node_names = {toml_texts(enrolment.node_names)}"
    yield f"cluster = {toml_value(enrolment.cluster)}"
    if enrolment.kafka_bootstrap:
        yield f"kafka_bootstrap = {toml_value(enrolment.kafka_bootstrap)}"


def _text(key: str, pem: str) -> str:
    return f"{key} = '''\n{pem}'''"


def _check(out: str, data: str) -> None:
    """As whoever fetches it would. Raises ConfigError."""
    text = Text("https://enrolment/", data.encode())
    try:
        client_config(Document(text, CLIENT, parse_toml(text)))
    except ConfigError as error:
        raise ConfigError(str(error).replace(text.shown, out, 1)) from error


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise PkiError(f"{path}: can't be read: {error}") from error
