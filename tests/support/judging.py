"""Results of the explorer's small experiment that a person judges, and a process that serves them."""

import sys
from pathlib import Path

import pyarrow as pa

from cort.formats.tables import PASSAGES, QUERIES, write_table
from cort.online.judging import Judging
from cort.online.line import Line, listening
from cort.online.web import make_app, serve
from tests.support.explorer import (
    PASSAGES_COUNT,
    QUERIES_COUNT,
    SYSTEMS,
    passage_id,
    rankings,
    score,
    text_of_passage,
    text_of_query,
)
from tests.support.live import Scripted
from tests.support.online import results_with

#: names in a config, of the systems in the same order
NAMES = ("bm25", "dense", "both")
NEXT = ("When all is judged: ", "make verdict FOLDER='my notes' QRELS=judged.jsonl")


def write_judged(folder, queries=QUERIES_COUNT, *, documents=False):
    """Write the runs of all systems on the split `test`, and its queries and passages."""
    asked = [(f"q{one}", text_of_query(one)) for one in range(queries)]
    passages = [(passage_id(one, documents), text_of_passage(one)) for one in range(PASSAGES_COUNT)]
    for name, schema, rows in (("queries.test", QUERIES, asked), ("passages", PASSAGES, passages)):
        (folder / "collection").mkdir(parents=True, exist_ok=True)
        columns = [list(column) for column in zip(*rows, strict=True)]
        write_table(folder / "collection" / f"{name}.parquet", pa.table(columns, schema=schema))
    (folder / "runs" / "test").mkdir(parents=True, exist_ok=True)
    for name, system in zip(NAMES, SYSTEMS, strict=True):
        lines = [
            f"q{query} Q0 {passage_id(one, documents)} {rank} {score(rank)} {name}\n"
            for query, ranking in rankings(system).items()
            if query < queries
            for rank, one in enumerate(ranking, 1)
        ]
        (folder / "runs" / "test" / f"{name}.trec").write_text("".join(lines), "utf-8")
    return judging_of(folder, folder / "judged.jsonl", documents=documents)


def judging_of(folder, file, depth=3, *, documents=False):
    """Open the judgements of these results."""
    systems = {
        "bm25": {"retrieve": "bm25"},
        "dense": {"retrieve": "encoder"},
        "both": {"interleave": ["dense", "bm25"]},
    }
    collection = {"passages": "passages.tsv"} | ({"aggregate": "max"} if documents else {})
    results = results_with(folder, systems, collection=collection, rerankers={})
    return Judging(results, "test", Path(file), depth, NEXT)


def pool_of(query, depth=3):
    """Return the first passages of all systems."""
    return {one for system in SYSTEMS for one in rankings(system).get(query, [])[:depth]}


def main(folder, data, file, port):
    """Serve the page until this process is killed."""
    judging = judging_of(Path(folder), file)
    with listening(int(port)) as listener:
        app = make_app(Scripted(), Path(data), Line(), judging=judging)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        serve(app, listener)


if __name__ == "__main__":
    main(*sys.argv[1:])
