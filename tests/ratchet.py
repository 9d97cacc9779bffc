"""Limits of the code: measures, records in tests/ratchet.toml, and comparisons by test_ratchet.py.

`python -m tests.ratchet` records the exceptions that are left. Invariant: it records no new and no
worse exception, and never changes a package's budget of lines, which is raised by hand, in a commit
of its own that says why.
"""

from __future__ import annotations

import ast
import gc
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tests.house_words import house_words

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).with_suffix(".toml")
DOCS_COLUMNS_MAX = 100
CODE = {".py", ".pyi", ".pyx", ".pxi", ".c", ".h", ".js", ".css"}

BUDGET_HEADING = "budget]  # lines; raised only by hand, in a commit of its own that says why"

Measured = dict[str, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def product() -> dict[Path, ast.Module]:
    """Every Python file of the product, parsed.

    What other tests left is thrown away before: when it is in the middle of parsing, and somebody
    logs in a finalizer, CPython 3.11 counts its depth wrong (python/cpython#106905).
    """
    gc.collect()
    paths = sorted((ROOT / "samelog").rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in paths}


def definitions() -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Every function and class of the product, as `module.qualified.name`."""
    for path, tree in product().items():
        module = path.parent.name if path.name == "__init__.py" else path.stem
        yield from _definitions(tree, f"{module}.")


def _definitions(tree: ast.AST, within: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            yield within + node.name, node
            yield from _definitions(node, f"{within}{node.name}.")
        else:
            yield from _definitions(node, within)


def fields_per_class() -> Measured:
    """Fields of each class: declared ones of values, attributes set on `self` of others."""
    found: Measured = {}
    for name, node in definitions():
        if isinstance(node, ast.ClassDef) and not _is_catalogue(node):
            found[name] = max(found.get(name, 0), len(_fields(node)))
    return found


def _is_catalogue(node: ast.ClassDef) -> bool:
    """Whether what a class declares are constants: members of an enum, keys of a dictionary."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return bool(bases & {"Enum", "IntEnum", "IntFlag", "StrEnum", "TypedDict"})


def _fields(node: ast.ClassDef) -> set[str]:
    declared = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    attributes = (item for item in ast.walk(node) if isinstance(item, ast.Attribute))
    assigned = {
        item.attr
        for item in attributes
        if isinstance(item.ctx, ast.Store) and ast.unparse(item.value) == "self"
    }
    return declared | assigned


def parameters() -> Measured:
    """All named parameters of each function, but for `self` and `cls`."""
    found: Measured = {}
    for name, node in definitions():
        if isinstance(node, Function):
            args = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            count = sum(arg.arg not in {"self", "cls"} for arg in args)
            found[name] = max(found.get(name, 0), count)
    return found


def complexity() -> Measured:
    """How many ways lead through each function: one, and one more for each branch, loop, handler,
    case, `and`, `or`, and `for` and `if` of comprehensions. Nested functions count by themselves.
    """
    found: Measured = {}
    for name, node in definitions():
        if isinstance(node, Function):
            found[name] = max(found.get(name, 0), 1 + sum(map(_ways, _own_nodes(node))))
    return found


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield from _own_nodes(child)


def _ways(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While():
            return 1
        case ast.ExceptHandler() | ast.match_case():
            return 1
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=ifs):
            return 1 + len(ifs)
    return 0


def long_lines_in_docs() -> Measured:
    """Lines of each page above 100 characters, but for tables, and lines that are one address."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")]
    return {
        str(page.relative_to(ROOT)): sum(map(_is_long, page.read_text("utf-8").splitlines()))
        for page in pages
    }


def _is_long(line: str) -> bool:
    exempt = line.startswith("|") or ("://" in line and len(line.split()) == 1)
    return len(line) > DOCS_COLUMNS_MAX and not exempt


def duplicate_type_names() -> Measured:
    """In how many modules each type stands: classes and aliases that others can import."""
    found = Counter[str]()
    for tree in product().values():
        found.update({name for name in map(_type_name, tree.body) if name})
    return dict(found)


def _type_name(node: ast.stmt) -> str:
    """The type that a statement at the top of a module defines; aliases are in CamelCase."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp()):
            return name if re.fullmatch(r"_?(?:[A-Z][a-z]+)+\w*", name) else ""
        case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
            return name if "TypeAlias" in ast.unparse(kind) else ""
    return ""


def lines_per_package() -> Measured:
    """Lines of code of each package, whatever the language; `samelog` is its top level."""
    found = Counter[str]()
    for path in (ROOT / "samelog").rglob("*"):
        if path.suffix in CODE and not _is_generated(path):
            parts = path.relative_to(ROOT / "samelog").parts
            package = parts[0] if len(parts) > 1 else "samelog"
            found[package] += len(path.read_text(encoding="utf-8").splitlines())
    return dict(found)


def _is_generated(path: Path) -> bool:
    """Return whether Cython wrote the file."""
    return path.suffix == ".c" and path.with_suffix(".pyx").exists()


RULES: dict[str, tuple[int, Callable[[], Measured]]] = {
    "fields_per_class": (15, fields_per_class),
    "parameters": (8, parameters),
    "complexity": (10, complexity),
    "long_lines_in_docs": (0, long_lines_in_docs),
    "duplicate_type_names": (1, duplicate_type_names),
    "house_words": (0, house_words),
}
"""What is bounded: the bound, and what measures it. The record has those above the bound."""


@dataclass(frozen=True, slots=True)
class Record:
    """The content of tests/ratchet.toml. `budget`: the most lines each package may have."""

    exceptions: dict[str, Measured]
    reasons: dict[str, str] = field(default_factory=dict)
    budget: Measured = field(default_factory=dict)
    coverage: Measured = field(default_factory=dict)


def recorded() -> Record:
    """Read tests/ratchet.toml."""
    data = tomllib.loads(RECORD.read_text(encoding="utf-8"))
    return Record(
        {rule: data.get(rule, {}) for rule in RULES},
        data.get("reasons", {}),
        data.get("budget", {}),
        data.get("coverage", {}),
    )


@cache
def measured(rule: str) -> Measured:
    """What is above the bound of a rule now."""
    limit, measure = RULES[rule]
    return {name: value for name, value in sorted(measure().items()) if value > limit}


def exceeded(now: Measured, allowed: Measured) -> list[str]:
    """What is above what was recorded."""
    return [
        f"{name}: {value}, {allowed[name]} allowed" if name in allowed else f"{name}: {value}"
        for name, value in now.items()
        if value > allowed.get(name, 0)
    ]


def all_exceeded(record: Record) -> list[str]:
    """Return every exception above its record, and every package above its budget."""
    found = [
        f"{rule}: {text}"
        for rule in RULES
        for text in exceeded(measured(rule), record.exceptions[rule])
    ]
    return found + over_budget(lines_per_package(), record.budget)


def over_budget(lines: Measured, budget: Measured) -> list[str]:
    """Name the packages that have more lines than their budget, and those without one."""
    return [
        f"budget: {package} has {count:,} lines, {count - budget.get(package, 0):,} above its"
        f" budget of {budget.get(package, 0):,}"
        for package, count in sorted(lines.items())
        if count > budget.get(package, 0)
    ]


def stale(record: Record) -> list[str]:
    """What is recorded and no longer needed. Not for words: edits of texts would all collide in the
    record.
    """
    return [
        f"{rule}: {name} is recorded with {value}, and now {measured(rule).get(name, 'within')}"
        for rule in RULES
        if rule != "house_words"
        for name, value in record.exceptions[rule].items()
        if measured(rule).get(name, 0) < value
    ]


def growing(now: Measured, before: Measured) -> list[str]:
    """What would be new or worse in a record; names may change, numbers may not rise."""
    new, old = sorted(now.values(), reverse=True), sorted(before.values(), reverse=True)
    if len(new) <= len(old) and all(a <= b for a, b in zip(new, old, strict=False)):
        return []
    return exceeded(now, before)


def tightened(record: Record) -> Record:
    """The record as it may be from now on. Raises ValueError with what has grown instead."""
    grown = [
        f"{rule}: {name}"
        for rule in RULES
        for name in growing(measured(rule), record.exceptions[rule])
    ]
    if grown:
        raise ValueError("\n".join(grown))
    return replace(record, exceptions={rule: measured(rule) for rule in RULES})


def written(record: Record) -> str:
    """The text of tests/ratchet.toml; what stands before the first rule stays as it is."""
    parts = [RECORD.read_text(encoding="utf-8").partition(f"\n[{next(iter(RULES))}]")[0]]
    for rule, exceptions in record.exceptions.items():
        parts.append(_table(f"{rule}]  # above {RULES[rule][0]}", exceptions))
    kept = {name: text for name, text in record.reasons.items() if _is_needed(name, record)}
    parts.append(_table("reasons]", kept))
    parts.append(_table(BUDGET_HEADING, record.budget))
    parts.append(_table("coverage]  # per cent", record.coverage))
    return "\n".join(parts)


def _is_needed(reason: str, record: Record) -> bool:
    rule, _, name = reason.partition(".")
    return name in record.exceptions[rule]


def _table(heading: str, entries: Mapping[str, str | int]) -> str:
    lines = [
        f"{json.dumps(name)} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in entries.items()
    ]
    return "\n".join([f"[{heading}", *lines, ""])


def main(arguments: list[str]) -> int:
    """Record the measured exceptions; with `--check`, only report excess and obsolete records."""
    gc.disable()  # a million syntax nodes that all stay
    if arguments == ["--check"]:
        offenders = all_exceeded(recorded())
        said = [*offenders, *(f"{text}: python -m tests.ratchet" for text in stale(recorded()))]
        sys.stdout.writelines(f"{text}\n" for text in said)
        return 1 if offenders else 0
    try:
        record = tightened(recorded())
    except ValueError as error:
        sys.stderr.write(f"not recorded, because these have grown:\n{error}\n")
        return 1
    RECORD.write_text(written(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
