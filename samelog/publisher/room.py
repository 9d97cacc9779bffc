"""Waiting until something of a full session is released: by this process, or by a sidecar.

Invariant: a wait ends soon after a release, and always after a while, because inotify may miss one.
"""

from __future__ import annotations

import os

from samelog.runtime.inotify import Inotify, Mask
from samelog.store.session.directory import SessionDirectory

LOOK_S = 0.2


def wait_for_release(directory: SessionDirectory) -> None:
    """Return when a file of the session was removed, or after LOOK_S."""
    inotify = Inotify()
    try:
        for topic, partition in directory.inputs():
            path = directory.input_path(topic, partition)
            if os.path.isdir(path):
                inotify.add(path, Mask.DELETE)
        inotify.wait(LOOK_S)
    finally:
        inotify.close()
