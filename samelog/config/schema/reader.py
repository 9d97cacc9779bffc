"""Reads values from the tables of a document, with messages that an operator can act on.

Every complaint names the file, the key, the value found, and what is allowed. Invariant: an unknown
key is an error, with the nearest known one, so that a typo never means "the default".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from samelog.config.document import ConfigDocument, ConfigText
from samelog.config.pki.secret_files import why_shared
from samelog.config.schema.keys import (
    NO_DEFAULT,
    Annotation,
    ConfigKey,
    ConfigTable,
    Inlined,
    KeyProblem,
    NamedKeys,
    Subtable,
    TableSpec,
    annotations_of,
    joined,
    keys_of,
)
from samelog.config.schema.kinds import BadValue, PathRule, ValueKind, WrongValue, did_you_mean
from samelog.config.values import ConfigError, is_url
from samelog.format.errors import InvalidName

StructT = TypeVar("StructT", bound=ConfigTable)
_LEFT_OUT = object()


class TableReader:
    """One table of a document; every method raises ConfigError."""

    def __init__(
        self,
        document: ConfigDocument,
        spec: TableSpec | None = None,
        at: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """The file itself, or the table `at` a path such as `kafka.listeners[0]`."""
        self._document = document
        self._spec = document.spec if spec is None else spec
        self._path = at
        self._values = document.values if values is None else values
        known = [*self._spec.keys, *self._spec.tables]
        for key in self._values:
            if key not in known and self._spec.named is None:
                hint = did_you_mean(key, known) or "."
                text = f"unknown key{hint} Allowed are: {', '.join(known)}"
                raise self.error(key, text)

    @property
    def origin(self) -> ConfigText:
        """What it was read from."""
        return self._document.text

    def has(self, key: str) -> bool:
        """Whether the table gives this key."""
        return key in self._values

    def error(self, key: str, reason: str) -> ConfigError:
        """What is wrong with a key of this table."""
        at = joined(self._path, key)
        variable = self._document.variables.get(at)
        found = f"{at} (from {variable})" if variable else at
        return ConfigError(f"{self._document.file}: {found}: {reason}")

    def read(
        self, struct: type[StructT], before: Any = None, **readers: Callable[[], Any]
    ) -> StructT:
        """The value of this table. `before`: a value that counts for what is left out, instead of
        defaults; `readers`: of the fields that are read in other ways.
        """
        start = () if before is None else fields(before)
        values = {each.name: getattr(before, each.name) for each in start}
        for mark in annotations_of(struct):
            name = mark.attribute
            reader = readers.get(name)
            found = reader() if reader else self._field(mark, values.get(name))
            if found is not _LEFT_OUT:
                values[name] = found
        try:
            struct.complete(values)
            self._check_present(struct, values)
            made = struct(**values)
            self._check_meanings(made)
            made.check()
        except KeyProblem as problem:
            raise self.error(problem.key, problem.reason) from problem
        return made

    def _check_present(self, struct: type[ConfigTable], values: Mapping[str, Any]) -> None:
        for key in keys_of(struct):
            if key.default is NO_DEFAULT and key.attribute not in values:
                raise self._table_of(key)._missing(key)

    def _check_meanings(self, made: ConfigTable) -> None:
        for key in keys_of(type(made)):
            if key.only_with is not None and not key.only_with.holds(made):
                table = self._table_of(key)
                if table.has(key.name):
                    raise table.error(key.name, f"has no meaning without {key.only_with.text}")

    def _field(self, mark: Annotation, before: Any) -> Any:
        """What the table says of a field."""
        match mark:
            case ConfigKey():
                return self._table_of(mark)._key(mark)
            case Inlined(struct=struct):
                return self.read(struct, before)
            case NamedKeys():
                return self._named(mark)
            case Subtable(attribute=name, struct=struct, is_many=True):
                return tuple(table.read(struct) for table in self._tables(name))
            case Subtable(attribute=name, is_optional=True) if not self.has(name):
                return _LEFT_OUT
            case Subtable(attribute=name, struct=struct):
                return self._table(name).read(struct, before)

    def _table_of(self, key: ConfigKey) -> TableReader:
        return self if key.table is None else self._table(key.table.name)

    def _missing(self, key: ConfigKey) -> ConfigError:
        return self.error(key.name, f"missing; it must be {key.kind.expected}")

    def _key(self, key: ConfigKey) -> Any:
        if key.name in self._values:
            return self._value(key.name, key)
        if key.is_required:
            raise self._missing(key)
        return _LEFT_OUT

    def _value(self, name: str, key: ConfigKey) -> Any:
        raw = self._values[name]
        try:
            value = key.kind.read(raw)
        except WrongValue as error:
            raise self._wrong(name, "what is there" if key.secret else repr(raw), error) from error
        except (BadValue, InvalidName) as error:
            raise self.error(name, str(error)) from error
        return value if key.kind.path is None else self._resolved(name, value, key.kind)

    def _wrong(self, name: str, found: str, expected: object) -> ConfigError:
        return self.error(name, f"{found} is not {expected}")

    def _resolved(self, name: str, text: str, kind: ValueKind) -> str:
        """An absolute path; in a file it may be relative to the file's own directory."""
        if is_url(text) and kind.path is PathRule.ANYTHING:
            return text
        if self.origin.is_remote and not os.path.isabs(text):
            raise self._wrong(
                name, repr(text), "an absolute path, as in a configuration from a URL"
            )
        directory = os.path.dirname(os.path.abspath(self.origin.place))
        path = os.path.normpath(os.path.join(directory, text))
        if kind.path is not PathRule.ANYTHING:
            self._check_file(name, path, is_private=kind.path is PathRule.PRIVATE_FILE)
        return path

    def _check_file(self, name: str, path: str, *, is_private: bool) -> None:
        if not os.path.isfile(path):
            raise self._wrong(name, repr(path), "an existing file")
        if not os.access(path, os.R_OK):
            raise self._wrong(name, repr(path), "a file that this user may read")
        reason = why_shared(path) if is_private else ""
        if reason:
            raise self.error(name, reason)

    def _named(self, mark: NamedKeys) -> dict[str, Any]:
        table = self._table(mark.attribute)
        for name in table._values:
            try:
                mark.check(name)
            except InvalidName as error:
                raise self.error(mark.attribute, str(error)) from error
        return {name: table._value(name, mark.key) for name in table._values}

    def _table(self, name: str) -> TableReader:
        """A table inside this one; empty when missing."""
        at = joined(self._path, name)
        values = self._values.get(name, {})
        if not isinstance(values, dict):
            raise self._wrong(name, repr(values), f"a table: [{at}]")
        return TableReader(self._document, self._spec.tables[name], at, values)

    def _tables(self, name: str) -> list[TableReader]:
        """A list of tables; empty when missing."""
        at = joined(self._path, name)
        spec, values = self._spec.tables[name], self._values.get(name, [])
        lists = values if isinstance(values, list) else [values]
        for value in lists:
            if not isinstance(value, dict) or lists is not values:
                raise self._wrong(name, repr(value), f"a list of tables: [[{at}]]")
        return [
            TableReader(self._document, spec, f"{at}[{index}]", value)
            for index, value in enumerate(values)
        ]
