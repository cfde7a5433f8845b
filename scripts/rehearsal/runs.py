"""The steps from runs to measures and pages, on random runs."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pyarrow as pa

from cort.formats import tables
from scripts.rehearsal import common
from scripts.rehearsal.common import Step
from scripts.rehearsal.drawn import write_random_run, write_random_scores

MEASURES = ("RR@10", "nDCG@20", "R@50", "R@100", "R@200", "R@500", "R@1000")


def run_steps(folder: Path, passages: int, size: Fraction) -> Iterator[Step]:
    """Merge, import, measure, compare, re-rank, submit and show runs of two systems."""
    count = max(round(common.DEV_QUERIES * size), 1)
    first, second = runs = [folder / f"run{number}.trec" for number in (1, 2)]
    scores, answered = folder / "scores.parquet", folder / "queries.answered.parquet"
    queries, qrels = ({kind: folder / f"{kind}.dev.small.parquet"} for kind in ("queries", "qrels"))

    def write() -> None:
        ids = tables.read_table(qrels["qrels"], tables.QRELS)["query_id"].unique().to_pylist()[:count]
        for number, run in enumerate(runs):
            write_random_run(run, ids, passages, min(common.DEPTH, passages // 2), number)
        write_random_scores(scores, first, 1)
        tables.write_table(answered, pa.table({"query_id": ids, "text": ids}, schema=tables.QUERIES))

    def call(name: str, output: str, **options: object) -> Step:
        prepare = write if name == "fuse" else None
        return Step(name, count * common.DEPTH, "results", "random runs", prepare, **options, output=folder / output)

    per_query, recall = folder / "measures.parquet", folder / "recall.csv"
    table, split = {"passages": folder / "passages.parquet"}, {"split": "dev.small"}
    named, ranked = {"system": "x", **split}, {"candidates": first, "scores": scores}
    ranks = [*(2**power for power in range(10) if 2**power < common.DEPTH), common.DEPTH]
    yield call("fuse", "merged.trec", runs=runs, depth=common.DEPTH, tag="x")
    yield call("import_run", "imported.trec", run=first, **queries, **table, tag="x")
    more: dict[str, object] = {"output_per_query": per_query, "output_recall": recall}
    yield call("evaluate", "measures.json", run=first, **queries, **qrels, measures=MEASURES, **named, **more)
    more = {"output_table": folder / "compared.csv", "output_queries": folder / "differences.csv", "seed": 42}
    both = {"systems": ["x", "y"], "per_query": [per_query] * 2, "recall": [recall] * 2}
    yield call("compare", "compared.json", baseline="x", **both, **queries, **split, **more)
    yield call("rerank", "reranked.trec", **ranked, depth=common.DEPTH, tag="x")
    yield call("depths", "depths.json", **ranked, **qrels, depths=ranks, measures=["RR@10", "nDCG@20"], **named)
    more = {"reference": second, "reference_name": "y", "depths": ranks}
    yield call("consistency", "consistency.json", run=first, **more, **named)
    yield call("submission", "submission.tsv", run=first, queries=answered, **table, form="msmarco")
    more = {"first": first, "second": second, "first_name": "x", "second_name": "y"}
    yield call("disagreements", "disagreements.json", **more, **queries, **qrels, **table, **split)
    both = {"systems": ["x", "y"], "runs": runs, "per_query": [per_query] * 2}
    yield call("explorer", "explorer", dataset="synthetic", **both, **queries, **qrels, **table, **split)
