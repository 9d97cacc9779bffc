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
from dataclasses import dataclass

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
    link = os.path.join(_directory_of(place), _LINK)
    ca, cert, key, crl = (os.path.join(link, name) for name in PEM_FILES.values())
    return TlsFiles(ca=ca, cert=cert, key=key, crl=crl, crl_may_lack=True)


def save_client_state(document: ConfigDocument, *, is_running: bool = False) -> str:
    """Make the private directory of a checked document hold what the document needs, and nothing
    else. `is_running`: files that a process may still use by an older document stay. Returns why
    the document itself cannot be kept, if nothing else is wrong; else nothing. Raises ConfigError.
    """
    if _needs_no_directory(document):
        return ""
    state = _ClientState.of(document)
    try:
        if not state.is_saved(is_running=is_running):
            with state.locked():
                state.save(is_running=is_running)
    except OSError as error:
        if not state.can_run_unsaved():
            raise state.cannot_keep_certificates(error) from error
        return f"{document.text.shown}: cannot be kept in {state.directory}: {_reason(error)}"
    return ""


def restore_pem_files(document: ConfigDocument) -> None:
    """Write the texts of a document that was saved before, if they are lost: another process may
    have put newer ones there by now. Raises ConfigError.
    """
    state = _ClientState.of(document)
    if not state.texts or (state.written_texts() is not None and not _is_shared(state.directory)):
        return
    try:
        with state.locked():
            if state.written_texts() is None:
                state.write_texts()
    except OSError as error:
        raise state.cannot_keep_certificates(error) from error


def last_document(place: str) -> ConfigText | None:
    """The document that came from a URL last, and could be used. Raises ConfigError."""
    return _last_document_in(_directory_of(place), place)


def _last_document_in(directory: str, place: str) -> ConfigText | None:
    try:
        with open(os.path.join(directory, _DOCUMENT), "rb") as file:
            found = msgspec.json.decode(file.read(), type=_LastDocument)
    except (OSError, msgspec.MsgspecError):
        return None
    return ConfigText(place, found.data, found.tag) if found.place == place else None


def _needs_no_directory(document: ConfigDocument) -> bool:
    """Whether a file names only paths, and nothing of an older version of it is left to remove."""
    if document.text.is_remote or any(key in document.values for key in PEM_FILES):
        return False
    try:
        return not os.path.isdir(_directory_of(document.text.place))
    except ConfigError:
        return True


@dataclass(frozen=True, slots=True)
class _ClientState:
    """What the private directory of a configuration is to hold: texts by the names of their files,
    and the document itself if it is from a URL. All methods raise OSError.
    """

    directory: str
    texts: Mapping[str, bytes]
    text: ConfigText

    @classmethod
    def of(cls, document: ConfigDocument) -> _ClientState:
        """Raises ConfigError."""
        values = document.values
        texts = {name: values[key].encode() for key, name in PEM_FILES.items() if key in values}
        return cls(_directory_of(document.text.place), texts, document.text)

    @property
    def _link(self) -> str:
        return os.path.join(self.directory, _LINK)

    def written_texts(self) -> dict[str, bytes] | None:
        """The texts that are in files now, by name; None: one cannot be read."""
        try:
            found = {}
            for name in os.listdir(self._link):
                with open(os.path.join(self._link, name), "rb") as file:
                    found[name] = file.read()
        except OSError:
            return None
        return found

    def is_saved(self, *, is_running: bool) -> bool:
        """Whether there is nothing to do."""
        if not os.path.isdir(self.directory) or _is_shared(self.directory):
            return False
        has_all = self._has_texts() and self._has_document()
        return has_all and not self._leftovers(is_running=is_running)

    def can_run_unsaved(self) -> bool:
        """Whether all that is needed now is there: a document is for another start."""
        has_secrets = bool(self.texts) or self.text.is_remote
        return self._has_texts() and not (has_secrets and _is_shared(self.directory))

    def save(self, *, is_running: bool) -> None:
        """Write what is missing, remove what is left over."""
        if not self._has_texts():
            self.write_texts()
        for path in self._leftovers(is_running=is_running):
            _remove(path)
        if not self._has_document():
            kept = _LastDocument(self.text.place, self.text.tag, self.text.data)
            replace_file(os.path.join(self.directory, _DOCUMENT), msgspec.json.encode(kept), 0o600)

    def write_texts(self) -> None:
        """Write all texts, and swing the link to them."""
        fresh = tempfile.mkdtemp(dir=self.directory, prefix=_PEM_PREFIX)
        for name, data in self.texts.items():
            replace_file(os.path.join(fresh, name), data, 0o600)
        new = f"{fresh}.link"
        os.symlink(os.path.basename(fresh), new)
        os.replace(new, self._link)

    def _has_texts(self) -> bool:
        return not self.texts or self.written_texts() == self.texts

    def _has_document(self) -> bool:
        if not self.text.is_remote:
            return True
        kept = _last_document_in(self.directory, self.text.place)
        return kept is not None and (kept.data, kept.tag) == (self.text.data, self.text.tag)

    def _leftovers(self, *, is_running: bool) -> list[str]:
        """What an older document, or a process that was killed, left; there may be keys in it."""
        used = {_LOCK, _DOCUMENT} if self.text.is_remote else {_LOCK}
        if (self.texts or is_running) and os.path.islink(self._link):
            used |= {_LINK, os.readlink(self._link)}
        found = sorted(set(os.listdir(self.directory)) - used)
        return [os.path.join(self.directory, name) for name in found]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The directory, made if need be, is this process's alone for a moment."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        if _is_shared(self.directory):
            raise PermissionError(0, "it is not this user's alone")
        with open(os.path.join(self.directory, _LOCK), "wb", opener=_open_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def cannot_keep_certificates(self, error: OSError) -> ConfigError:
        """The error of who cannot go on without."""
        why = f"its certificates cannot be kept in {self.directory}: {_reason(error)}"
        remedy = f"set {STATE_VARIABLE} to a directory of this user's"
        return ConfigError(f"{self.text.shown}: {why}; {remedy}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _directory_of(place: str) -> str:
    """The private directory of a configuration. Raises ConfigError."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    root = os.environ.get(STATE_VARIABLE) or os.path.join(base, "samelog")
    if not os.path.isabs(root):
        raise ConfigError(f"{root}: not an absolute path; set {STATE_VARIABLE} to a directory")
    digest = hashlib.sha256(absolute_place(place).encode(errors="surrogateescape")).hexdigest()
    return os.path.join(root, "clients", digest[:32])


def _is_shared(directory: str) -> bool:
    """Whether others than this user may use what is there."""
    try:
        status = os.stat(directory)
    except OSError:
        return False
    return status.st_uid != os.geteuid() or bool(stat.S_IMODE(status.st_mode) & 0o077)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
