"""Which file of the project imports which, read from their syntax trees."""

import ast
import re
from functools import cache

from tests.support.common import ROOT

#: all modules of the library, as paths
MODULES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "cort").rglob("*.py"))
#: declarations of settings, whose values are params, and of paths; the other modules of cort/config/ are logic
NAMES = "__init__ collection evaluation fields learners lexical models paths root systems top_level training"
DECLARED = rf"cort/config/({'|'.join(NAMES.split())})\.py"
#: modules that know no results, and declarations
APART = {path for path in MODULES if path.startswith("cort/runtime/") or re.fullmatch(DECLARED, path)}


@cache
def tree_of(path):
    """Syntax tree of a file."""
    return ast.parse((ROOT / path).read_text("utf-8"))


def running(node):
    """Yield all nodes of a tree but those that are for type checkers alone."""
    waiting = [node]
    while waiting:
        yield (node := waiting.pop())
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        waiting += node.orelse if typing else ast.iter_child_nodes(node)


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


@cache
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


def module_of_command(stage, command):
    """Dotted name of the module that a stage runs for a command."""
    [commands] = [node.value for node in tree_of(f"cort/{stage}.py").body if ast.unparse(node).startswith("COMMANDS =")]
    return ast.literal_eval(commands)[command]


@cache
def program(command):
    """Files of cort/ that make the results of a stage, or of one of its commands."""
    stage, _, name = command.partition(" ")
    found, waiting = set(), list(files_of(module_of_command(stage, name) if name else f"cort.{stage}"))
    while waiting:
        path = waiting.pop()
        if path not in found and path not in APART:
            found.add(path)
            waiting += imports_of(path)
    return found
