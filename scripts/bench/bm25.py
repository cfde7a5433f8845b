"""Measure the stage `bm25` beside Anserini's own batch command: same index, queries, parameters and threads, in turns.

Anserini's command runs as its documentation gives it, with Java's defaults; the stage reads parquet, runs Anserini in
parts of bounded memory and writes one run without ties. Memory is that of the largest process. Both take turns, each in
processes of its own, start included; medians. It ends with status 1 if the two disagree about the passages of a query.

Usage: python -m scripts.bench.bm25 --data ../shared/data/squad [--depth 1000] [--threads 2] [--repeats 3]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cort.formats import tables
from cort.formats.runs import read_run
from cort.retrieval.anserini import fat_jar
from cort.system.machine import java_home
from scripts.bench.common import make_parser, median_costs, print_rows, run, run_stage, write_split

MAIN_CLASS = "io.anserini.search.SearchCollection"
K1, B = 0.82, 0.68


def prepare(data: Path, folder: Path, threads: int) -> int:
    """Make index and queries as the stages do, and the queries once more in Anserini's format; their number."""
    write_split(data, "dev", folder)
    index = ("--passages", folder / "passages.parquet", "--threads", threads, "--output", folder / "index")
    run_stage("bm25_index", *index)
    rows = tables.read_table(folder / "queries.parquet", tables.QUERIES).to_pylist()
    lines = (json.dumps({"id": row["query_id"], "title": row["text"]}) + "\n" for row in rows)
    (folder / "topics.jsonl").write_text("".join(lines), encoding="ascii")
    return len(rows)


def measure(folder: Path, depth: int, threads: int, repeats: int) -> Iterator[tuple[str, object]]:
    """Run both in turns; rows of the table."""
    inputs = ("-index", folder / "index", "-topics", folder / "topics.jsonl", "-output", folder / "theirs.trec")
    numbers = ("-topicReader", "JsonString", "-bm25", "-bm25.k1", K1, "-bm25.b", B, "-threads", threads)
    java = (java_home() / "bin" / "java", "-cp", fat_jar(), MAIN_CLASS)
    files = ("--index", folder / "index", "--queries", folder / "queries.parquet", "--output", folder / "ours.trec")
    options = ("--k1", K1, "--b", B, "--depth", depth, "--threads", threads, "--tag", "bm25")
    costs = median_costs(
        repeats,
        {
            "Anserini": lambda: run(*java, *inputs, *numbers, "-hits", depth)[0],
            "cort.bm25": lambda: run_stage("bm25", *files, *options),
        },
    )
    refuse_differences(folder)
    yield from costs.items()
    yield "part of Anserini's time", f"{costs['cort.bm25'].seconds / costs['Anserini'].seconds:.2f}"


def refuse_differences(folder: Path) -> None:
    """End the program if a query has other passages in one run than in the other."""
    ours, theirs = (
        {ranking.query_id: set(ranking.doc_ids) for ranking in read_run(folder / f"{name}.trec")}
        for name in ("ours", "theirs")
    )
    wrong = [query_id for query_id in ours.keys() | theirs.keys() if ours.get(query_id) != theirs.get(query_id)]
    if wrong:
        sys.exit(f"{len(wrong)} of {len(theirs)} queries have other passages, {min(wrong)} for one")


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, data="collection, queries.dev and qrels.dev")
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        queries = prepare(args.data.resolve(), Path(name), args.threads)
        print_rows([("queries", queries), *measure(Path(name), args.depth, args.threads, args.repeats)])


if __name__ == "__main__":
    main()
