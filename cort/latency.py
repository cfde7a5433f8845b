"""Measure how long searches take: each part of each system, one query at a time and in batches.

Every search goes through the searcher that answers users (`cort.online`), after a warm-up. Each is made twice: with the
parts one after the other, whose sum is what Tables 4 and 5 of the CoRT paper count, and as deployed, with BM25 beside
the dense ranker. Where there are GPUs, the vectors are also searched on the CPU and on each larger number of GPUs.

Reads:  the manifest and all it names, queries (parquet); writes: JSON
Usage:  python -m cort.latency --manifest manifest.json --queries queries.dev.parquet --split dev --number 1000
            --systems bm25 cort cort+bm25 --threads 8 --output latency/dev.json
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.online.manifest import Manifest, read_manifest
from cort.online.timing import PARTS
from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.options import JavaOptions, check_positive
from cort.system import cli
from cort.system.devices import lease, visible_devices
from cort.system.errors import input_error
from cort.system.machine import describe_hardware, describe_software
from cort.system.options import optional, required

if TYPE_CHECKING:
    from cort.online.searcher import Searcher

log = logging.getLogger(__name__)

Times = dict[str, float]
PERCENTILES = (50, 95, 99)
# What the concurrent total may exceed the parts it has to wait for by, before the log says so.
ALLOWED = 1.1
LIBRARIES = ("torch", "transformers", "tokenizers", "pyserini", "pyjnius", "ngt", "numpy", "faiss-cpu")


def summarize(times: Sequence[Times]) -> dict[str, Times]:
    """Percentiles (linear between measurements) and mean of each part, in ms; a part all searches have."""
    found = {}
    for name in times[0]:
        values = np.array([one[name] for one in times])
        ranks = zip(PERCENTILES, np.percentile(values, PERCENTILES).tolist(), strict=True)
        found[name] = {f"p{rank}": value for rank, value in ranks} | {"mean": float(values.mean())}
    return found


def measure(searcher: Searcher, system: str, batches: Sequence[Sequence[str]], depth: int) -> dict[str, Times]:
    """Search each batch with its parts one after the other, then as deployed; statistics by part and of the totals.

    There is no concurrent total where nothing runs beside anything.
    """
    apart: list[Times] = []
    beside: list[Times] = []
    for batch in batches:
        _, times = searcher.search_batch(system, batch, depth, concurrent=False)
        parts = {name: times[name] for name in PARTS if name in times}
        apart.append(parts | {"sequential": sum(parts.values())})
        if "bm25" in times and "search" in times:
            _, times = searcher.search_batch(system, batch, depth)
            beside.append({"concurrent": times["total"]})
    return summarize(apart) | (summarize(beside) if beside else {})


def overlap(found: Mapping[str, Times]) -> float | None:
    """Compare the concurrent total with the slower of BM25 and the dense ranker, and what comes after them; medians.

    1 means that the faster one costs nothing; None if a system has not both.
    """
    if "concurrent" not in found:
        return None
    median = {name: times["p50"] for name, times in found.items()}
    dense = median["tokenize"] + median["encode"] + median["search"]
    return median["concurrent"] / (max(median["bm25"], dense) + median.get("merge", 0) + median.get("rerank", 0))


def rows_of(
    searcher: Searcher, systems: Sequence[str], texts: Sequence[str], depth: int, batch: int, device: str
) -> Iterator[dict[str, Any]]:
    """Measure some systems; a row for single queries, and one for batches where nothing is re-ranked.

    :param device: where the vectors are, in words.
    """
    for system in systems:
        kinds = {one["kind"] for one in searcher.manifest.needed([system]).values()}
        for size in (1, batch) if "rerank" not in kinds else (1,):
            # The last ones may be fewer than a batch.
            batches = [texts[at : at + size] for at in range(0, len(texts) - size + 1, size)]
            if not batches:
                continue
            found = measure(searcher, system, batches, depth)
            ratio = overlap(found)
            words = ", ".join(f"{name} {times['p50']:.2f}" for name, times in found.items())
            log.info("%s on %s, %d at a time, median ms: %s", system, device, size, words)
            if ratio is not None:
                verdict = "within" if ratio <= ALLOWED else "above"
                log.info("%s: concurrent / slower part and merge = %.2f, %s %g", system, ratio, verdict, ALLOWED)
            kind = searcher.manifest.systems[system]["kind"]
            row = {"system": system, "kind": kind, "device": device, "batch": size, "searches": len(batches)}
            yield row | {"overlap": ratio, "milliseconds": found}


def device_sets(gpus: int) -> dict[str, list[str]]:
    """Devices for the vectors by their name in rows; the first is where the systems are used."""
    if not gpus:
        return {"cpu": ["cpu"]}
    sets = {"1 GPU": ["cuda:0"], "cpu": ["cpu"]}
    return sets | {f"{count} GPUs": [f"cuda:{number}" for number in range(count)] for count in range(2, gpus + 1)}


def with_vectors(manifest: Manifest, systems: Sequence[str]) -> list[str]:
    """Choose the systems whose time depends on where the vectors are."""
    return [name for name in systems if any(one["kind"] == "exact" for one in manifest.needed([name]).values())]


def published_form(manifest: Manifest, split: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean ms by system and batch size, as published numbers name them (config/papers).

    A retrieving system stands for its search alone, ENCODER-queries for encoding, others for all parts one after the
    other; where the vectors are on more GPUs, each exact system in a name is followed by -2gpus and so on.
    """
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["device"] == "cpu" and any(one["device"] == "1 GPU" for one in rows):
            continue
        means = {name: times["mean"] for name, times in row["milliseconds"].items()}
        kind, size = row["kind"], str(row["batch"])
        part = "search" if kind in ("exact", *GRAPHS) else "sequential"
        found.setdefault(_name(manifest, row["system"], row["device"]), {})[size] = means[part]
        if kind == "exact" and row["device"] in ("cpu", "1 GPU"):
            encoder = manifest.systems[row["system"]]["encoder"]
            found.setdefault(f"{encoder}-queries", {})[size] = means["tokenize"] + means["encode"]
    return [{"system": name, "split": split, "milliseconds": values} for name, values in found.items()]


