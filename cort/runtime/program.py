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
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cort.runtime.files import write_text

ROOT = Path(__file__).parents[2]
#: what changes no result: command lines, files, locks, devices; declarations of config keys, whose values are params
APART = ("cort/runtime/", "cort/settings/")
#: what is more than declarations of keys and of paths, which are inputs and outputs of jobs
LOGIC = ("cort/settings/config.py",)
MODULE = re.compile(r"cort(\.\w+)*")
#: facts about sources by their content, because parsing all of them takes seconds at each start of a workflow
CACHE = Path(".snakemake") / "program.json"

# A hash of what a source does, and the modules it names.
Facts = tuple[str, list[str]]


def program_of(stage: str) -> dict[str, str]:
    """Hash every project file that `stage` (``"cort.fuse"``) imports at any time; the key is its path.

    For a stage with several commands, name one (``"cort.encode tokens"``); code that only others use does not count.
    """
    hashes: dict[str, str] = {}
    module, _, command = stage.partition(" ")
    file = _file_of(ROOT, module)
    waiting = list(_with_packages(module))
    seen = set(waiting)
    while waiting:
        path = _file_of(ROOT, waiting.pop())
        if path is None or ((name := path.relative_to(ROOT).as_posix()).startswith(APART) and name not in LOGIC):
            continue
        hashes[name], modules = _facts(path, command if path == file else "")
        hashes |= _data_of(path)
        new = {part for name in modules for part in _with_packages(name)} - seen
        waiting.extend(new)
        seen |= new
    return dict(sorted(hashes.items()))


def _with_packages(module: str) -> Iterator[str]:
    return itertools.accumulate(module.split("."), "{}.{}".format)


@functools.cache
def _read_cache(root: Path) -> dict[str, Facts]:
    with suppress(OSError, TypeError, ValueError):
        return dict(json.loads((root / CACHE).read_text(encoding="utf-8")))
    return {}


@functools.cache
def _write_cache_at_exit(root: Path) -> None:
    atexit.register(_write_cache, root)


def _write_cache(root: Path) -> None:
    if (root / CACHE).parent.is_dir():
        with suppress(OSError):
            write_text(root / CACHE, json.dumps(_read_cache(root)))


@functools.cache
def _file_of(root: Path, module: str) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def _facts(path: Path, command: str) -> Facts:
    source, known = path.read_bytes(), _read_cache(ROOT)
    # The facts also depend on the release of Python and on this module.
    context = f"{command} {sys.implementation.cache_tag}".encode()
    key = _short(b"\n".join([source, context, Path(__file__).read_bytes()]))
    if key not in known:
        tree = ast.parse(source)
        if command:
            _keep_command(tree, command)
        _write_cache_at_exit(ROOT)
        known[key] = _short(repr(_plain(tree)).encode()), sorted(set(filter(MODULE.fullmatch, _names(tree))))
    return known[key]


def _keep_command(tree: ast.Module, command: str) -> None:
    """Remove the definitions and imports of a stage that only its other commands use."""
    names = {name: statement for statement in tree.body for name in _defined(statement)}
    commands = getattr(names.get("COMMANDS"), "value", None)
    if isinstance(commands, ast.Dict):
        entries = zip(commands.keys, commands.values, strict=True)
        commands.values = [value for key, value in entries if getattr(key, "value", None) == command]
        commands.keys = [ast.Constant(command) for _ in commands.values]
    used, read, waiting = set(), set(), [statement for statement in tree.body if not _defined(statement)]
    while waiting:
        statement = waiting.pop()
        if statement not in used:
            used.add(statement)
            mentioned = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            read |= mentioned
            waiting += [names[name] for name in mentioned & names.keys()]
    tree.body = [statement for statement in tree.body if statement in used]
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
            statement.names = [alias for alias in statement.names if (alias.asname or alias.name) in read]


def _defined(statement: ast.stmt) -> list[str]:
    """List the names that a top-level statement defines."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name.partition(".")[0] for alias in aliases]
        case ast.Assign(targets=targets):
            return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


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
