"""A member's archiving policy, which counts for all its groups: read at the start, and again when
the file changes.

Invariant: a file that cannot be read or understood changes nothing: the policy before it stays, at
the start none, and `problem` says why.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict

from samelog.archiver.policy import Policy, PolicyError, parse_policy
from samelog.format.errors import LogFormatError
from samelog.format.texts import NotUtf8, decode_file
from samelog.runtime.log import log_event
from samelog.store.disk.files import FileSystem

log = logging.getLogger(__name__)

LIMIT_BYTES = 64 << 10


class PolicyFile:
    """One node's copy of the file; the leader's counts."""

    def __init__(self, fs: FileSystem, path: str | None) -> None:
        """`path`: None when the configuration names none; then only topics' settings count."""
        self.path = path
        self.policy: Policy | None = None
        self.problem = ""
        self._fs = fs

    @property
    def text(self) -> str:
        """The policy as JSON; empty: none."""
        return "" if self.policy is None else json.dumps(asdict(self.policy))

    def load(self) -> None:
        """Take the file over, if it is a policy."""
        if self.path is None:
            return
        try:
            # The operator's file may be a link, as mounted ones are; the node's own files may not.
            path = os.path.realpath(self.path)
            found = parse_policy(decode_file(self._fs.read_file(path, LIMIT_BYTES)))
        except (PolicyError, LogFormatError, NotUtf8) as error:
            self._refuse(f"{self.path}: {error}")
            return
        if found != self.policy or self.problem:
            log_event(log, logging.INFO, "archiving policy", file=self.path, policy=found)
        self.policy, self.problem = found, ""

    def _refuse(self, problem: str) -> None:
        if problem != self.problem:
            kept = "nothing is archived by it" if self.policy is None else f"kept is {self.policy}"
            log_event(log, logging.ERROR, "archiving policy refused", why=problem, kept=kept)
        self.problem = problem
