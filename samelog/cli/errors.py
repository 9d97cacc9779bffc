"""Which exceptions are the operator's business, and the exit code each means.

Invariant: a fault of configuration, of a peer or of a disk ends a command with one message;
anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from samelog.archiver.copies.manifests import CopyFault
from samelog.cli.output import ConfigurationError, OperatorError
from samelog.config.pki.authority import PkiError
from samelog.config.values import ConfigError
from samelog.format.arrow import ArrowMissing
from samelog.format.errors import InvalidName, LogFormatError
from samelog.replicator.client_errors import PublisherError, SubscriberError
from samelog.runtime.errors import RuntimeFault
from samelog.spark.errors import BadOption, SourceError
from samelog.typed.filters.operands import BadFilter
from samelog.typed.schema import NoSchema
from samelog.wire.errors import ProtocolFault, WireError

USAGE = (BadFilter, BadOption, ConfigError, InvalidName)
FAILED = (
    ArrowMissing,
    CopyFault,
    PkiError,
    LogFormatError,
    NoSchema,
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
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return OperatorError(f"{error.filename}: {error.strerror}")
    if isinstance(error, FAILED):
        return OperatorError(str(error) or type(error).__name__)
    return None