def _name(manifest: Manifest, system: str, device: str) -> str:
    if not device.endswith("GPUs"):
        return system
    suffix, parts = f"-{device.split()[0]}gpus", manifest.parts_of(system)
    if manifest.systems[system]["kind"] in FUSIONS and system == "+".join(parts):
        return "+".join(_name(manifest, part, device) for part in parts)
    return f"{system}{suffix}" if with_vectors(manifest, [system]) else system


@dataclass(frozen=True, kw_only=True)
class Options(JavaOptions):
    """Options of this stage."""

    manifest: str = required("JSON")
    queries: str = required("PARQUET")
    split: str = required("NAME", "of the queries")
    number: int = optional(1000, "first queries of the split that are searched", "N")
    warm_up: int = optional(64, "searches before, with each system", "N")
    bm25_warm_up: int = optional(2000, "searches before, with BM25 alone: Java compiles for so long", "N")
    batch: int = optional(32, "queries of a batch", "N")
    depth: int = optional(1000, "results per query", "N")
    systems: tuple[str, ...] = required("NAME")
    gpus: int = optional(1, "at most", "N")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Open, warm up, measure, write."""
    check_positive(options, "number", "batch", "depth", "threads")
    manifest = read_manifest(options.manifest)
    manifest.check_names(options.systems)
    texts = tables.read_table(options.queries, tables.QUERIES)["text"].to_pylist()
    if not texts:
        raise input_error(options.queries, "no query", "some to search for", "name another split")
    texts = texts[: options.number]
    with lease(min(options.gpus, len(visible_devices()))) as leased:
        rows = measure_all(options, manifest, texts, len(leased))
    software = describe_software()
    libraries = {name: version for name, version in software["packages"].items() if name.lower() in LIBRARIES}
    found = {
        "split": options.split,
        "queries": len(texts),
        "depth": options.depth,
        "threads": options.threads,
        "latencies": published_form(manifest, options.split, rows),
        "rows": rows,
        "hardware": {key: value for key, value in describe_hardware().items() if key != "host"},
        "software": {key: software[key] for key in ("python", "java", "system")} | libraries,
    }
    write_artifact(options.output, found)


def repeated(texts: Sequence[str], number: int) -> list[str]:
    """Repeat texts until there are so many."""
    return list(itertools.islice(itertools.cycle(texts), number))


def measure_all(options: Options, manifest: Manifest, texts: Sequence[str], gpus: int) -> list[dict[str, Any]]:
    """Measure all systems on the first set of devices, and those with vectors on the others."""
    import torch

    from cort.online.opening import open_searcher

    sets = device_sets(min(gpus, torch.cuda.device_count()) if torch.cuda.is_available() else 0)
    first, threads, memory_mb = next(iter(sets)), options.threads, options.memory_mb
    opened = open_searcher(manifest, options.systems, devices=sets[first], threads=threads, memory_mb=memory_mb)
    systems: Sequence[str] = options.systems
    warm_up: Sequence[str] = repeated(texts, options.warm_up)
    rows: list[dict[str, Any]] = []
    with closing(opened) as searcher:
        for name, one in manifest.needed(options.systems).items():
            for text in repeated(texts, options.bm25_warm_up) if one["kind"] == "bm25" else ():
                searcher.search(name, text, options.depth)
        for device, devices in sets.items():
            if device != first:
                for index in searcher.models.exact.values():
                    index.place(devices)
                systems, warm_up = with_vectors(manifest, options.systems), texts[:1]
                # On the CPU the search alone is of interest.
                systems = [one for one in systems if device != "cpu" or manifest.systems[one]["kind"] == "exact"]
            for name in systems:
                for text in warm_up:
                    searcher.search(name, text, options.depth)
            rows += rows_of(searcher, systems, texts, options.depth, options.batch, device)
    return rows


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
