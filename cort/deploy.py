"""Write a folder with a system that search engines load, and a check of its files.

A system is BM25, a dense encoder, or both merged by weighted min-max scores or reciprocal ranks. What engines load are
passages, also where documents are measured. The check has the first ten queries that all parts answer, or that any part
answers if there are none, and what the parts and the system give for them; `python check.py` in the folder compares the
files with it.

Reads:  passages and queries (parquet), the run of each part, vectors of passages and queries, tuned weights, k1 and b
Writes: a folder with check.json, check.py, README.md, and a folder for each target
Usage:  python -m cort.deploy --system fused --targets opensearch parquet --passages passages.parquet
            --queries queries.parquet --runs cort.trec bm25.trec --bm25 bm25.trec --k1 0.9 --b 0.4
            --vectors passages.arrow --query-vectors queries.arrow --method linear --weights 0.6 0.4 --output deploy
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cort.deployment.folder import TEMPLATES, analysis, are_unit, read_passages, render_all, write_target
from cort.formats import tables
from cort.formats.artifacts import to_json
from cort.formats.records import Ranking
from cort.formats.runs import read_run, run_of, tag_of
from cort.formats.shards import Shard, all_ids, all_vectors, open_both
from cort.retrieval.fusion import FusionSettings, fuse, untied
from cort.retrieval.lucene import Parameters, read_parameters
from cort.retrieval.tuning import read_weights
from cort.runtime import cli
from cort.runtime.files import atomic_folder
from cort.runtime.options import optional, options_class, required
from cort.settings.collection import Aggregation
from cort.settings.evaluation import Target
from cort.settings.fields import General, as_key
from cort.settings.lexical import Language, LexicalIndex
from cort.settings.systems import Fusing

Vector: TypeAlias = npt.NDArray[np.float32]

log = logging.getLogger(__name__)

QUERIES, RESULTS = 10, 10


@options_class
class Options(Aggregation):
    """Options of this stage."""

    system: str = required("NAME", "what is deployed")
    targets: tuple[Target, ...] = required("TARGET", "what loads it")
    passages: str = required("PARQUET", "the collection")
    queries: str = required("PARQUET", "of a split")
    runs: tuple[str, ...] = required("TREC", "of the system's parts on this split, in order, or its own")
    bm25: str | None = optional(None, "which of them is BM25's", "TREC")
    k1: float = as_key(LexicalIndex, "k1", "of BM25")
    b: float = as_key(LexicalIndex, "b", "of BM25")
    language: Language = as_key(LexicalIndex, "language", "of the texts, for engines' analyser")
    parameters: str | None = optional(None, "instead: tuned k1 and b", "JSON")
    vectors: tuple[str, ...] = optional((), "of the passages, all shards, if a part searches them", "ARROW")
    query_vectors: str | None = optional(None, "of the queries", "ARROW")
    method: str | None = as_key(Fusing, "method", "how two parts are merged", default=None, choices=("rrf", "linear"))
    k: int = as_key(Fusing, "k")
    weights: tuple[float, ...] = as_key(Fusing, "weights", default=(), least=1)
    tuned: str | None = optional(None, "of linear: weights that `tune weights` chose", "JSON")
    depth: int = as_key(General, "depth", "results of each part that are merged")
    output: str = required("FOLDER")


def weights_of(options: Options) -> tuple[float, ...]:
    """Return the weights of the runs, in order, with the sum 1; none unless scores are added."""
    if options.method != "linear":
        return ()
    weights = options.weights or (1, 1)
    if options.tuned:
        weights = read_weights(options.tuned, [*map(tag_of, options.runs)])
    return tuple(weight / sum(weights) for weight in weights)


def open_vectors(options: Options) -> tuple[list[Shard], dict[str, Vector]]:
    """Open the vectors of the passages, and read those of the queries, if any."""
    if not options.query_vectors:
        return [], {}
    passages, queries = open_both(options.vectors, [options.query_vectors])
    return passages, dict(zip(all_ids(queries).to_pylist(), all_vectors(queries), strict=True))


def make_cases(options: Options, weights: tuple[float, ...], vectors: Mapping[str, Vector]) -> Iterator[dict[str, Any]]:
    """Yield the first queries that all runs answer, or any: what engines are asked, BM25's results, the system's."""
    runs = {path: read_run(path).by_query() for path in options.runs}
    texts, from_zero = tables.read_queries(options.queries), tuple(path == options.bm25 for path in options.runs)
    settings = FusionSettings(k=options.k, weights=weights, from_zero=from_zero, depth=options.depth)
    by_all, by_any = (
        [query_id for query_id in texts if enough(run[query_id] for run in runs.values())] for enough in (all, any)
    )
    for query_id in (by_all or by_any)[:QUERIES]:
        parts = {path: run.ranking(query_id) for path, run in runs.items()}
        case: dict[str, Any] = {"query_id": query_id, "text": texts[query_id]}
        if options.bm25:
            ranking = parts[options.bm25]
            # Engines do not lower ties.
            scores = untied(ranking.scores, np.array([0, len(ranking.scores)]))
            case["bm25"] = _pairs(ranking._replace(scores=scores), options.depth)
        if vectors:
            case["vector"] = vectors[query_id].tolist()
        ranking, *_ = parts.values()
        if options.method:
            [ranking] = fuse(options.method, [run_of([part]) for part in parts.values()], RESULTS, settings)
        yield {**case, "expected": _pairs(ranking, RESULTS)}


def _pairs(ranking: Ranking, depth: int) -> list[tuple[str, float]]:
    return list(zip(ranking.doc_ids[:depth], ranking.scores[:depth].tolist(), strict=True))


def stage(options: Options) -> None:
    """Write the files of each target and the check."""
    shards, vectors = open_vectors(options)
    weights = weights_of(options)
    cases = list(make_cases(options, weights, vectors))
    if not cases:
        log.warning("%s: no run answers any query, so there is nothing to check", options.queries)
    parameters = read_parameters(options.parameters) if options.parameters else Parameters(options.k1, options.b)
    shown = vars(options) | parameters._asdict() | {"text": "", "vector": []} | (cases or [{}])[0]
    shown |= analysis(options.language)
    shown |= {"dimension": shards[0].dimension if shards else None, "unit": are_unit(shards)}
    # BM25 is the first part of every target.
    shown["weights"] = weights if options.runs[0] == options.bm25 else weights[::-1]
    content = {"system": options.system, "depth": options.depth, "queries": cases}
    with atomic_folder(options.output) as folder:
        for target in options.targets:
            write_target(folder, target, shown, read_passages(options.passages, shards))
            log.info("%s written", target)
        render_all(TEMPLATES, folder, shown)
        (folder / "check.json").write_text(to_json(content), encoding="utf-8")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
