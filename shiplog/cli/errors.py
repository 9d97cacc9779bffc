"""Which exceptions are the operator's business, and the exit code each means.

Invariant: a fault of configuration, of a peer or of a disk ends a command with one message;
anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from shiplog.archiver.copies import CopyFault
from shiplog.cli.output import ConfigurationError, OperatorError
from shiplog.config.pki import PkiError
from shiplog.config.types import ConfigError
from shiplog.logformat.errors import InvalidName, LogFormatError
from shiplog.publisher.errors import PublisherError
from shiplog.runtime.errors import RuntimeFault
from shiplog.spark.errors import BadOption, SourceError
from shiplog.subscriber.errors import SubscriberError
from shiplog.wire.errors import ProtocolFault, WireError

USAGE = (BadOption, ConfigError, InvalidName)
FAILED = (
    CopyFault,
    PkiError,
    LogFormatError,
    PublisherError,
    SubscriberError,
    RuntimeFault,
    SourceError,
    WireError,
    OSError,
)


def operator_error(error: Exception) -> OperatorError | None:
    """What to tell the operator about `error`; None if it is not for the operator."""
    if isinstance(error, USAGE):
        return ConfigurationError(str(error))
    if isinstance(error, ProtocolFault):
        remedy = f"; {error.remedy}" if error.remedy else ""
        return OperatorError(f"{error.message}{remedy}")
    if isinstance(error, FAILED):
        return OperatorError(str(error) or type(error).__name__)
    return None
