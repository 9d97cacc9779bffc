"""Configurations that are read again while a process runs: a node's, when its file changes or at
SIGHUP; a client's, every few seconds from wherever it came.

Invariant: what cannot be had or used changes nothing, and is told of once for as long as it is so;
names of keys are told, never values. Whatever is taken over was checked, its certificates are in
their files, and it is of the same cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from samelog.config.client_state import PEM_FILES, save_client_state
from samelog.config.document import (
    ConfigDocument,
    ConfigText,
    Setting,
    changed_settings,
    read_file,
    with_reloadable,
)
from samelog.config.load import client_config, client_document, node_config, read_node
from samelog.config.remote import fetch
from samelog.config.schema.keys import Reload
from samelog.config.tables.client import ClientConfig
from samelog.config.values import ConfigError
from samelog.runtime.log import log_event
from samelog.runtime.loop import spawn

log = logging.getLogger(__name__)

FOLLOW_S = 5.0


class ConfigProblem:
    """Why the newest configuration does not count; `text` is empty if it does."""

    def __init__(self, log: logging.Logger, text: str = "") -> None:
        self.text = text
        self._log = log
        self._logged = {text}

    def set(self, text: str) -> bool:
        """Whether it is another one than before."""
        if text == self.text:
            return False
        self.text = text
        if not text:
            self._logged.clear()
            log_event(self._log, logging.INFO, "configuration is taken again")
        elif text not in self._logged:
            self._logged.add(text)
            log_event(self._log, logging.ERROR, "configuration refused, kept the old", why=text)
        return True


def tell_changes(log: logging.Logger, changed: Iterable[Setting]) -> None:
    """Say what was taken over, and what was not."""
    found = tuple(changed)
    for reload, event in (
        (Reload.YES, "configuration reloaded"),
        (Reload.NO, "configuration changed: counts from the next start"),
        (Reload.CONTENTS, "configuration names other files: counts from the next start"),
    ):
        names = ", ".join(setting.name for setting in found if setting.key.reload is reload)
        if names:
            level = logging.INFO if reload is Reload.YES else logging.WARNING
            log_event(log, level, event, keys=names)


class NodeReload:
    """The configuration of a node that runs."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError."""
        self.path = path
        self._document = read_node(path)
        self.config = node_config(self._document)
        self._problem = ConfigProblem(log)

    @property
    def problem(self) -> str:
        """Why the newest file does not count; empty if it does."""
        return self._problem.text

    def read_again(self) -> bool:
        """Read the file again; whether `config` or `problem` is another one now."""
        try:
            document = read_node(self.path)
            found = node_config(document)
        except ConfigError as error:
            return self._problem.set(str(error))
        is_solved = self._problem.set("")
        changed = changed_settings(self._document, document)
        self._document = document
        self.config = with_reloadable(self.config, found)
        tell_changes(log, changed)
        return is_solved or bool(changed)


class ConfigFollower:
    """All calls and callbacks are in its event loop."""

    def __init__(self, config: ClientConfig, on_change: Callable[[ClientConfig], None]) -> None:
        """`config`: what counts now; one that was read from nowhere never changes."""
        self.config = config
        self._on_change = on_change
        self._document = config.document
        self._problem = ConfigProblem(
            log, "" if self._document is None else self._document.text.problem
        )
        self._refused: ConfigText | None = None
        """What was read last, if it could not be used."""
        self._unkept = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str:
        """Why the newest configuration does not count; empty if it does."""
        return self._problem.text

    def start(self) -> None:
        """Begin, in the running event loop."""
        if self._document is not None:
            self._task = spawn(self._follow(self._document), "configuration")

    def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, document: ConfigDocument) -> None:
        while True:
            await asyncio.sleep(FOLLOW_S)
            document = await self._read_once(document)

    async def _read_once(self, known: ConfigDocument) -> ConfigDocument:
        """Read the newest configuration. Returns the document that is in force."""
        try:
            return await self._read_newest(known)
        except (ConfigError, OSError) as error:  # a file may go while it is looked at
            self._problem.set(str(error))
        except Exception as error:  # noqa: BLE001 - the seam: who follows no more is stuck
            self._problem.set(f"{type(error).__name__}: {error}")
        return known

    async def _read_newest(self, known: ConfigDocument) -> ConfigDocument:
        """Raises ConfigError, OSError."""
        text = await _read_again(self._refused or known.text)
        if text.data == known.text.data:
            document = replace(known, text=text)
            self._note_unkept(await asyncio.to_thread(save_client_state, document, is_running=True))
            self._settle()
            return document
        self._refused = text
        found, document, unkept = await asyncio.to_thread(self._check_and_save, text)
        self._note_unkept(unkept)
        if changed := changed_settings(known, document):
            same_files = found.tls == self.config.tls
            self.config = with_reloadable(self.config, found)
            self._on_change(self.config)
            tell_changes(log, changed if same_files else map(_as_next_start, changed))
        self._settle()
        return document

    def _note_unkept(self, unkept: str) -> None:
        """Warn once that a start without the URL would go by an older document, or by none."""
        if unkept and not self._unkept:
            log_event(log, logging.WARNING, "configuration counts, but is not kept", why=unkept)
        self._unkept = unkept

    def _settle(self) -> None:
        self._refused = None
        self._problem.set("")

    def _check_and_save(self, text: ConfigText) -> tuple[ClientConfig, ConfigDocument, str]:
        """In a thread: check it, and write what it has for files. Raises ConfigError."""
        document = client_document(text)
        found = client_config(document)
        if found.cluster != self.config.cluster:
            reason = f"{found.cluster!r}: this process belongs to {self.config.cluster!r}"
            raise ConfigError(f"{text.shown}: cluster: {reason}; restart it to move it")
        return found, document, save_client_state(document, is_running=True)


async def _read_again(known: ConfigText) -> ConfigText:
    if known.is_remote:
        return await fetch(known.place, known)
    return await asyncio.to_thread(read_file, known.place)


def _as_next_start(setting: Setting) -> Setting:
    """Texts in the place of paths, or paths in theirs, are other files."""
    if setting.name not in PEM_FILES:
        return setting
    return replace(setting, key=replace(setting.key, reload=Reload.NO))
