"""All that a client needs as one file: where the cluster is, and a certificate, as texts.

Invariant: what is written can be loaded; it is written whole, for its owner alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from samelog.config.document import ConfigDocument, ConfigText, parse_toml
from samelog.config.load import client_config
from samelog.config.pki.authority import AUTHORITY, CRL, CertificateRole, PkiError, files_of, issue
from samelog.config.pki.secret_files import replace_file
from samelog.config.schema.kinds import PlainValue
from samelog.config.schema.render import toml_lines
from samelog.config.tables.client import CLIENT_FILE
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
    data = _head(enrolment) + "".join(f"{key} = '''\n{pem}'''\n" for key, pem in texts.items())
    if enrolment.topics:
        data += "\n[subscriber]\n" + toml_lines({"topics": [*enrolment.topics]})
    _check(out, data)
    try:
        replace_file(out, data.encode(), 0o600)
    except OSError as error:
        raise PkiError(f"{out}: can't be written: {error.strerror}") from error


def _head(enrolment: Enrolment) -> str:
    values: dict[str, PlainValue] = {
        "nodes": [*enrolment.nodes],
        "node_names": [*enrolment.node_names],
        "cluster": enrolment.cluster,
        "kafka_bootstrap": enrolment.kafka_bootstrap,
    }
    return toml_lines({key: value for key, value in values.items() if value})


def _check(out: str, data: str) -> None:
    """As whoever fetches it would. Raises ConfigError."""
    text = ConfigText("https://enrolment/", data.encode())
    try:
        client_config(ConfigDocument(text, CLIENT_FILE, parse_toml(text)))
    except ConfigError as error:
        raise ConfigError(str(error).replace(text.shown, out, 1)) from error


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise PkiError(f"{path}: can't be read: {error}") from error
