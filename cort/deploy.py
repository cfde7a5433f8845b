"""Write a folder with a system that search engines load, and a check of its files.

A system is BM25, a dense encoder, or both merged by weighted min-max scores or reciprocal ranks. What engines load are
passages, also where documents are measured. The check has the first ten queries that all parts answer, or that any part
answers if there are none, one for which BM25 scores all results alike, and what the parts and the system give for them;
`python check.py` in the folder compares the files with it.

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
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cort.config.collection import Aggregation
from cort.config.evaluation import Target
from cort.config.fields import Depth
from cort.config.lexical import Index, Language
from cort.config.lexical import Parameters as Bm25
from cort.deployment.folder import (
    INDEXED,
    LONGEST_ID,
    TEMPLATES,
    analysis,
    lengths_of,
    longest_of,
    read_passages,
    render_all,
    write_target,
)
from cort.formats import tables
from cort.formats.artifacts import to_json
from cort.formats.runs import Run, RunByQuery, read_run, run_of, tag_of
from cort.retrieval.fusion import Constant, Weight, fuse
from cort.retrieval.lucene import Parameters, read_parameters
from cort.retrieval.pool import FusionSettings, untied
from cort.retrieval.vectors import open_vectors
from cort.retrieval.weights import read_weights
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import atomic_folder
from cort.runtime.sections import ArrowFile, FolderPath, JsonFile, Maybe, ParquetFile, Several, Text, TrecFile, same_as

Vector: TypeAlias = npt.NDArray[np.float32]

log = logging.getLogger(__name__)

QUERIES, RESULTS = 10, 10


class Options(Aggregation):
    """Options of this stage."""

    system: Text
    """What is deployed."""
    targets: Several[Target]
    """What loads it."""
    passages: ParquetFile
    """The collection."""
    queries: ParquetFile
    """Of a split."""
    runs: Several[TrecFile]
    """Of the system's parts on this split, in order, or its own."""
    bm25: Maybe[TrecFile] = None
    """Which of them is BM25's."""
    k1: float = same_as(Bm25, "k1")
    """Of BM25."""
    b: float = same_as(Bm25, "b")
    """Of BM25."""
    language: Language = same_as(Index, "language")
    """Of the texts, for engines' analyser."""
    parameters: Maybe[JsonFile] = None
    """Instead: tuned k1 and b."""
    vectors: Several[ArrowFile] = ()
    """Of the passages, all shards, if a part searches them."""
    query_vectors: Maybe[ArrowFile] = None
    """Of the queries."""
    method: Maybe[Literal["rrf", "linear"]] = None
    """How two parts are merged."""
    k: int = same_as(Constant, "k")
    weights: Several[Weight] = ()
    """Of linear: one for each part."""
    tuned: Maybe[JsonFile] = None
    """Of linear: weights that `tune weights` chose."""
    depth: int = same_as(Depth, "depth")
    """Results of each part that are merged."""
    output: FolderPath


def weights_of(options: Options) -> tuple[float, ...]:
    """Return the weights of the runs, in order, with the sum 1; none unless scores are added."""
    if options.method != "linear":
        return ()
    weights = options.weights or (1, 1)
    if options.tuned:
        weights = read_weights(options.tuned, [*map(tag_of, options.runs)])
    return tuple(weight / sum(weights) for weight in weights)


def choose_queries(options: Options, runs: Mapping[str, RunByQuery], texts: Mapping[str, str]) -> list[str]:
    """Choose the first queries that all runs answer, or any, and one of which BM25 scores all results alike."""
    by_all, by_any = (
        [query_id for query_id in texts if enough(run[query_id] for run in runs.values())] for enough in (all, any)
    )
    chosen = (by_all or by_any)[:QUERIES]
    if options.bm25:
        rankings = ((query_id, runs[options.bm25].ranking(query_id).scores) for query_id in by_all)
        level = next((query_id for query_id, scores in rankings if len(set(as_in_engines(scores))) == 1), None)
        chosen += [level] if level and level not in chosen else []
    return chosen


def as_in_engines(scores: npt.NDArray[np.floating]) -> list[float]:
    """Give ties equal scores, as engines do."""
    values: list[float] = untied(scores, np.array([0, len(scores)])).tolist()
    return values


