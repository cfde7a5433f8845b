"""Opening a searcher: Java in its process, the import of torch and the passages' ids side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module

from cort.online.lucene import LuceneProcess
from cort.online.manifest import REMEDY, LexicalIndex, Manifest, System
from cort.online.models import Models
from cort.online.passages import Passages
from cort.online.searcher import Searcher
from cort.retrieval.fusion import FUSIONS
from cort.retrieval.options import HEAP_MB
from cort.system.checksums import verify
from cort.system.errors import input_error
from cort.system.imports import uncollected

# Seconds. A thread that waits for Python's lock gets it after this: the one that takes BM25's answer.
SWITCH = 0.0005
#: opens models; its import takes longer than they do
NEURAL = "cort.online.neural"


def open_searcher(
    manifest: Manifest,
    systems: Sequence[str],
    *,
    devices: Sequence[str] = ("cpu",),
    threads: int = 1,
    memory_mb: int = HEAP_MB,
    models_later: bool = False,
) -> Searcher:
    """Open all that the systems need, side by side, and search a few times with each.

    Java starts in its process while torch is imported, and ids are sorted.

    :param devices: torch's names, for the vectors; the first one also has the models.
    :param memory_mb: heap of Java.
    :param models_later: whether to do no more than import what opens models, beside; `Searcher.warm_up` does the rest.
    :raises InputError: an unknown system; a file that is missing or not what it was.
    """
    manifest.check_names(systems)
    sys.setswitchinterval(SWITCH)
    needed = manifest.needed(systems)
    verify(manifest.opened(needed))
    kinds = {system["kind"] for system in needed.values()}
    # A core is left for BM25, which runs beside.
    open_models = partial(_open_models, manifest, needed, devices, max(1, threads - ("bm25" in kinds)))
    with _naming_missing_files(), ExitStack() as opened, ThreadPoolExecutor(2, "opening") as pool:
        indexes = dict.fromkeys(system["lexical"] for system in needed.values() if system["kind"] == "bm25")
        lucene = {
            name: pool.submit(_open_lucene, manifest.lexical[name], threads, memory_mb, opened) for name in indexes
        }
        passages = pool.submit(Passages, manifest.passages)
        if kinds - {"bm25", *FUSIONS}:
            importing = ThreadPoolExecutor(1, "importing")
            importing.submit(_import_neural)
            importing.shutdown(wait=False)
        processes = {name: process.result() for name, process in lucene.items()}
        searcher = Searcher(manifest, systems, processes, open_models, passages.result())
        opened.callback(searcher.close)
        for name in () if models_later else systems:
            searcher.warm_up(name)
        opened.pop_all()
    return searcher


def _import_neural() -> None:
    with uncollected():
        import_module(NEURAL)


@contextmanager
def _naming_missing_files() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        missing = str(error.filename or error)
        raise input_error(missing, "no such file", "what the manifest names", "run `snakemake` first") from None


def _open_models(manifest: Manifest, needed: Mapping[str, System], devices: Sequence[str], threads: int) -> Models:
    from cort.online.neural import open_models

    with _naming_missing_files():
        return Models(*open_models(manifest, needed, devices, threads))


def _open_lucene(named: LexicalIndex, threads: int, memory_mb: int, opened: ExitStack) -> LuceneProcess:
    """Open an index; `opened` closes it again if something else is wrong."""
    found = LuceneProcess(named.index, threads, memory_mb)
    opened.callback(found.close)
    if found.form != named.cleaning:
        expected = f"the form {named.cleaning}"
        raise input_error(named.index, f"texts of the form {found.form}", expected, REMEDY)
    return found
