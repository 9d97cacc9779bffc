"""Files that may change while a node runs: its certificates, and the archiving policy.

Invariant: files that cannot be used change nothing.
"""

from __future__ import annotations

import logging

from samelog.archiver.policy_file import PolicyFile
from samelog.config.tables.shared import TlsFiles
from samelog.runtime.errors import TlsFault
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import ReloadingContext
from samelog.sequencer.host import Host

log = logging.getLogger(__name__)


class WatchedFiles:
    """Watches the certificates and the policy file of one node until closed."""

    def __init__(
        self, host: Host, files: TlsFiles, tls: ReloadingContext, policy: PolicyFile
    ) -> None:
        """Read the policy, and watch. To be made in the event loop."""
        self._tls = tls
        self._cert = files.cert
        policy.load()
        self._watches = [host.watch(files.paths, self.reload_certificates)]
        if policy.path is not None:
            self._watches.append(host.watch((policy.path,), policy.load))

    def reload_certificates(self) -> None:
        """Load changed certificates for new connections. Called now and then, too, because an error
        may pass without a change of the files.
        """
        try:
            if self._tls.reload_if_changed():
                log_event(log, logging.INFO, "certificates reloaded", cert=self._cert)
        except TlsFault as fault:
            log_event(log, logging.ERROR, "certificates unusable, kept the old", error=fault)

    def close(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.close()