def make_cases(
    options: Options, runs: Mapping[str, RunByQuery], weights: tuple[float, ...], vectors: Mapping[str, Vector]
) -> Iterator[dict[str, Any]]:
    """Yield queries: what engines are asked, BM25's results, the system's."""
    texts, from_zero = tables.read_queries(options.queries), tuple(path == options.bm25 for path in options.runs)
    settings = FusionSettings(k=options.k, weights=weights, from_zero=from_zero, depth=options.depth)
    for query_id in choose_queries(options, runs, texts):
        parts = {path: run.ranking(query_id) for path, run in runs.items()}
        case: dict[str, Any] = {"query_id": query_id, "text": texts[query_id]}
        if options.bm25:
            found = parts[options.bm25]
            case["bm25"] = [*zip(found.doc_ids, as_in_engines(found.scores), strict=True)][: options.depth]
        if vectors:
            case["vector"] = vectors[query_id].tolist()
        ranking, *_ = parts.values()
        if options.method:
            [ranking] = fuse(options.method, [run_of([part]) for part in parts.values()], RESULTS, settings)
        expected = [*zip(ranking.doc_ids, ranking.scores.tolist(), strict=True)][:RESULTS]
        yield {**case, "expected": expected}


def are_mostly_short(run: Run, depth: int) -> bool:
    """Tell whether most rankings of BM25 have fewer than `depth` results, and so 0 as their minimum."""
    return bool(len(run)) and float(np.mean(np.diff(run.offsets) < depth)) > 1 / 2


def written_targets(options: Options, longest: str) -> list[Target]:
    """Leave out engines that refuse the longest id, with a warning; refuse it if no target is left."""
    engines: list[Target] = ["opensearch", "elasticsearch"]
    refusing = engines if len(longest.encode()) > LONGEST_ID else []
    targets = [target for target in options.targets if target not in refusing]
    found, expected = f"the id {shorten(longest)}", f"at most {LONGEST_ID} bytes, as the engine does"
    if not targets:
        raise input_error(options.passages, found, expected, "shorten it, or choose pgvector or parquet")
    for target in options.targets:
        if target in refusing:
            log.warning("%s is not written: found %s, expected %s", target, found, expected)
    return targets


def stage(options: Options) -> None:
    """Write the files of each target and the check."""
    vectors, query_vectors = None, dict[str, Vector]()
    if options.query_vectors:
        vectors = open_vectors(options.vectors)
        queries = vectors.open_queries([options.query_vectors])
        query_vectors = dict(zip(queries.ids.to_pylist(), queries.matrix(), strict=True))
    weights = weights_of(options)
    read = {path: read_run(path) for path in options.runs}
    cases = list(make_cases(options, {path: run.by_query() for path, run in read.items()}, weights, query_vectors))
    if not cases:
        log.warning("%s: no run answers any query, so there is nothing to check", options.queries)
    parameters = read_parameters(options.parameters) if options.parameters else Parameters(options.k1, options.b)
    shown = vars(options) | parameters._asdict() | {"text": "", "vector": []} | (cases or [{}])[0]
    shown |= analysis(options.language)
    unit, zeros = lengths_of(vectors)
    longest, long = longest_of(options.passages)
    targets = written_targets(options, longest)
    shown |= {"dimension": vectors.dimension if vectors is not None else None, "unit": unit, "zeros": zeros}
    shown |= {"targets": targets, "left_out": [target for target in options.targets if target not in targets]}
    shown |= {"from_zero": bool(options.bm25) and are_mostly_short(read[str(options.bm25)], options.depth)}
    shown |= {"indexed": INDEXED, "long": long if "pgvector" in targets and options.bm25 else 0}
    if zeros:
        log.warning("passages with a zero vector, which engines index without: %d, %s first", len(zeros), zeros[0])
    if shown["long"]:
        log.warning("PostgreSQL indexes only the first %d characters of passages with more: %d", INDEXED, long)
    # BM25 is the first part of every target.
    shown["weights"] = weights if options.runs[0] == options.bm25 else weights[::-1]
    content = {"system": options.system, "depth": options.depth, "queries": cases}
    with atomic_folder(options.output) as folder:
        for target in targets:
            write_target(folder, target, shown, read_passages(options.passages, vectors))
            log.info("%s written", target)
        render_all(TEMPLATES, folder, shown)
        (folder / "check.json").write_text(to_json(content), encoding="utf-8")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
