"""Measure the stage `bm25` beside Anserini's own batch command: same index, queries, parameters and threads, in turns.

Anserini's command runs as its documentation gives it, with Java's defaults; the stage reads parquet, runs Anserini in
parts of bounded memory and writes one run without ties. Memory is that of the largest process. Both take turns, each in
processes of its own, start included; medians. It ends with status 1 if the two disagree about the passages of a query.

Usage: python scripts/benchmark_bm25.py --data ../shared/data/squad [--depth 1000] [--threads 2] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cort.formats import tables
from cort.formats.runs import read_run
from cort.retrieval.anserini import fat_jar, java_home
from cort.retrieval.bm25 import MAIN_CLASS
from scripts.bench.runs import medians, run
from scripts.sandbox import run_stage

K1, B = 0.82, 0.68


def prepare(data: Path, folder: Path, threads: int) -> None:
    """Make index and queries as the stages do, and the queries once more in Anserini's format."""
    passages, queries = folder / "passages.parquet", folder / "queries.parquet"
    run_stage("collection", "--passages", data / "collection.tsv", "--output", passages)
    files = ("--queries", data / "queries.dev.tsv", "--qrels", data / "qrels.dev.tsv", "--passages", passages)
    outputs = ("--output-queries", queries, "--output-qrels", folder / "qrels.parquet")
    run_stage("split", *files, "--unjudged-queries", "drop", *outputs)
    run_stage("bm25_index", "--passages", passages, "--threads", threads, "--output", folder / "index")
    rows = tables.read_table(queries, tables.QUERIES).to_pylist()
    lines = (json.dumps({"id": row["query_id"], "title": row["text"]}) + "\n" for row in rows)
    (folder / "topics.jsonl").write_text("".join(lines), encoding="ascii")


def measure(folder: Path, depth: int, threads: int, repeats: int) -> Iterator[tuple[str, str]]:
    """Run both in turns; rows of the table."""
    inputs = ("-index", folder / "index", "-topics", folder / "topics.jsonl", "-output", folder / "theirs.trec")
    numbers = ("-topicReader", "JsonString", "-bm25", "-bm25.k1", K1, "-bm25.b", B, "-threads", threads)
    java = (java_home() / "bin" / "java", "-cp", fat_jar(), MAIN_CLASS)
    files = ("--index", folder / "index", "--queries", folder / "queries.parquet", "--output", folder / "ours.trec")
    options = ("--k1", K1, "--b", B, "--depth", depth, "--threads", threads, "--tag", "bm25")
    costs = medians(
        repeats,
        {
            "Anserini": lambda: run(*java, *inputs, *numbers, "-hits", depth)[0],
            "cort.bm25": lambda: run(sys.executable, "-m", "cort.bm25", *files, *options)[0],
        },
    )
    refuse_differences(folder)
    for name, cost in costs.items():
        yield name, f"{cost.seconds:.1f} s, {cost.cpu:.1f} s of cores, {cost.memory:.0f} MB"
    theirs, ours = costs.values()
    yield "part of Anserini's time", f"{ours.seconds / theirs.seconds:.2f}"


def refuse_differences(folder: Path) -> None:
    """End the program if a query has other passages in one run than in the other."""
    ours, theirs = (read_run(folder / f"{name}.trec") for name in ("ours", "theirs"))
    wanted = {one.query_id: set(one.doc_ids) for one in theirs}
    found = {one.query_id: set(one.doc_ids) for one in ours}
    wrong = [query_id for query_id in wanted.keys() | found.keys() if wanted.get(query_id) != found.get(query_id)]
    if wrong:
        sys.exit(f"{len(wrong)} of {len(wanted)} queries have other passages, {min(wrong)} for one")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="with collection and queries.dev")
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(args.data.resolve(), folder, args.threads)
        queries = tables.read_table(folder / "queries.parquet", tables.QUERIES).num_rows
        rows = [("queries", str(queries)), *measure(folder, args.depth, args.threads, args.repeats)]
    width = max(len(name) for name, _ in rows)
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in rows)


if __name__ == "__main__":
    main()
