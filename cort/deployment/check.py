"""Check a deployment: compute the top 10 of ten queries from the files of this folder alone.

The files give passages, vectors and weights, check.json the queries, their results by BM25, and what is expected.
Needs numpy and pyarrow. Usage: python check.py
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

ROWS = 5000
# Of scores that are recomputed in another precision.
TOLERANCE = 1e-4
# Ids and their vectors, if there are any.
Block = tuple[list[str], Any]
# Weights of BM25 and vectors, or None; then k of reciprocal rank fusion, or None if nothing is merged.
Fusion = tuple[list[float] | None, int | None]
Results = list[tuple[str, float]]


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def blocks(rows: Iterable[tuple[str, list[float] | None]]) -> Iterator[Block]:
    """Join rows of id and vector into blocks."""
    iterator = iter(rows)
    while block := list(itertools.islice(iterator, ROWS)):
        vectors = [vector for _, vector in block]
        yield [row[0] for row in block], None if vectors[0] is None else np.array(vectors, dtype=np.float32)


def read_bulk(folder: Path) -> Iterator[Block]:
    """Read bulk requests of OpenSearch and Elasticsearch."""

    def rows() -> Iterator[tuple[str, list[float] | None]]:
        for path in sorted(folder.glob("bulk-*.ndjson")):
            with open(path, encoding="utf-8", newline="\n") as lines:
                for action, document in zip(lines, lines, strict=True):
                    yield json.loads(action)["index"]["_id"], json.loads(document).get("vector")

    return blocks(rows())


def read_copy(folder: Path) -> Iterator[Block]:
    """Read a file for COPY of PostgreSQL."""

    def rows() -> Iterator[tuple[str, list[float] | None]]:
        with open(folder / "passages.tsv", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                doc_id, _, *vector = line.rstrip("\n").split("\t")
                yield doc_id.replace("\\\\", "\\"), json.loads(vector[0]) if vector else None

    return blocks(rows())


def read_parquet(folder: Path) -> Iterator[Block]:
    """Read a parquet table."""
    for batch in pq.ParquetFile(folder / "passages.parquet").iter_batches(ROWS):
        ids = batch["id"].to_pylist()
        has_vectors = "vector" in batch.schema.names
        yield ids, batch["vector"].flatten().to_numpy().reshape(len(ids), -1) if has_vectors else None


def opensearch(folder: Path) -> Fusion:
    """Read the weights, or the constant, of the search pipeline."""
    if not (folder / "pipeline.json").exists():
        return None, None
    (processor,) = read_json(folder / "pipeline.json")["phase_results_processors"]
    if "score-ranker-processor" in processor:
        return None, processor["score-ranker-processor"]["combination"]["rank_constant"]
    return processor["normalization-processor"]["combination"]["parameters"]["weights"], None


def elasticsearch(folder: Path) -> Fusion:
    """Read the weights, or the constant, of the retriever."""
    retriever = read_json(folder / "query.json").get("retriever", {})
    if "linear" in retriever:
        return [part["weight"] for part in retriever["linear"]["retrievers"]], None
    return None, retriever.get("rrf", {}).get("rank_constant")


def pgvector(folder: Path) -> Fusion:
    """Read the weights, or the constant, of the query."""
    query = (folder / "query.sql").read_text(encoding="utf-8")
    weights = re.findall(r"^  SELECT id, (\S+) \* CASE", query, re.MULTILINE)
    constant = re.search(r"1\.0 / \((\d+) \+ ", query)
    return [*map(float, weights)] or None, int(constant[1]) if constant else None


def parquet(folder: Path) -> Fusion:
    """Read fusion.json, if there is one."""
    path = folder / "fusion.json"
    fusion = read_json(path) if path.exists() else {}
    return fusion.get("weights"), fusion.get("k")


TARGETS: dict[str, tuple[Callable[[Path], Iterator[Block]], Callable[[Path], Fusion]]] = {
    "opensearch": (read_bulk, opensearch),
    "elasticsearch": (read_bulk, elasticsearch),
    "pgvector": (read_copy, pgvector),
    "parquet": (read_parquet, parquet),
}


def nearest(read: Iterator[Block], queries: list[dict[str, Any]], depth: int) -> tuple[list[Results], set[str]]:
    """Return for each query its `depth` best passages by inner product, and those expected results that exist."""
    best: list[Results] = [[] for _ in queries]
    wanted = {doc_id for query in queries for doc_id, _ in query["expected"]}
    found: set[str] = set()
    vectors = np.array([query.get("vector", []) for query in queries])
    for ids, block in read:
        found |= wanted.intersection(ids)
        if block is not None:
            scores = (block.astype(np.float64) @ vectors.T).astype(np.float32).T.tolist()
            for number, own in enumerate(scores):
                rows = itertools.chain(best[number], zip(ids, own, strict=True))
                best[number] = heapq.nsmallest(depth, rows, key=lambda row: (-row[1], row[0]))
    return best, wanted - found


def fuse(lists: list[Results], fusion: Fusion) -> dict[str, float]:
    """Score the passages of one or two rankings: by itself, by weighted min-max scores, or by reciprocal ranks."""
    weights, k = fusion
    totals: dict[str, float] = {}
    for number, ranking in enumerate(lists):
        scores = [score for _, score in ranking]
        low, high = (min(scores), max(scores)) if scores else (0, 0)
        for rank, (doc_id, score) in enumerate(ranking, start=1):
            if weights is not None:
                score = weights[number] * ((score - low) / (high - low) if high > low else 1)
            totals[doc_id] = totals.get(doc_id, 0) + (1 / (k + rank) if k else score)
    return totals


def is_expected(totals: dict[str, float], expected: Results) -> bool:
    """Compare the first results; those with practically the same score may change places."""
    best = sorted(totals.values(), reverse=True)[: len(expected)]
    return len(best) == len(expected) and all(
        math.isclose(score, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        and math.isclose(totals.get(doc_id, math.inf), value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for score, (doc_id, value) in zip(best, expected, strict=True)
    )


def check(folder: Path, target: str, content: dict[str, Any]) -> str:
    """Say what is wrong with a target; nothing if its files give what is expected."""
    read, settings = TARGETS[target]
    queries = content["queries"]
    by_vectors, missing = nearest(read(folder / target), queries, content["depth"])
    if missing:
        return f"no passage {min(missing)!r}"
    fusion = settings(folder / target)
    for query, own in zip(queries, by_vectors, strict=True):
        lists = [ranking for ranking in (query.get("bm25"), own if "vector" in query else None) if ranking is not None]
        if (len(lists) > 1) != (fusion != (None, None)) or not is_expected(fuse(lists, fusion), query["expected"]):
            return f"other results for the query {query['query_id']!r}"
    return ""


def main() -> int:
    """Check all targets; return 1 if one of them is wrong."""
    folder = Path(__file__).parent
    content = read_json(folder / "check.json")
    wrong = {target: check(folder, target, content) for target in content["targets"]}
    for target, fault in wrong.items():
        sys.stdout.write(f"{target}: {fault or 'the expected results'}\n")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
