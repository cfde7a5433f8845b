"""Build a real test collection from the docstrings of installed Python packages: find an entity by its summary.

A docstring's first paragraph is a query, and the remaining text is its one relevant passage. Source files are parsed,
never imported or run. Packages come from a lock file and must be installed in exactly the pinned version; the standard
library of the running Python is added. Tests and vendored copies are left out.

Reads:  a lock file of ``name==version`` lines; the .py files of these packages and of the standard library
Writes: F/collection.tsv, F/queries.{train,validation,test}.tsv, F/qrels.{train,validation,test}.tsv, F/filters.json
Usage:  python -m cort.pydocs --lock requirements.lock --output-folder F --min-query-words 4 --max-query-words 30
            --min-passage-words 20 --validation-queries 500 --test-queries 500 --seed 42
"""

from __future__ import annotations

import ast
import importlib.metadata
import logging
import platform
import re
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cort.config.collection import Pydocs
from cort.config.fields import Seed
from cort.formats.artifacts import write_artifact
from cort.formats.records import in_blocks
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.files import write_text
from cort.runtime.processes import map_in_order
from cort.runtime.progress import track
from cort.runtime.sampling import sample
from cort.runtime.sections import AnyFile, FolderPath, Threads, same_as
from cort.sources.documents import one_line

log = logging.getLogger(__name__)

# Locked after the results of the quickstart were published, which would change with more passages.
LEFT_OUT = frozenset({"faiss-cpu", "ir_datasets", "lxml", "lz4", "pypdf", "sentence-transformers", "sentencex"})
# Tests describe no entity; only one of two copies of a vendored package would be judged relevant.
EXCLUDED_FOLDERS = {
    *("test", "tests", "idlelib", "ensurepip", "site-packages", "dist-packages"),
    *("_vendor", "_vendored", "vendor", "vendored", "_vendored_packages", "extern", "externals"),
}
FILES_PER_TASK = 32

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_PIN = re.compile(r"^([\w.-]+)==([\w.!+-]+)", re.MULTILINE)

#: name of a Python file, which is its path in site-packages or in the standard library, and where it is
Source = tuple[str, Path]


class Docstring(NamedTuple):
    """One docstring with whitespace normalised; `doc_id` is ``file.py`` or ``file.py:Class.method``."""

    doc_id: str
    summary: str
    body: str


def list_package_files(lock: str) -> Iterator[Source]:
    """List the Python files of the pinned packages, according to their installation records."""
    for package, version in _PIN.findall(Path(lock).read_text(encoding="utf-8")):
        if package in LEFT_OUT:
            continue
        try:
            distribution = importlib.metadata.distribution(package)
            installed = distribution.version
        except importlib.metadata.PackageNotFoundError:
            installed = "not"
        # A pin without a local label (+cpu) matches every build of that version (PEP 440).
        if version not in (installed, installed.split("+")[0]):
            fix = f"run `pip install -r {lock}`"
            raise input_error(lock, f"{package} {installed} installed", f"{package}=={version}", fix)
        for file in distribution.files or ():
            if ".." not in file.parts:
                yield file.as_posix(), Path(str(distribution.locate_file(file)))


def list_sources(packages: Iterable[Source], library: Path) -> list[Source]:
    """Order the Python files of packages and of the standard library by name; packages come before the library."""
    paths = {path.relative_to(library).as_posix(): path for path in library.rglob("*.py")} | dict(packages)
    # Names with whitespace would become ids that run files cannot contain.
    names = (name for name in sorted(paths) if name.endswith(".py") and name.split() == [name])
    return [(name, paths[name]) for name in names if EXCLUDED_FOLDERS.isdisjoint(name.split("/"))]


def parse_files(sources: Iterable[Source]) -> list[list[Docstring] | None]:
    """Read the docstrings of each file in source order; None for a file that is not valid Python."""
    found: list[list[Docstring] | None] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, path in sources:
            try:
                found.append(list(iter_docstrings(name, ast.parse(path.read_bytes()))))
            except (SyntaxError, ValueError):
                found.append(None)
    return found


