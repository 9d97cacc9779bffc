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
from typing import NamedTuple

import msgspec

from samelog.config.document import ConfigDocument, ConfigText, absolute_place
from samelog.config.pki.secret_files import replace_file
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import ConfigError

STATE_VARIABLE = "SAMELOG_STATE_DIR"
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


class _LastDocument(msgspec.Struct):
    """The file of the last document."""

    place: str
    tag: str
    data: bytes


def pem_files_of(place: str) -> TlsFiles:
    """Where the texts of a configuration are put; lists of what is revoked may come later, and go
    again. Raises ConfigError.
    """
    link = os.path.join(_directory(place), _LINK)
    ca, cert, key, crl = (os.path.join(link, name) for name in PEM_FILES.values())
    return TlsFiles(ca=ca, cert=cert, key=key, crl=crl, crl_may_lack=True)


def save_client_state(document: ConfigDocument, *, is_running: bool = False) -> str:
    """Write what a checked document has for here, and remove what it has no use for. `is_running`:
    what may still be used by who runs by an older document stays. The reason why the document
    itself cannot be kept, if nothing else is wrong; else empty. Raises ConfigError.
    """
    if _needs_no_directory(document):
        return ""
    wanted = _wanted_contents(document)
    try:
        if not _is_up_to_date(wanted, is_running=is_running):
            with _locked(wanted.directory):
                _write(wanted, is_running=is_running)
    except OSError as error:
        reason = error.strerror or str(error)
        if not _can_run_unsaved(wanted):
            raise ConfigError(
                _cannot_keep(document.text.shown, wanted.directory, reason)
            ) from error
        return f"{document.text.shown}: cannot be kept in {wanted.directory}: {reason}"
    return ""


def restore_pem_files(document: ConfigDocument) -> None:
    """Write the texts of a document that was held before, if they are lost: another process may
    have put newer ones there by now. Raises ConfigError.
    """
    wanted = _wanted_contents(document)
    if not wanted.texts or (
        _texts_in(wanted.link) is not None and not _is_shared(wanted.directory)
    ):
        return
    try:
        with _locked(wanted.directory):
            if _texts_in(wanted.link) is None:
                _write_texts(wanted)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(_cannot_keep(document.text.shown, wanted.directory, reason)) from error


def last_document(place: str) -> ConfigText | None:
    """The document that came from a URL last, and could be used. Raises ConfigError."""
    return _last_document_in(_directory(place), place)


def _last_document_in(directory: str, place: str) -> ConfigText | None:
    try:
        with open(os.path.join(directory, _DOCUMENT), "rb") as file:
            found = msgspec.json.decode(file.read(), type=_LastDocument)
    except (OSError, msgspec.MsgspecError):
        return None
    return ConfigText(place, found.data, found.tag) if found.place == place else None


class _StateContents(NamedTuple):
    """What is to be in a directory: texts by the names of their files, and a URL's document."""

    directory: str
    texts: Mapping[str, bytes]
    text: ConfigText | None

    @property
    def link(self) -> str:
        return os.path.join(self.directory, _LINK)


def _needs_no_directory(document: ConfigDocument) -> bool:
    """Paths in a file: then only what it had here once could be removed, if there is a place."""
    if document.text.is_remote or any(key in document.values for key in PEM_FILES):
        return False
    try:
        return not os.path.isdir(_directory(document.text.place))
    except ConfigError:
        return True


def _wanted_contents(document: ConfigDocument) -> _StateContents:
    texts = {
        name: document.values[key].encode()
        for key, name in PEM_FILES.items()
        if key in document.values
    }
    text = document.text
    return _StateContents(_directory(text.place), texts, text if text.is_remote else None)


def _is_up_to_date(wanted: _StateContents, *, is_running: bool) -> bool:
    """Whether there is nothing to do. Raises OSError."""
    if not os.path.isdir(wanted.directory) or _is_shared(wanted.directory):
        return False
    return (
        _has_texts(wanted)
        and _has_document(wanted)
        and not _leftovers(wanted, is_running=is_running)
    )


def _has_texts(wanted: _StateContents) -> bool:
    return not wanted.texts or _texts_in(wanted.link) == wanted.texts


def _can_run_unsaved(wanted: _StateContents) -> bool:
    """Whether all that is needed now is there: a document is for another start."""
    has_secrets = bool(wanted.texts) or wanted.text is not None
    return _has_texts(wanted) and not (has_secrets and _is_shared(wanted.directory))


def _has_document(wanted: _StateContents) -> bool:
    if wanted.text is None:
        return True
    kept = _last_document_in(wanted.directory, wanted.text.place)
    return kept is not None and (kept.data, kept.tag) == (wanted.text.data, wanted.text.tag)


def _leftovers(wanted: _StateContents, *, is_running: bool) -> list[str]:
    """What an older document, or a process that was killed, left; there may be keys in it. Raises
    OSError.
    """
    used = {_LOCK} if wanted.text is None else {_LOCK, _DOCUMENT}
    if (wanted.texts or is_running) and os.path.islink(wanted.link):
        used |= {_LINK, os.readlink(wanted.link)}
    found = sorted(set(os.listdir(wanted.directory)) - used)
    return [os.path.join(wanted.directory, name) for name in found]


def _write(wanted: _StateContents, *, is_running: bool) -> None:
    """Raises OSError."""
    if not _has_texts(wanted):
        _write_texts(wanted)
    for path in _leftovers(wanted, is_running=is_running):
        _remove(path)
    if wanted.text is not None and not _has_document(wanted):
        data = msgspec.json.encode(
            _LastDocument(wanted.text.place, wanted.text.tag, wanted.text.data)
        )
        replace_file(os.path.join(wanted.directory, _DOCUMENT), data, 0o600)


def _directory(place: str) -> str:
    digest = hashlib.sha256(absolute_place(place).encode(errors="surrogateescape")).hexdigest()
    return os.path.join(_root(), "clients", digest[:32])


def _root() -> str:
    own = os.environ.get(STATE_VARIABLE)
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    root = own or os.path.join(base, "samelog")
    if not os.path.isabs(root):
        raise ConfigError(f"{root}: not an absolute path; set {STATE_VARIABLE} to a directory")
    return root


def _cannot_keep(place: str, directory: str, reason: str) -> str:
    remedy = f"set {STATE_VARIABLE} to a directory of this user's"
    return f"{place}: its certificates cannot be kept in {directory}: {reason}; {remedy}"


def _is_shared(directory: str) -> bool:
    """Whether others than this user may use what is there."""
    try:
        status = os.stat(directory)
    except OSError:
        return False
    return status.st_uid != os.geteuid() or bool(stat.S_IMODE(status.st_mode) & 0o077)


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """The directory, made if need be, for this process alone for a moment. Raises OSError."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if _is_shared(directory):
        raise PermissionError(0, "it is not this user's alone")
    with open(os.path.join(directory, _LOCK), "wb", opener=_open_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_texts(wanted: _StateContents) -> None:
    """Raises OSError."""
    fresh = tempfile.mkdtemp(dir=wanted.directory, prefix=_PEM_PREFIX)
    for name, data in wanted.texts.items():
        replace_file(os.path.join(fresh, name), data, 0o600)
    new = f"{fresh}.link"
    os.symlink(os.path.basename(fresh), new)
    os.replace(new, wanted.link)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)


def _texts_in(link: str) -> dict[str, bytes] | None:
    try:
        found = {}
        for name in os.listdir(link):
            with open(os.path.join(link, name), "rb") as file:
                found[name] = file.read()
    except OSError:
        return None
    return found
