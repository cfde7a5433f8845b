"""Docstrings of a Python file, by parsing alone: nothing is imported or run."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)

_PARAGRAPH_END = re.compile(r"\n\s*\n")


class Source(NamedTuple):
    """One Python file: `name` is its path relative to site-packages or to the standard library."""

    name: str
    path: str
    package: str


class Docstring(NamedTuple):
    """One docstring with single blanks for whitespace; `doc_id` is ``file.py`` or ``file.py:Class.method``."""

    doc_id: str
    summary: str
    body: str


def parse_file(source: Source) -> list[Docstring] | None:
    """Read one file's docstrings in source order; None when it is no valid Python."""
    content = Path(source.path).read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(iter_docstrings(source.name, ast.parse(content)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def iter_docstrings(name: str, module: ast.Module) -> Iterator[Docstring]:
    """Yield the docstrings of a module, its classes and its functions at any depth.

    The second docstring under one qualified name (a setter, another branch of an ``if``) gets ``#2``, and so on.
    """
    seen: Counter[str] = Counter()
    for qualified, node in _iter_definitions(module):
        docstring = (ast.get_docstring(node) or "").strip()
        if not docstring:
            continue
        seen[qualified] += 1
        again = f"#{seen[qualified]}" if seen[qualified] > 1 else ""
        doc_id = (f"{name}:{qualified}" if qualified else name) + again
        summary, *body = _PARAGRAPH_END.split(docstring, maxsplit=1)
        yield Docstring(doc_id, _normalise(summary), _normalise("".join(body)))


def _iter_definitions(module: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Yield (qualified name, node) in source order."""
    # A stack of our own: a long chain of elif nests deeper than recursion may.
    stack: list[tuple[str, ast.AST]] = [("", module)]
    while stack:
        prefix, node = stack.pop()
        if isinstance(node, Definition):
            if not isinstance(node, ast.Module):
                prefix = f"{prefix}.{node.name}" if prefix else node.name
            yield prefix, node
        # Definitions are statements: expressions need no visit.
        children = reversed([*ast.iter_child_nodes(node)])
        stack += [(prefix, child) for child in children if isinstance(child, STATEMENTS)]


def _normalise(text: str) -> str:
    # An escape such as "\ud800" in a literal makes half a character, which UTF-8 cannot hold.
    return " ".join(text.split()).encode("utf-8", "replace").decode("utf-8")
