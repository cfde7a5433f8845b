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
import hashlib
import importlib.metadata
import json
import logging
import multiprocessing
import os
import platform
import random
import re
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from cort.formats.lines import iter_lines
from cort.formats.records import Text
from cort.settings.collection import Pydocs
from cort.settings.fields import SEED
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import atomic_file
from cort.system.options import optional, options_class, required
from cort.system.progress import track

log = logging.getLogger(__name__)

STANDARD_LIBRARY = "standard library"
# Has no Python files, and may be missing from machines that cannot compile it.
COMPILED_HERE = frozenset({"hnswlib"})
# Were locked after the results of the quickstart were published, which would change with more passages.
LEFT_OUT = frozenset({"ir_datasets", "lxml", "lz4", "pypdf", "sentence-transformers", "sentencex"})
# Tests describe no entity; only one of two copies of a vendored package would be judged relevant.
EXCLUDED_FOLDERS = {
    *("test", "tests", "idlelib", "ensurepip", "site-packages", "dist-packages"),
    *("_vendor", "_vendored", "vendor", "vendored", "_vendored_packages", "extern", "externals"),
}
SPLITS = ("train", "validation", "test")
TOP_PACKAGES, FILES_PER_TASK = 10, 32
# Names of the filters' counts.
SUMMARY_LENGTH = "dropped: summary too short or too long"
BODY_LENGTH = "dropped: body too short"
BODY_REPEATED = "dropped: body seen before"
SUMMARY_REPEATED = "queries dropped: summary seen before"

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")


class Source(NamedTuple):
    """One Python file: `name` is its path relative to site-packages or to the standard library."""

    name: str
    path: str
    package: str


class Docstring(NamedTuple):
    """One docstring with whitespace normalised; `doc_id` is ``file.py`` or ``file.py:Class.method``."""

    doc_id: str
    summary: str
    body: str


def read_lock(path: str | Path) -> dict[str, str]:
    """Read the pins, name to version; skip comments, pip's options and hashes, and refuse anything else."""
    pins: dict[str, str] = {}
    for row, line in iter_lines(path):
        pin = line.split(" #")[0].removesuffix("\\").strip()
        if not pin or pin.startswith(("#", "-")):
            continue
        match = _PIN.fullmatch(pin)
        if match is None:
            raise input_error(path, shorten(line), "name==version", "pin each package exactly (`pip freeze`)", row)
        pins[match[1]] = match[2]
    if not pins:
        raise input_error(path, "no packages", "lines of name==version", "name the lock file")
    return pins


def list_package_files(lock: str | Path, pins: dict[str, str]) -> Iterator[Source]:
    """List the Python files of the pinned packages, according to their installation records."""
    for package, version in pins.items():
        if package in LEFT_OUT:
            continue
        expected, fix = f"{package}=={version}", f"run `pip install -r {lock}`"
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            if package in COMPILED_HERE:
                continue
            raise input_error(lock, f"{package} not installed", expected, fix) from None
        # A pin without a local label (+cpu) matches every build of that version (PEP 440).
        if version not in (distribution.version, distribution.version.split("+")[0]):
            raise input_error(lock, f"{package} {distribution.version} installed", expected, fix)
        if distribution.files is None:
            raise input_error(lock, f"{package} without a list of its files", "a package installed by pip", fix)
        for file in distribution.files:
            if file.suffix == ".py" and ".." not in file.parts and EXCLUDED_FOLDERS.isdisjoint(file.parts):
                yield Source(file.as_posix(), str(distribution.locate_file(file)), package)


def list_library_files(root: str | Path) -> Iterator[Source]:
    """List the Python files below the folder of the standard library."""
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders) - EXCLUDED_FOLDERS
        for path in (Path(folder, file) for file in files if file.endswith(".py")):
            yield Source(path.relative_to(root).as_posix(), str(path), STANDARD_LIBRARY)


def list_sources(packages: Iterable[Source], library: Iterable[Source]) -> list[Source]:
    """Order all files by name; a file that several packages own belongs to the first."""
    sources = {source.name: source for source in reversed([*packages, *library])}
    # Names with whitespace would become ids that run files cannot contain.
    return [sources[name] for name in sorted(sources) if name.split() == [name]]


