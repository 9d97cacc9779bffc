"""Contexts: clients' configurations by name, one of which is the current one of this user.

A context counts as SAMELOG_CONFIG does, which comes before the current one; --config comes before
both. Invariant: the file is replaced as a whole; a context names a file by its absolute path, or an
https:// URL, and holds no secret itself.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace

from samelog.cli.output import ConfigurationError, printable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Contexts:
    """What the file says: name -> place of a client.toml; the current name, or empty."""

    places: dict[str, str] = field(default_factory=dict)
    current: str = ""

    def having(self, name: str, place: str) -> Contexts:
        """With one more; the first one is the current one."""
        return Contexts({**self.places, name: place}, self.current or name)

    def without(self, name: str) -> Contexts:
        """With one less. Raises ConfigurationError."""
        self.place_of(name)
        left = {each: place for each, place in self.places.items() if each != name}
        return Contexts(left, "" if self.current == name else self.current)

    def using(self, name: str) -> Contexts:
        """With another current one; empty: none. Raises ConfigurationError."""
        if name:
            self.place_of(name)
        return replace(self, current=name)

    def place_of(self, name: str) -> str:
        """Raises ConfigurationError if there is no such context."""
        if name not in self.places:
            there = ", ".join(sorted(self.places)) or "none"
            raise ConfigurationError(f"there is no context {name!r}; there are: {there}")
        return self.places[name]

    def to_toml(self) -> str:
        """As the file has it."""
        lines = [f"{_quoted(name)} = {_quoted(place)}" for name, place in self.places.items()]
        return "\n".join([f"current = {_quoted(self.current)}", "", "[contexts]", *lines, ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def contexts_file() -> str:
    """Where this user's contexts are."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "samelog", "contexts.toml")


def read_contexts() -> Contexts:
    """This user's contexts; none if there is no file. Raises ConfigurationError."""
    import tomllib

    path = contexts_file()
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    places, current = found.get("contexts", {}), found.get("current", "")
    named = isinstance(places, dict) and all(isinstance(each, str) for each in places.values())
    if not named or not isinstance(current, str):
        raise ConfigurationError(
            f'{path}: it has current = "NAME", and NAME = "FILE" in [contexts]'
        )
    return Contexts(places, current)


def write_contexts(contexts: Contexts) -> None:
    """Replace this user's contexts. Raises OSError."""
    from samelog.config.pki.secret_files import replace_file

    path = contexts_file()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    replace_file(path, contexts.to_toml().encode(), 0o600)


def check_name(name: str) -> None:
    """Raises ConfigurationError."""
    if not NAME.fullmatch(name):
        allowed = "letters, digits, and . _ - behind the first"
        raise ConfigurationError(f"context {printable(name)!r}: a name has {allowed}")


def use_context(name: str | None) -> None:
    """Let a context count for this process as SAMELOG_CONFIG does: the one that is named, or the
    current one if that variable says nothing. Raises ConfigurationError.
    """
    from samelog.config.schema.environment import CONFIG_VARIABLE

    if name is not None:
        os.environ[CONFIG_VARIABLE] = read_contexts().place_of(name)
    elif CONFIG_VARIABLE not in os.environ:
        contexts = read_contexts()
        if contexts.current in contexts.places:
            os.environ[CONFIG_VARIABLE] = contexts.places[contexts.current]
