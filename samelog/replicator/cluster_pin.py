"""Which cluster a client's directory belongs to, kept beside what was shipped or copied.

Two clusters may have one name, and one may be made anew at the addresses of another: only the id,
which a cluster has from its first entry on, tells them apart.

Invariant: nothing is shipped to, or copied from, another cluster than the first one that was met.
"""

from __future__ import annotations

import os

from samelog.format.directory_files import ClusterFile
from samelog.format.file_names import CLUSTER_FILE
from samelog.store.disk.files import FileSystem
from samelog.store.disk.json_files import read_json_file, write_json_file
from samelog.wire.errors import FaultCode, ProtocolFault


def meet_cluster(fs: FileSystem, directory: str, cluster_id: str) -> None:
    """A node's cluster has this id (empty: none yet). Raises ProtocolFault if it is another one
    than before, LogFormatError if the file cannot be read or written.
    """
    if not cluster_id:
        return
    path = os.path.join(directory, CLUSTER_FILE)
    known = read_json_file(fs, path, ClusterFile)
    if known is None:
        write_json_file(fs, path, ClusterFile(cluster_id=cluster_id))
    elif known.cluster_id != cluster_id:
        raise ProtocolFault(
            FaultCode.WRONG_CLUSTER,
            f"this cluster has the id {cluster_id}; {directory} belongs to the cluster of this "
            f"name with the id {known.cluster_id}",
            f"go back to that cluster, use another directory, or remove {path}",
        )
