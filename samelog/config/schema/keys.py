"""What the annotations of a configuration's values say: each key's name, kind, meaning, default.

A table of a file is a frozen dataclass. A field becomes a key by an annotation such as
`Annotated[int, "What it means", integer(1, 9), Reload.YES]`; Subtable, Inlined and NamedKeys say
how other tables stand in it. The loader, the writer, the documentation, the names of environment
variables, the JSON schema and what a running process takes over all follow from them. Invariant: a
key that no field is annotated with is in no configuration; a field without annotation is in no
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from samelog.config.schema import kinds
from samelog.config.schema.kinds import PlainValue, ValueKind
from samelog.config.values import Address

NO_DEFAULT = object()
"""The field has none."""


class Reload(Enum):
    """What a running process takes over when it changes."""

    NO = "at the next start"
    CONTENTS = "what the file holds, at once"
    YES = "at once"


class KeyProblem(Exception):
    """A table contradicts itself: `key`, its path within the table, is wrong for a `reason`."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class ConfigTable:
    """A table of a file, or several; its subclasses are frozen dataclasses."""

    __slots__ = ()

    @classmethod
    def complete(cls, values: dict[str, Any]) -> None:
        """Fill in fields that were left out and follow from others. Raises KeyProblem."""

    def check(self) -> None:
        """Raises KeyProblem if keys that are each valid contradict each other."""


class KeyName(str):
    """A key's name, if it is not the field's."""


class Without(str):
    """What counts if a key is left out, instead of a default."""


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A table without a value of its own: its keys are fields of the value of the table above."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Another field of the same value, which must be set, or have this value; `text` says so."""

    attribute: str
    text: str
    value: Enum | None = None

    def holds(self, config: ConfigTable) -> bool:
        """Whether it is so."""
        found = getattr(config, self.attribute)
        return bool(found) if self.value is None else found is self.value


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key: its meaning, and what else the annotation of its field says, in any order; `kind`
    and `name` otherwise follow from the field's type and name.

    `only_with`: what the key has no meaning without; `secret`: it is never shown, and comes from no
    variable, because everybody may see a process's environment. `attribute`: the field's name.
    """

    meaning: str
    kind: ValueKind = kinds.TEXT
    name: str = ""
    table: FlatTable | None = None
    without: str = ""
    only_with: OnlyWith | None = None
    reload: Reload = Reload.NO
    secret: bool = False
    attribute: str = ""
    default: Any = NO_DEFAULT

    @property
    def is_required(self) -> bool:
        """Whether a file without it is refused."""
        return self.default is NO_DEFAULT and not self.without

    @property
    def file_default(self) -> PlainValue | None:
        """What counts if a file leaves it out, as the file would say it."""
        return None if self.without or self.default is NO_DEFAULT else self.kind.write(self.default)

    def is_written(self, config: ConfigTable) -> bool:
        """Whether a file that is made from a value has this key."""
        value = getattr(config, self.attribute)
        if value is None or (self.without and value == self.default):
            return False
        return self.only_with is None or self.only_with.holds(config)


@dataclass(frozen=True, slots=True)
class Subtable:
    """A table inside this one: one (None in the value if it may be missing), or a list of them."""

    meaning: str
    attribute: str = ""
    struct: type[ConfigTable] = ConfigTable
    is_many: bool = False
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Inlined:
    """A value whose keys stand in this table. `instead`: another value's keys, that may stand there
    in their place; then `without` is what counts if one is left out, with {} for its name.
    """

    without: str = ""
    instead: type[ConfigTable] | None = None
    attribute: str = ""
    struct: type[ConfigTable] = ConfigTable


@dataclass(frozen=True, slots=True)
class NamedKeys:
    """A table whose keys are the operator's own, with values of one kind; `check` returns a name or
    raises InvalidName.
    """

    meaning: str
    key: ConfigKey
    check: Callable[[str], str]
    attribute: str = ""


_PARTS = {
    ValueKind: "kind",
    KeyName: "name",
    FlatTable: "table",
    Without: "without",
    OnlyWith: "only_with",
    Reload: "reload",
}
"""What may stand behind a key's meaning -> the attribute that it gives."""
Annotation = ConfigKey | Subtable | Inlined | NamedKeys


_ANNOTATIONS: dict[type, tuple[Annotation, ...]] = {}