def read_docstrings(sources: Sequence[Source], threads: int) -> Iterator[list[Docstring] | None]:
    """Parse the files in order; yield None for a file that is not valid Python."""
    if threads == 1:
        yield from map(parse_file, sources)
        return
    # Spawned workers inherit no state, so they behave the same on every platform and do not copy this process.
    with ProcessPoolExecutor(threads, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(parse_file, sources, chunksize=FILES_PER_TASK)


def parse_file(source: Source) -> list[Docstring] | None:
    """Read one file's docstrings in source order; None if it is not valid Python."""
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
        if docstring := (ast.get_docstring(node) or "").strip():
            seen[qualified] += 1
            again = f"#{seen[qualified]}" if seen[qualified] > 1 else ""
            doc_id = (f"{name}:{qualified}" if qualified else name) + again
            summary, *body = _PARAGRAPH_END.split(docstring, maxsplit=1)
            yield Docstring(doc_id, _normalise(summary), _normalise("".join(body)))


def _iter_definitions(module: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Yield (qualified name, node) in source order."""
    # An explicit stack: a long chain of elif nests deeper than the recursion limit.
    stack: list[tuple[str, ast.AST]] = [("", module)]
    while stack:
        prefix, node = stack.pop()
        if isinstance(node, Definition):
            if not isinstance(node, ast.Module):
                prefix = f"{prefix}.{node.name}" if prefix else node.name
            yield prefix, node
        # Definitions are statements, so expressions need no visit.
        children = reversed([*ast.iter_child_nodes(node)])
        stack += [(prefix, child) for child in children if isinstance(child, STATEMENTS)]


def _normalise(text: str) -> str:
    # Escapes in a literal make characters that text files cannot hold: "\0" is NUL, "\ud800" half a surrogate pair.
    return " ".join(text.replace("\0", " ").split()).encode("utf-8", "replace").decode("utf-8")


def select(docstrings: Iterable[Docstring], limits: Options) -> tuple[list[Text], list[Text], dict[str, int]]:
    """Choose passages and queries; also return how many each filter dropped, in the order of the filters.

    Of equal bodies, or equal summaries, the one with the first id is kept. A repeated summary drops only the query; its
    passage remains in the collection, unjudged.
    """
    counts = dict.fromkeys(("docstrings", SUMMARY_LENGTH, BODY_LENGTH, BODY_REPEATED, SUMMARY_REPEATED), 0)
    passages: dict[bytes, Text] = {}
    queries: dict[str, Text] = {}
    for doc_id, summary, body in sorted(docstrings):
        counts["docstrings"] += 1
        digest = hashlib.sha256(body.encode()).digest()
        if not limits.min_query_words <= len(summary.split()) <= limits.max_query_words:
            counts[SUMMARY_LENGTH] += 1
        elif len(body.split()) < limits.min_passage_words:
            counts[BODY_LENGTH] += 1
        elif digest in passages:
            counts[BODY_REPEATED] += 1
        else:
            passages[digest] = Text(doc_id, body)
            counts[SUMMARY_REPEATED] += summary in queries
            queries.setdefault(summary, Text(f"q:{doc_id}", summary))
    counts |= {"passages kept": len(passages), "queries kept": len(queries)}
    return list(passages.values()), list(queries.values()), counts


def split_queries(queries: Sequence[Text], validation: int, test: int, seed: int) -> dict[str, list[Text]]:
    """Draw validation and test queries; train is the rest. Each split keeps the order of `queries`."""
    if min(validation, test) < 1 or validation + test >= len(queries):
        found = f"{validation} and {test} of {len(queries)} queries"
        fix = "ask for fewer queries or loosen the word limits"
        options = "--validation-queries and --test-queries"
        raise input_error(options, found, "at least one each, and some left for training", fix)
    drawn = random.Random(seed).sample(sorted(query.id for query in queries), validation + test)  # noqa: S311
    names = dict.fromkeys(drawn[:validation], "validation") | dict.fromkeys(drawn[validation:], "test")
    splits: dict[str, list[Text]] = {name: [] for name in SPLITS}
    for query in queries:
        splits[names.get(query.id, "train")].append(query)
    return splits


def write_folder(folder: str, passages: list[Text], splits: dict[str, list[Text]], filters: dict[str, int]) -> None:
    """Write all files; none appears before all are complete."""
    contents = {"filters.json": [json.dumps(filters, indent=2) + "\n"]}
    contents["collection.tsv"] = [f"{doc_id}\t{text}\n" for doc_id, text in passages]
    for name, queries in splits.items():
        contents[f"queries.{name}.tsv"] = [f"{query_id}\t{text}\n" for query_id, text in queries]
        contents[f"qrels.{name}.tsv"] = [f"{query_id}\t0\t{query_id[2:]}\t1\n" for query_id, _ in queries]
    with ExitStack() as stack:
        for file, lines in contents.items():
            temporary = stack.enter_context(atomic_file(Path(folder) / file))
            with open(temporary, "w", encoding="utf-8", newline="\n") as handle:
                handle.writelines(lines)


@options_class
class Options(Pydocs):
    """Options of this stage; all bounds are inclusive and count whitespace-separated words."""

    lock: str = required("FILE", "lines of name==version")
    output_folder: str = required("FOLDER", "where to write")
    seed: int = optional(SEED, "seed of the split")
    threads: int = optional(1, "processes that parse", "N", ge=1)


def stage(options: Options) -> None:
    """Collect docstrings, select passages and queries, split the queries, and write all files."""
    _check(options)
    pins = read_lock(options.lock)
    library = list_library_files(sysconfig.get_path("stdlib"))
    sources = list_sources(list_package_files(options.lock, pins), library)
    log.info("%d files of %d packages and Python %s", len(sources), len(pins), platform.python_version())
    results = list(track(read_docstrings(sources, options.threads), len(sources), "files"))
    docstrings = [docstring for result in results if result for docstring in result]
    passages, queries, counts = select(docstrings, options)
    unparsed = [source.name for source, result in zip(sources, results, strict=True) if result is None]
    filters = {"files": len(sources), "files dropped: not valid Python": len(unparsed), **counts}
    splits = split_queries(queries, options.validation_queries, options.test_queries, options.seed)
    write_folder(options.output_folder, passages, splits, filters)
    log.info("filters: %s", ", ".join(f"{name} {count}" for name, count in filters.items()))
    log.info("files not parsed: %s", ", ".join(unparsed) or "none")
    log.info("queries: %s", ", ".join(f"{name} {len(queries)}" for name, queries in splits.items()))
    packages = {source.name: source.package for source in sources}
    largest = Counter(packages[passage.id.partition(":")[0]] for passage in passages).most_common(TOP_PACKAGES)
    log.info("most passages: %s", ", ".join(f"{name} {count}" for name, count in largest))


def _check(options: Options) -> None:
    if options.min_query_words > options.max_query_words:
        expected = f"at most --max-query-words, {options.max_query_words}"
        raise input_error("--min-query-words", str(options.min_query_words), expected, "lower it")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
