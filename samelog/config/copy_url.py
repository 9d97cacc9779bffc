"""Where copies of segments go: a directory, or the URL of a file system.

Invariant: a checked URL holds no credentials; it is replicated, logged and shown.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from samelog.format.errors import InvalidName

URL_CHARACTERS = 1000
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_SECRET = re.compile(r"secret|password|token|credential|(access|account)_?key", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether it is a URL; else it is a directory."""
    return "://" in text


def check_copy_url(text: str) -> str:
    """Return a URL that may be used. Raises InvalidName."""
    try:
        parts = urlsplit(text)
        secrets = [key for key, _ in parse_qsl(parts.query) if _SECRET.search(key)]
    except ValueError as error:
        raise InvalidName(f"{text[:80]!r} is not a URL: {error}") from error
    if len(text) > URL_CHARACTERS or not text.isprintable() or "#" in text:
        raise InvalidName(f"{text[:80]!r} is not a URL of at most {URL_CHARACTERS} characters")
    if _SCHEME.fullmatch(parts.scheme) is None:
        raise InvalidName(f"{text!r} does not begin with a scheme, as in s3://bucket/path")
    if parts.scheme != "file" and not parts.netloc:
        raise InvalidName(f"{text!r} names no bucket or host, as in s3://bucket/path")
    if "@" in parts.netloc or secrets:
        raise InvalidName(
            "it holds credentials: everybody may see a URL. Put them where its file system looks "
            "for them, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        )
    return text
