"""Which file of the project imports which, read from their syntax trees."""

import ast
import re
from functools import cache

from tests.support.common import ROOT

#: all modules of the library, as paths
MODULES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "cort").rglob("*.py"))
#: modules that know no results, and declarations of settings, whose values are params
APART = {path for path in MODULES if path.startswith(("cort/runtime/", "cort/settings/"))}
APART -= {"cort/settings/config.py"}


@cache
def tree_of(path):
    """Syntax tree of a file."""
    return ast.parse((ROOT / path).read_text("utf-8"))


def running(node):
    """Yield all nodes of a tree but those that are for type checkers alone."""
    yield node
    typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for child in node.orelse if typing else ast.iter_child_nodes(node):
        yield from running(child)


@cache
def names_of(path):
    """Modules that a file imports when it runs, wherever it does, and names that it takes from modules; with dots."""
    return named_in(running(tree_of(path)))


def named_in(nodes):
    """Modules that nodes of a syntax tree import, and names that they take from modules; with dots."""
    named = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            named |= {f"{node.module}.{alias.name}" for alias in node.names}
    return named


def module_file(name):
    """File of the module that a dotted name stands for, or in which it stands; None if it is not this project's."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        base = "/".join(parts[:end])
        for path in (f"{base}.py", f"{base}/__init__.py"):
            if (ROOT / path).is_file():
                return path
    return None


@cache
def imports_of(path):
    """Files of cort/ that a file names: by imports, wherever they stand, or in strings, as programs to be run."""
    constants = (node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant))
    named = names_of(path) | {value for value in constants if isinstance(value, str)}
    return {file for name in named if re.fullmatch(r"cort(\.\w+)+", name) for file in files_of(name)}


def files_of(module):
    """Files that an import of a module, or of a name in one, runs."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        base = "/".join(parts[:end])
        yield from (name for name in (f"{base}.py", f"{base}/__init__.py") if (ROOT / name).is_file())


def imports_of_command(path, command):
    """Files of cort/ that one command of a stage names, in what it reaches of the stage's definitions and imports."""
    defined, imported = {}, {}
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            (target,) = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            defined |= {part.id: node for part in ast.walk(target) if isinstance(part, ast.Name)}
    entries = defined["COMMANDS"].value
    (entry,) = [value for key, value in zip(entries.keys, entries.values, strict=True) if key.value == command]
    found, waiting, seen = {"cort.runtime.cli"}, [entry], set()
    while waiting:
        for node in running(waiting.pop()):
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                found |= {imported[node.id]} if node.id in imported else set()
                waiting += [defined[node.id]] if node.id in defined else []
    return {file for name in found if name.startswith("cort.") for file in files_of(name)}


@cache
def program(command):
    """Files of cort/ that make the results of a stage, or of one of its commands."""
    stage, _, name = command.partition(" ")
    found, waiting = set(), list(files_of(f"cort.{stage}"))
    if name:
        found.add(f"cort/{stage}.py")
        waiting += imports_of_command(f"cort/{stage}.py", name)
    while waiting:
        path = waiting.pop()
        if path not in found and path not in APART:
            found.add(path)
            waiting += imports_of(path)
    return found
