"""The code behind a stage's results: every project file that it can import, each with a hash of what it does.

A hash covers the syntax tree without docstrings and version number, so that comments, docstrings and formatting do not
count. Files other than Python belong to the modules beside them that name them; their content is hashed.
"""

from __future__ import annotations

import ast
import atexit
import functools
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cort.runtime.commands import module_of
from cort.runtime.files import write_text

ROOT = Path(__file__).parents[2]
#: what changes no result: command lines, files, locks, devices; declarations of keys, whose values are params, and of
#: paths, which are inputs and outputs of jobs
APART: tuple[str, ...] = ("cort/runtime/",)
DECLARATIONS = "__init__ collection evaluation fields learners lexical models paths root systems top_level training"
APART += tuple(f"cort/config/{name}.py" for name in DECLARATIONS.split())
MODULE = re.compile(r"cort(\.\w+)*")
# Facts about sources that the user's cache keeps; the oldest ones go.
KEPT = 2_000

# A hash of what a source does, and the modules it names.
Facts = tuple[str, list[str]]


def program_of(stage: str) -> dict[str, str]:
    """Hash every project file that `stage` (``"cort.fuse"``) imports at any time; the key is its path.

    For a stage with several commands, name one (``"cort.encode tokens"``); its module alone counts.
    """
    hashes: dict[str, str] = {}
    waiting = list(_with_packages(module_of(stage)))
    seen = set(waiting)
    while waiting:
        path = _file_of(ROOT, waiting.pop())
        if path is None or (name := path.relative_to(ROOT).as_posix()).startswith(APART):
            continue
        hashes[name], modules = _facts(path)
        hashes |= _data_of(path)
        new = {part for name in modules for part in _with_packages(name)} - seen
        waiting.extend(new)
        seen |= new
    return dict(sorted(hashes.items()))


def _with_packages(module: str) -> Iterator[str]:
    return itertools.accumulate(module.split("."), "{}.{}".format)


def _cache() -> Path:
    """Place of facts about sources by their content: parsing all of them takes a second at each start of a workflow.

    It is the user's, because a project may be a shared checkout that nobody writes into.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cort" / "program.json"


@functools.cache
def _known() -> dict[str, Facts]:
    # RuntimeError: there is no home.
    with suppress(OSError, RuntimeError, TypeError, ValueError):
        return dict(json.loads(_cache().read_text(encoding="utf-8")))
    return {}


@functools.cache
def _write_at_exit() -> None:
    atexit.register(_write)


def _write() -> None:
    with suppress(OSError, RuntimeError):
        write_text(_cache(), json.dumps(dict([*_known().items()][-KEPT:])))


@functools.cache
def _file_of(root: Path, module: str) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def _facts(path: Path) -> Facts:
    source, known = path.read_bytes(), _known()
    # The facts also depend on the release of Python and on this module.
    key = _short(b"\n".join([source, str(sys.implementation.cache_tag).encode(), Path(__file__).read_bytes()]))
    if key not in known:
        tree = ast.parse(source)
        _write_at_exit()
        known[key] = _short(repr(_plain(tree)).encode()), sorted(set(filter(MODULE.fullmatch, _names(tree))))
    return known[key]


@functools.cache
def _data_of(path: Path) -> dict[str, str]:
    """Hash the files, other than Python, that a source names and that are beside it or in folders beside it."""
    source = path.read_text(encoding="utf-8")
    named = [other for other in _data_beside(path.parent) if f'"{other.name}"' in source]
    files = [file for other in named for file in ([other] if other.is_file() else sorted(other.rglob("*")))]
    return {file.relative_to(ROOT).as_posix(): _short(file.read_bytes()) for file in files if file.is_file()}


@functools.cache
def _data_beside(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix != ".py" and not (path / "__init__.py").is_file()]


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the modules and names that a source imports, and its strings, which may name modules to run."""
    children = ast.iter_child_nodes(tree)
    match tree:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            children = iter(tree.orelse)
        case ast.Import():
            yield from (alias.name for alias in tree.names)
        case ast.ImportFrom(module=str()):
            yield from (f"{tree.module}.{alias.name}" for alias in tree.names)
        case ast.Constant(value=str(text)):
            yield text
    for child in children:
        yield from _names(child)


def _plain(node: Any) -> Any:
    """Keep what matters in a syntax tree: no positions, and nothing empty, which differs between releases of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, _plain(value)) for name, value in ast.iter_fields(node))
        return type(node).__name__, [(name, value) for name, value in fields if value is not None and value != []]
    return [_plain(child) for child in node if not _changes_nothing(child)] if isinstance(node, list) else node


def _changes_nothing(statement: object) -> bool:
    """Whether a statement is a docstring, sets the version, or is for type checkers only."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())) | ast.Assign(targets=[ast.Name(id="__version__")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
            return True
    return False


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