def annotations_of(struct: type[Any]) -> tuple[Annotation, ...]:
    """The annotated fields of a value, in order."""
    if struct not in _ANNOTATIONS:
        _ANNOTATIONS[struct] = _read_annotations(struct)
    return _ANNOTATIONS[struct]


def _read_annotations(struct: type[Any]) -> tuple[Annotation, ...]:
    hints = get_type_hints(struct, include_extras=True)
    marked = (each for each in fields(struct) if hasattr(hints[each.name], "__metadata__"))
    return tuple(_bound(each, hints[each.name]) for each in marked)


def keys_of(struct: type[Any]) -> tuple[ConfigKey, ...]:
    """Those that are keys of the value itself."""
    return tuple(each for each in annotations_of(struct) if isinstance(each, ConfigKey))


def _bound(of: Field[Any], hint: Any) -> Annotation:
    """The annotation, with what the field says."""
    mark, *parts = hint.__metadata__
    one = _without_none(hint.__origin__)
    match mark:
        case str():
            options: dict[str, Any] = {_PARTS[type(part)]: part for part in parts}
            return _bound_key(ConfigKey(mark, **options), of, one)
        case ConfigKey():
            return _bound_key(mark, of, one)
        case Subtable() if get_origin(one) is tuple:
            return replace(mark, attribute=of.name, struct=get_args(one)[0], is_many=True)
        case Subtable():
            is_optional = one is not hint.__origin__
            return replace(mark, attribute=of.name, struct=one, is_optional=is_optional)
        case Inlined():
            return replace(mark, attribute=of.name, struct=one)
        case NamedKeys():
            return replace(mark, attribute=of.name)
    raise TypeError(f"{of.name} is annotated with {mark!r}")


def _bound_key(key: ConfigKey, of: Field[Any], hint: Any) -> ConfigKey:
    kind = _kind_of(hint) if key.kind is kinds.TEXT else key.kind
    default = NO_DEFAULT if of.default is MISSING else of.default
    return replace(key, attribute=of.name, name=key.name or of.name, kind=kind, default=default)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return next(each for each in get_args(hint) if each is not NoneType)
    return hint


def _kind_of(hint: Any) -> ValueKind:
    """The kind of a key that does not say it."""
    if get_origin(hint) is tuple:
        return kinds.list_of(_kind_of(get_args(hint)[0]))
    if issubclass(hint, Enum):
        return kinds.choice(hint)
    return {Address: kinds.ADDRESS, bool: kinds.BOOLEAN, str: kinds.TEXT}[hint]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table of a file as operators see it: its path (empty: the file itself), its keys by name,
    and the tables in it; `named`: what its keys are if their names are the operator's.
    """

    path: str
    meaning: str
    is_many: bool = False
    named: ConfigKey | None = None
    keys: dict[str, ConfigKey] = field(default_factory=dict)
    tables: dict[str, TableSpec] = field(default_factory=dict)

    def walk(self) -> Iterator[TableSpec]:
        """This table and all inside it, in order."""
        yield self
        for table in self.tables.values():
            yield from table.walk()

    def inside(self, name: str, meaning: str, **options: Any) -> TableSpec:
        """The table of a name in this one, made if there is none yet."""
        path = joined(self.path, name)
        return self.tables.setdefault(name, TableSpec(path, meaning, **options))

    def add(self, struct: type[ConfigTable], without: str = "") -> TableSpec:
        """Put in what the annotations of a value say; this table."""
        for mark in annotations_of(struct):
            match mark:
                case ConfigKey(table=table, name=name):
                    into = self.inside(table.name, table.meaning) if table else self
                    text = mark.without or without.format(name)
                    into.keys[name] = replace(mark, without=text)
                case Subtable(attribute=name, meaning=meaning, is_many=is_many):
                    self.inside(name, meaning, is_many=is_many).add(mark.struct)
                case Inlined(struct=inlined, instead=instead):
                    self.add(inlined, mark.without)
                    if instead is not None:
                        self.add(instead)
                case NamedKeys(attribute=name, meaning=meaning, key=key):
                    self.inside(name, meaning, named=key)
        return self


def joined(*parts: str) -> str:
    """The path of a key below a table."""
    return ".".join(part for part in parts if part)
