"""The house rules that a machine can check: sizes, banned words, dead modules, links.

Each rule names every offender with its line. Limits only ever get tighter. Rules with exceptions,
which are recorded and can only get fewer, are in tests/ratchet.py.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from samelog.cli.main import SUBCOMMANDS

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("samelog", "tests", "bench", "scripts")
PARTS = ("publisher", "replicator", "sequencer", "archiver", "subscriber", "spark")

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN_MAX = 10
POSITIONAL_MAX = 5

# Written in two halves, so that this file does not name them.
BANNED_ANYWHERE = ("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")
BANNED_CALLS = ("pickle.loads", "pickle.load", "yaml.load")
BANNED_CALLS_IN_TESTS = ("time.sleep",)
DEVELOPER_PATH = re.compile(r"(?<![\w.])/(?:home|Users|root|work)/\w")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*suffixes: str, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """The project's own files with these suffixes."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes and path.is_file())


@cache
def tree(path: Path) -> ast.Module:
    """A Python file, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@pytest.fixture(scope="module", autouse=True)
def uncollected() -> Iterator[None]:
    """A million syntax nodes that all stay: looking for garbage among them is most of the time."""
    gc.disable()
    yield
    gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every syntax node of a file."""
    return tuple(ast.walk(tree(path)))


def place(path: Path, node: ast.AST) -> str:
    """Where a syntax node is, for a message."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a file."""
    return (node for node in nodes(path) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from `def` to the last one."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def dotted(node: ast.expr) -> str:
    """`a.b.c` as text; empty for anything else."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
    return ""


def reject(offenders: Iterable[str]) -> None:
    """Fail, naming every offender on a line of its own."""
    found = list(offenders)
    assert not found, "\n".join(["", *found])


def calls(path: Path, names: tuple[str, ...]) -> Iterator[str]:
    """Where a file calls one of these."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and dotted(node.func) in names:
            yield f"{place(path, node)} calls {dotted(node.func)}"


def test_files_are_short() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in sources(".py", ".pyx", ".pxi")}
    reject(
        f"{path.relative_to(ROOT)}: {size} lines"
        for path, size in sizes.items()
        if size > FILE_LINES_MAX
    )


def test_functions_are_short() -> None:
    reject(
        f"{place(path, function)} {function.name}: {length(function)} lines"
        for path in sources(".py")
        for function in functions(path)
        if length(function) > FUNCTION_LINES_MAX
    )


def test_most_functions_are_very_short() -> None:
    samelog = sources(".py", folders=("samelog",))
    lengths = [length(function) for path in samelog for function in functions(path)]
    assert median(lengths) <= FUNCTION_LINES_MEDIAN_MAX


def test_functions_take_few_positional_arguments() -> None:
    too_many = []
    for path in sources(".py"):
        for function in functions(path):
            names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
            count = len([name for name in names if name not in {"self", "cls"}])
            if count > POSITIONAL_MAX:
                too_many.append(f"{place(path, function)} {function.name}: {count}")
    reject(too_many)


def test_every_module_says_why_it_exists() -> None:
    modules = [path for path in sources(".py") if path.read_text().strip()]
    reject(str(path) for path in modules if not ast.get_docstring(tree(path)))


def test_no_banned_words() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(BANNED_ANYWHERE)})\b")
    offenders = []
    for path in sources(".py", ".pyx", ".pxi", ".pyi", ".h", ".sh", ".md", folders=all_folders()):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line) or DEVELOPER_PATH.search(line):
                offenders.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    reject(offenders)


def all_folders() -> tuple[str, ...]:
    """Where text of the project lies; its top level holds no sources but setup.py."""
    return ("samelog", "tests", "bench", "scripts", "docs", "deploy")


def test_no_banned_calls() -> None:
    everywhere = [found for path in sources(".py") for found in calls(path, BANNED_CALLS)]
    tests = sources(".py", folders=("tests",))
    reject(everywhere)
    reject(found for path in tests for found in calls(path, BANNED_CALLS_IN_TESTS))


def test_no_assert_and_no_bare_except_in_the_product() -> None:
    """`python -O` removes assertions, so they can't guard data."""
    reject(
        place(path, node)
        for path in sources(".py", folders=("samelog",))
        for node in nodes(path)
        if isinstance(node, ast.Assert)
        or (isinstance(node, ast.ExceptHandler) and node.type is None)
    )


def module_name(path: Path) -> str:
    """`samelog.a.b` for a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Every module that a file may import, and every name in it that could be a module."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_module_is_used() -> None:
    """By another module or more tests than its own; or it is a command, or a program."""
    used = {f"samelog.cli.commands.{module}" for module, _ in SUBCOMMANDS.values()}
    for path in sources(".py"):
        own = module_name(path).replace("tests.", "samelog.").replace(".test_", ".")
        used |= set(imports(path)) - {own}
    product = sources(".py", folders=("samelog",))
    modules = [path for path in product if path.name != "__init__.py" and not is_program(path)]
    reject(module_name(path) for path in modules if module_name(path) not in used)


def is_program(path: Path) -> bool:
    """Whether a file does something when it is run."""
    return '\nif __name__ == "__main__":\n' in path.read_text()


def test_nothing_is_imported_through_the_links() -> None:
    reject(
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(".py")
        for name in imports(path)
        if name.split(".")[0] in PARTS
    )


def test_the_parts_are_linked_at_the_top() -> None:
    existing = [name for name in PARTS if (ROOT / "samelog" / name / "__init__.py").exists()]
    links = {name: (ROOT / name) for name in PARTS if (ROOT / name).is_symlink()}
    assert sorted(links) == sorted(existing)
    assert all(link.readlink() == Path("samelog", name) for name, link in links.items())
