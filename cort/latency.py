"""Measure how long searches take: each part of each system, one query at a time and in batches.

Every search goes through the searcher that answers users (`cort.online`), after a warm-up, and is made twice: with the
parts one after the other, whose sum Tables 4 and 5 of the CoRT paper report, and as deployed, with BM25 and the dense
ranker in parallel. Models and vectors are on a GPU, if there is one.

Reads:  the results of an experiment, queries (parquet); writes: JSON
Usage:  python -m cort.latency --results results/msmarco --queries queries.dev.parquet --split dev --number 1000
            --systems bm25 cort cort+bm25 --threads 8 --output latency/dev.json
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from cort.config.evaluation import Latency
from cort.config.experiment import Experiment
from cort.config.fields import Depth
from cort.config.stored import NAME, open_systems, read_experiment, read_needed
from cort.formats import tables
from cort.formats.artifacts import json_option, write_artifact
from cort.retrieval.options import JavaOptions
from cort.runtime import cli
from cort.runtime.devices import lease, visible_devices
from cort.runtime.errors import input_error
from cort.runtime.machine import describe_hardware, describe_software
from cort.runtime.sections import FolderPath, JsonFile, Maybe, ParquetFile, Several, Text, same_as
from cort.systems.timing import PARTS

if TYPE_CHECKING:
    from cort.online.searcher import Searcher

log = logging.getLogger(__name__)

Times = dict[str, float]
PERCENTILES = (50, 95, 99)
# Seconds after which a warm-up or a measurement ends: re-ranking 1,000 passages can take minutes without a GPU.
LONGEST = 300
LIBRARIES = ("torch", "transformers", "tokenizers", "pyserini", "pyjnius", "ngt", "numpy", "faiss-cpu")


def summarize(times: Sequence[Times]) -> dict[str, Times]:
    """Compute percentiles (linearly interpolated) and mean, in ms, of each part; all searches have the same parts."""
    import pandas as pd

    frame = pd.DataFrame(times)
    ranks = frame.quantile([rank / 100 for rank in PERCENTILES]).set_axis([f"p{rank}" for rank in PERCENTILES])
    statistics: dict[str, Times] = pd.concat([ranks, frame.mean().to_frame("mean").T]).to_dict()
    return statistics


def for_a_while(items: Iterable[Any]) -> Iterator[Any]:
    """Yield items, but start none after `LONGEST` seconds."""
    end = time.monotonic() + LONGEST
    return itertools.takewhile(lambda _: time.monotonic() <= end, items)


def time_batches(
    searcher: Searcher, system: str, batches: Sequence[Sequence[str]], depth: int
) -> tuple[int, dict[str, Times]]:
    """Search each batch with its parts one after the other, and another one as deployed, for a while.

    The other one was searched long ago, or not yet, so caches are as cold for both.

    :returns: number of batches, and statistics of parts and totals, without a concurrent total where nothing runs in
        parallel.
    """
    sequential: list[Times] = []
    concurrent: list[Times] = []
    others = itertools.islice(itertools.cycle(batches), len(batches) // 2, None)
    for batch, other in for_a_while(zip(batches, others, strict=False)):
        _, times = searcher.search_batch(system, batch, depth, concurrent=False)
        parts = {name: times[name] for name in PARTS if name in times}
        sequential.append(parts | {"sequential": sum(parts.values())})
        if "bm25" in times and "search" in times:
            _, times = searcher.search_batch(system, other, depth)
            concurrent.append({"concurrent": times["total"]})
    return len(sequential), summarize(sequential) | (summarize(concurrent) if concurrent else {})


def rows_of(
    searcher: Searcher, systems: Sequence[str], texts: Sequence[str], depth: int, batch: int, device: str
) -> Iterator[dict[str, Any]]:
    """Measure some systems; a row for single queries, and one for batches unless the system re-ranks.

    :param device: name of where the vectors are.
    """
    for system in systems:
        batched = all(part.batches for part in open_systems(searcher.results, [system]).values())
        for size in (1, batch) if batched else (1,):
            # Incomplete batches are left out.
            batches = [texts[at : at + size] for at in range(0, len(texts) - size + 1, size)]
            if not batches:
                continue
            searches, statistics = time_batches(searcher, system, batches, depth)
            words = ", ".join(f"{name} {times['p50']:.2f}" for name, times in statistics.items())
            log.info("%s on %s, %d at a time, median ms: %s", system, device, size, words)
            row = {"system": system, "device": device, "batch": size, "searches": searches}
            yield row | {"milliseconds": statistics}


class Options(JavaOptions):
    """Options of this stage."""

    results: Maybe[FolderPath] = None
    """Folder of the results of an experiment."""
    settings: Maybe[JsonFile] = None
    """Settings of its systems, instead: files are under results/."""
    queries: ParquetFile
    split: Text
    """Of the queries."""
    number: int = same_as(Latency, "queries")
    warm_up: int = Field(64, ge=0)
    """Earlier searches with each system."""
    bm25_warm_up: int = Field(2000, ge=0)
    """Earlier searches with BM25 alone, until Java has compiled all it needs."""
    batch: int = Field(32, ge=1)
    """Queries per batch."""
    depth: int = same_as(Depth, "depth")
    systems: Several[Text]
    gpus: int = Field(1, ge=0, le=1)
    """1, or 0 for the CPU."""
    output: JsonFile


def stage(options: Options) -> None:
    """Open, warm up, measure, write."""
    results = find_results(options)
    open_systems(results, options.systems)
    texts = tables.read_table(options.queries, tables.QUERIES)["text"].to_pylist()
    if not texts:
        raise input_error(options.queries, "no query", "at least one", "name another split")
    texts = texts[: options.number]
    with lease(min(options.gpus, len(visible_devices()))) as leased:
        rows = measure_all(options, results, texts, len(leased))
    software = describe_software()
    libraries = {name: version for name, version in software["packages"].items() if name.lower() in LIBRARIES}
    report = {
        "split": options.split,
        "queries": len(texts),
        "depth": options.depth,
        "threads": options.threads,
        "rows": rows,
        "hardware": {key: value for key, value in describe_hardware().items() if key != "host"},
        "software": {key: software[key] for key in ("python", "java", "system")} | libraries,
    }
    write_artifact(options.output, report)


def find_results(options: Options) -> Experiment:
    """Return the results that the options name."""
    if (options.results is None) == (options.settings is None):
        found = "neither" if options.results is None else "both"
        raise input_error("--results, --settings", found, "one of the two", "name what to measure")
    if options.results is not None:
        return read_experiment(Path(options.results) / NAME)
    return read_needed(json_option("--settings", str(options.settings)))


def measure_all(options: Options, results: Experiment, texts: Sequence[str], gpus: int) -> list[dict[str, Any]]:
    """Measure all systems."""
    import torch

    from cort.online.searcher import open_searcher

    def warm_up(name: str, number: int) -> None:
        for text in for_a_while(itertools.islice(itertools.cycle(texts), number)):
            searcher.search(name, text, options.depth)

    device, name = ("cuda:0", "1 GPU") if gpus and torch.cuda.is_available() else ("cpu", "cpu")
    threads, memory_mb = options.threads, options.memory_mb
    opening = open_searcher(results, options.systems, devices=[device], threads=threads, memory_mb=memory_mb)
    with closing(opening) as searcher:
        for system, opened in searcher.opened.items():
            if opened.lexical_index():
                warm_up(system, options.bm25_warm_up)
        for system in options.systems:
            warm_up(system, options.warm_up)
        return [*rows_of(searcher, options.systems, texts, options.depth, options.batch, name)]


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
