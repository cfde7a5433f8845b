"""Open what systems need, side by side: Java starts in its process while torch is imported, and ids are sorted."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cort.online.lucene_process import LuceneProcess
from cort.online.manifest import REMEDY, Manifest, System
from cort.online.passages import Passages
from cort.online.searcher import Models, Searcher
from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.options import HEAP_MB
from cort.system.errors import input_error

if TYPE_CHECKING:
    from cort.retrieval.graph_search import Graph

# Seconds. A thread that waits for Python's lock gets it after this: the one that takes BM25's answer.
SWITCH = 0.0005
# Java compiles what runs often, and the first search of any kind reads what later ones find in memory.
WARM_UP = ("warm up",) * 3


def open_searcher(
    manifest: Manifest,
    systems: Sequence[str],
    *,
    devices: Sequence[str] = ("cpu",),
    threads: int = 1,
    memory_mb: int = HEAP_MB,
) -> Searcher:
    """Open all that the systems need, and search a few times with each.

    :param devices: torch's names, for the vectors; the first one also has the models.
    :param threads: of the CPU.
    :param memory_mb: heap of Java.
    :raises InputError: an unknown system; a file that is missing or not what it was.
    """
    manifest.check_names(systems)
    sys.setswitchinterval(SWITCH)
    needed = {part: manifest.systems[part] for name in systems for part in manifest.within(name)}
    kinds = {system["kind"] for system in needed.values()}
    try:
        with ExitStack() as opened, ThreadPoolExecutor(2, "opening") as pool:
            lucene = pool.submit(open_lucene, manifest, threads, memory_mb, opened) if "bm25" in kinds else None
            passages = pool.submit(Passages, manifest.passages)
            models = Models({}, {}, {}, {}, {})
            if kinds - {"bm25", *FUSIONS}:
                # A core is left for BM25, which runs beside.
                models = open_models(manifest, needed, devices, max(1, threads - ("bm25" in kinds)))
            searcher = Searcher(
                manifest, systems, lucene.result() if lucene is not None else None, models, passages.result()
            )
            opened.callback(searcher.close)
            for name in systems:
                for text in WARM_UP:
                    searcher.search(name, text, manifest.depth)
            opened.pop_all()
    except FileNotFoundError as error:
        missing = str(error.filename or error)
        raise input_error(missing, "no such file", "what the manifest names", "run `snakemake` first") from None
    return searcher


def open_lucene(manifest: Manifest, threads: int, memory_mb: int, opened: ExitStack) -> LuceneProcess:
    """Open the index of BM25.

    :param opened: what is to be closed again if something else is wrong.
    """
    found = LuceneProcess(manifest.bm25_index, threads, memory_mb)
    opened.callback(found.close)
    if found.form != manifest.bm25_cleaning:
        expected = f"the form {manifest.bm25_cleaning}"
        raise input_error(manifest.bm25_index, f"texts of the form {found.form}", expected, REMEDY)
    return found


def open_models(manifest: Manifest, needed: Mapping[str, System], devices: Sequence[str], threads: int) -> Models:
    """Load encoders, re-rankers and the vectors or graphs of the systems that are needed."""
    # Before tokenizers start threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    import torch

    from cort.formats.embeddings import open_shards
    from cort.online.dense import ExactSearch, QueryEncoder, open_graph
    from cort.online.reranker import Reranker

    torch.set_num_threads(threads)
    device = torch.device(devices[0])
    encoders, shards = {}, {}
    for name in _named(needed, "encoder"):
        one = manifest.encoders[name]
        encoders[name] = QueryEncoder(one.model, one.cleaning, one.precision, device)
        shards[name] = open_shards(one.files, encoders[name].fingerprint)
    exact = [system["encoder"] for system in needed.values() if system["kind"] == "exact"]
    opened: dict[tuple[str, str], Graph] = {}
    graphs = {
        name: open_graph(system, opened, encoders[system["encoder"]].fingerprint)
        for name, system in needed.items()
        if system["kind"] in GRAPHS
    }
    rerankers = {}
    for name in _named(needed, "reranker"):
        one = manifest.rerankers[name]
        rerankers[name] = Reranker(one.model, one.cleaning, one.precision, one.files[0], device)
    return Models(
        encoders,
        {name: found[0].storage for name, found in shards.items()},
        {name: ExactSearch(shards[name], devices, threads) for name in dict.fromkeys(exact)},
        graphs,
        rerankers,
    )


def _named(systems: Mapping[str, System], key: str) -> list[str]:
    return list(dict.fromkeys(system[key] for system in systems.values() if key in system))
