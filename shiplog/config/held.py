"""What a client keeps of its configuration in a private directory of this host: certificates and
key as files, and the document that came from a URL last.

One directory for each place that a configuration comes from, so that processes with the same one
share it. All PEM files change at once: they are reached through a link that is swung, as Kubernetes
does with mounted secrets. Invariant: what is here was checked before, and nobody else can read it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from shiplog.config.document import Document, Text, absolute_place
from shiplog.config.types import ConfigError, TlsFiles
from shiplog.config.whole_files import replace_file

STATE_VARIABLE = "SHIPLOG_STATE_DIR"
PEM_FILES = {
    "ca_pem": "ca.pem",
    "cert_pem": "cert.pem",
    "key_pem": "key.pem",
    "crl_pem": "crl.pem",
}
"""Key of a configuration -> the name of its file."""
_LINK = "tls"
_PEM_PREFIX = "tls-"
_DOCUMENT = "last.json"
_LOCK = "lock"


class _Kept(msgspec.Struct):
    """The file of the last document."""

    place: str
    tag: str
    data: bytes


def held_files(place: str) -> TlsFiles:
    """Where the texts of a configuration are put; lists of what is revoked may come later, and go
    again. Raises ConfigError.
    """
    link = os.path.join(_directory(place), _LINK)
    ca, cert, key, crl = (os.path.join(link, name) for name in PEM_FILES.values())
    return TlsFiles(ca=ca, cert=cert, key=key, crl=crl, crl_may_lack=True)


def hold(document: Document) -> None:
    """Write what a checked document has for here. Raises ConfigError."""
    texts = {
        name: document.values[key].encode()
        for key, name in PEM_FILES.items()
        if key in document.values
    }
    text = document.text
    if not texts and not text.is_remote:
        return
    directory = _directory(text.place)
    try:
        with _private(directory):
            if texts:
                _put_texts(directory, texts)
            if text.is_remote:
                data = msgspec.json.encode(_Kept(text.place, text.tag, text.data))
                replace_file(os.path.join(directory, _DOCUMENT), data, 0o600)
    except OSError as error:
        raise ConfigError(_cannot(text.shown, directory, error.strerror or str(error))) from error


def read_kept(place: str) -> Text | None:
    """The document that came from a URL last, and could be used. Raises ConfigError."""
    path = os.path.join(_directory(place), _DOCUMENT)
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None
    return Text(place, found.data, found.tag) if found.place == place else None


def _directory(place: str) -> str:
    digest = hashlib.sha256(absolute_place(place).encode(errors="surrogateescape")).hexdigest()
    return os.path.join(_root(), "clients", digest[:32])


def _root() -> str:
    own = os.environ.get(STATE_VARIABLE)
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    root = own or os.path.join(base, "shiplog")
    if not os.path.isabs(root):
        raise ConfigError(f"{root}: not an absolute path; set {STATE_VARIABLE} to a directory")
    return root


def _cannot(place: str, directory: str, reason: str) -> str:
    remedy = f"set {STATE_VARIABLE} to a directory of this user's"
    return f"{place}: its certificates cannot be kept in {directory}: {reason}; {remedy}"


@contextmanager
def _private(directory: str) -> Iterator[None]:
    """The directory, made if need be, for this process alone for a moment. Raises OSError."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    status = os.stat(directory)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(0, "it is not this user's alone")
    with open(os.path.join(directory, _LOCK), "wb", opener=_open_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _put_texts(directory: str, texts: Mapping[str, bytes]) -> None:
    link = os.path.join(directory, _LINK)
    if _held(link) == texts:
        return
    fresh = tempfile.mkdtemp(dir=directory, prefix=_PEM_PREFIX)
    for name, data in texts.items():
        replace_file(os.path.join(fresh, name), data, 0o600)
    new = f"{fresh}.link"
    os.symlink(os.path.basename(fresh), new)
    os.replace(new, link)
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name.startswith(_PEM_PREFIX) and path != fresh:
            _remove(path)


def _remove(path: str) -> None:
    """What an older text, or a process that was killed, left."""
    if os.path.islink(path):
        os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _held(link: str) -> dict[str, bytes] | None:
    try:
        found = {}
        for name in os.listdir(link):
            with open(os.path.join(link, name), "rb") as file:
                found[name] = file.read()
    except OSError:
        return None
    return found