def iter_docstrings(name: str, module: ast.Module) -> Iterator[Docstring]:
    """Yield the docstrings of a module, its classes and its functions at any depth.

    The second docstring under one qualified name (a setter, another branch of an ``if``) gets ``#2``, and so on.
    """
    seen: Counter[str] = Counter()
    # An explicit stack: a long chain of elif nests deeper than the recursion limit.
    stack: list[tuple[str, ast.AST]] = [("", module)]
    while stack:
        prefix, node = stack.pop()
        if isinstance(node, Definition):
            if not isinstance(node, ast.Module):
                prefix = f"{prefix}.{node.name}" if prefix else node.name
            if docstring := (ast.get_docstring(node) or "").strip():
                seen[prefix] += 1
                again = f"#{seen[prefix]}" if seen[prefix] > 1 else ""
                summary, *body = _PARAGRAPH_END.split(docstring, maxsplit=1)
                place = f"{name}:{prefix}" if prefix else name
                yield Docstring(place + again, one_line(summary), one_line("".join(body)))
        # Definitions are statements, so expressions need no visit.
        children = reversed([*ast.iter_child_nodes(node)])
        stack += [(prefix, child) for child in children if isinstance(child, STATEMENTS)]


def select(docstrings: Iterable[Docstring], limits: Pydocs) -> tuple[list[Docstring], list[Docstring], dict[str, int]]:
    """Choose passages and queries by id; also return how many each filter dropped, in the order of the filters.

    Of equal bodies, or equal summaries, the one with the first id is kept. A repeated summary drops only the query; its
    passage remains in the collection, unjudged.
    """
    found = sorted(docstrings)
    fitting = [one for one in found if limits.min_query_words <= len(one.summary.split()) <= limits.max_query_words]
    long = [one for one in fitting if len(one.body.split()) >= limits.min_passage_words]
    passages = sorted({one.body: one for one in reversed(long)}.values())
    queries = sorted({one.summary: one for one in reversed(passages)}.values())
    counts = {
        "docstrings": len(found),
        "dropped: summary too short or too long": len(found) - len(fitting),
        "dropped: body too short": len(fitting) - len(long),
        "dropped: body seen before": len(long) - len(passages),
        "queries dropped: summary seen before": len(passages) - len(queries),
        "passages kept": len(passages),
        "queries kept": len(queries),
    }
    return passages, queries, counts


def split_queries(queries: list[Docstring], validation: int, test: int, seed: int) -> dict[str, list[Docstring]]:
    """Draw validation and test queries from all, in order of their ids, which each split keeps; train is the rest."""
    if validation + test >= len(queries):
        found = f"{validation} and {test} of {len(queries)} queries"
        fix = "ask for fewer queries or loosen the word limits"
        raise input_error("--validation-queries and --test-queries", found, "some left for training", fix)
    drawn = sample(queries, validation + test, seed)
    parts = {"train": {*queries} - {*drawn}, "validation": drawn[:validation], "test": drawn[validation:]}
    return {name: sorted(part) for name, part in parts.items()}


class Options(Pydocs):
    """Options of this stage; all bounds are inclusive and count whitespace-separated words."""

    lock: AnyFile
    """Lines of name==version."""
    output_folder: FolderPath
    """Where to write."""
    seed: int = same_as(Seed, "seed")
    """Seed of the split."""
    threads: Threads = 1
    """Processes that parse."""


def stage(options: Options) -> None:
    """Collect docstrings, select passages and queries, split the queries, and write all files."""
    sources = list_sources(list_package_files(options.lock), Path(sysconfig.get_path("stdlib")))
    log.info("%d files of %s and of Python %s", len(sources), options.lock, platform.python_version())
    blocks = map_in_order(parse_files, in_blocks(sources, lambda _: 1, FILES_PER_TASK), options.threads)
    results = [result for block in track(blocks, len(sources), "files", size=len) for result in block]
    passages, queries, counts = select(chain.from_iterable(filter(None, results)), options)
    unparsed = [name for (name, _), result in zip(sources, results, strict=True) if result is None]
    filters = {"files": len(sources), "files dropped: not valid Python": len(unparsed), **counts}
    splits = split_queries(queries, options.validation_queries, options.test_queries, options.seed)
    folder = Path(options.output_folder)
    write_text(folder / "collection.tsv", "".join(f"{one.doc_id}\t{one.body}\n" for one in passages))
    for name, part in splits.items():
        write_text(folder / f"queries.{name}.tsv", "".join(f"q:{one.doc_id}\t{one.summary}\n" for one in part))
        write_text(folder / f"qrels.{name}.tsv", "".join(f"q:{one.doc_id}\t0\t{one.doc_id}\t1\n" for one in part))
    write_artifact(folder / "filters.json", filters)
    log.info("filters: %s", ", ".join(f"{name} {count}" for name, count in filters.items()))
    log.info("files not parsed: %s", ", ".join(unparsed) or "none")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
