"""Compare the stage `bm25` with Anserini's own batch command: same index, queries, parameters and threads.

Anserini's command runs as documented, with Java's defaults; the stage reads parquet, runs Anserini in parts of bounded
memory and writes one run without ties. Both alternate, including their start; the table has medians and the memory of
the largest process. The exit status is 1 if the passages of a query differ.

Usage: python -m scripts.bench.bm25 --data ../shared/data/squad [--depth 1000] [--threads 2] [--repeats 3]
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from cort.formats import tables
from cort.formats.runs import read_run
from cort.retrieval.anserini import fat_jar
from cort.system.machine import java_home
from scripts.bench.common import compare, parse, print_table, run, run_stage, write_split

MAIN_CLASS = "io.anserini.search.SearchCollection"
K1, B = 0.82, 0.68


def refuse_differences(folder: Path) -> None:
    """End the program if the passages of a query differ between the runs."""
    ours, theirs = (
        {ranking.query_id: set(ranking.doc_ids) for ranking in read_run(folder / f"{name}.trec")}
        for name in ("ours", "theirs")
    )
    different = [query_id for query_id in ours.keys() | theirs.keys() if ours.get(query_id) != theirs.get(query_id)]
    if different:
        sys.exit(f"{len(different)} of {len(theirs)} queries have different passages, for example {min(different)}")


def main() -> None:
    """Make index and queries with the stages, write the queries in Anserini's format, measure, print."""
    args = parse(__doc__, data=Path, depth=1000, threads=len(os.sched_getaffinity(0)), repeats=3)
    with tempfile.TemporaryDirectory() as name:
        folder, depth, threads = Path(name), args.depth, args.threads
        write_split(args.data.resolve(), "dev", folder)
        run_stage("index bm25", passages=folder / "passages.parquet", threads=threads, output=folder / "index")
        queries = tables.read_table(folder / "queries.parquet", tables.QUERIES).to_pylist()
        topics = (json.dumps({"id": row["query_id"], "title": row["text"]}) + "\n" for row in queries)
        (folder / "topics.jsonl").write_text("".join(topics), encoding="ascii")
        files = ("-index", folder / "index", "-topics", folder / "topics.jsonl", "-output", folder / "theirs.trec")
        numbers = ("-bm25.k1", K1, "-bm25.b", B, "-hits", depth, "-threads", threads)
        java = (java_home() / "bin" / "java", "-cp", fat_jar(), MAIN_CLASS, "-topicReader", "JsonString", "-bm25")
        ours = {"index": folder / "index", "queries": folder / "queries.parquet", "output": folder / "ours.trec"}
        how = {"k1": K1, "b": B, "depth": depth, "threads": threads, "tag": "bm25"}
        sides = {
            "Anserini": lambda: run(*java, *files, *numbers)[0],
            "cort.retrieve bm25": lambda: run_stage("retrieve bm25", **ours, **how),
        }
        rows = list(compare(f"{len(queries)} queries", args.repeats, sides))
        refuse_differences(folder)
    print_table(rows)


if __name__ == "__main__":
    main()
