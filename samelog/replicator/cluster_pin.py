"""Which cluster a client's directory belongs to, kept beside what was shipped or copied.

Two clusters may have one name, and one may be created at the addresses of another: only the id,
which a cluster has from its first entry on, tells them apart.

Invariant: nothing is shipped to, or copied from, another cluster than the first one that was met,
nor a node that is of before a promotion that this directory has met (docs/sites.md, S2).
A disk without room for the id is no reason to stop, as only shipping makes room again: until the
id can be written, it is known as long as the process lives.
"""

from __future__ import annotations

import logging
import os

from samelog.format.directory_files import ClusterFile
from samelog.format.errors import LogFormatError
from samelog.format.file_names import CLUSTER_FILE
from samelog.placement.cluster_ids import ends
from samelog.store.disk.files import FileSystem
from samelog.store.disk.json_files import read_json_file, write_json_file
from samelog.wire.errors import FaultCode, ProtocolFault

log = logging.getLogger(__name__)


class ClusterPin:
    """The cluster of one directory."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._path = os.path.join(directory, CLUSTER_FILE)
        self._unwritten = ""
        """The id that could not be written so far."""
        self._written: str | None = None
        """The id that the file had when it was read or written last, empty if there was none; None:
        it was not read yet.
        """

    def knows(self, cluster_id: str) -> bool:
        """Whether `meet` would write nothing. Raises LogFormatError if the file cannot be read."""
        if cluster_id and self._written is None:
            file = read_json_file(self._fs, self._path, ClusterFile)
            self._written = file.cluster_id if file else ""
        return cluster_id in ("", self._written)

    def meet(self, cluster_id: str) -> None:
        """A node's cluster has this id (empty: none yet). Raises ProtocolFault if it is another one
        than before, LogFormatError if the file cannot be read.
        """
        if not cluster_id:
            return
        file = read_json_file(self._fs, self._path, ClusterFile)
        known = file.cluster_id if file else self._unwritten
        if ends(known, cluster_id):
            raise ProtocolFault(
                FaultCode.WRONG_CLUSTER,
                f"a site was promoted, and the cluster is {known} now: this node is of before",
                "nothing is shipped there, or read from there",
            )
        if known not in ("", cluster_id) and not ends(cluster_id, known):
            raise ProtocolFault(
                FaultCode.WRONG_CLUSTER,
                f"this cluster has the id {cluster_id}; {self._directory} belongs to the cluster "
                f"of this name with the id {known}",
                f"go back to that cluster, use another directory, or remove {self._path}",
            )
        if file is None or known != cluster_id:
            self._write(cluster_id)

    def _write(self, cluster_id: str) -> None:
        try:
            write_json_file(self._fs, self._path, ClusterFile(cluster_id=cluster_id))
            self._written, self._unwritten = cluster_id, ""
        except LogFormatError as error:
            if not self._unwritten:
                log.warning("the cluster's id is not kept yet: %s", error)
            self._unwritten = cluster_id
