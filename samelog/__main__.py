"""The `samelog` command, also as `python -m samelog`.

Invariant: an interrupt ends the command with the exit status of SIGINT and without a traceback,
also while its modules are imported.
"""

from __future__ import annotations

import os
import signal

_EXIT_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command line."""
    is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as of a job of a script
    if not is_ignored:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_EXIT_INTERRUPTED))
    from samelog.cli.main import main as command

    try:
        if not is_ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        raise SystemExit(_EXIT_INTERRUPTED) from None


if __name__ == "__main__":
    main()
