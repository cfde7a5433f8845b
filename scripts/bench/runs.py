"""Measure what run files cost: evaluating one beside NIST's trec_eval, writing one, interleaving two.

The runs are as large as those of MS MARCO's dev.small, 6,980 queries with 1,000 results and 7,437 judgements; some
scores are tied in one run, all in another. Programs that are compared take turns, each in a process of its own, start
and imports included; medians of several turns. It ends with status 1 if the programs do not agree on a number.

Usage: python -m scripts.bench.runs [--queries 6980] [--depth 1000] [--repeats 5]
"""

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.retrieval.anserini import fat_jar
from scripts.bench.common import Row, compare, parse, print_table, run, run_stage, timed
from scripts.rehearsal.synthetic import PASSAGES, SPLITS

# Table 1 of the CoRT paper, with trec_eval's names.
CUTS = (50, 100, 200, 500, 1000)
MEASURES = {"RR@10": "recip_rank", "nDCG@20": "ndcg_cut_20", **{f"R@{k}": f"recall_{k}" for k in CUTS}}
REQUESTS = ("recip_rank", "ndcg_cut.20", "recall.50,100,200,500,1000")
PLAIN = "import sys; from scripts.bench.runs import evaluate_plainly; evaluate_plainly(*sys.argv[1:])"


def draw(name: str, query_ids: Iterable[str], depth: int) -> Iterator[Ranking]:
    """Draw a run: a third of the results of "second" are those of "first", and all scores of "tied" are the same."""
    generator = np.random.default_rng(1)
    for query_id in query_ids:
        # Drawing without repetition is slow; the few repetitions are dropped.
        pool = list(dict.fromkeys(generator.integers(1, PASSAGES, 2 * depth).astype(str).tolist()))
        scores = np.sort(generator.gamma(20, 0.5, depth).round(4))[::-1]
        doc_ids = pool[: depth // 3] + pool[depth:] if name == "second" else pool
        yield Ranking(query_id, doc_ids[:depth], np.ones(depth) if name == "tied" else scores)


def write_world(folder: Path, queries: int, depth: int) -> None:
    """Write three runs, queries and judgements."""
    generator = np.random.default_rng(2)
    query_ids = [str(number) for number in np.sort(generator.choice(1_100_000, queries, replace=False))]
    for name in ("first", "second", "tied"):
        write_in_a_loop(folder / f"{name}.trec", draw(name, query_ids, depth))
    judged = SPLITS["dev.small"].judged
    counts = generator.permutation(np.repeat(np.arange(len(judged)) + 1, judged))
    rows = []
    for (query_id, doc_ids, _), count in zip(draw("first", query_ids, depth), np.resize(counts, queries), strict=True):
        ranks = set(generator.exponential(depth / 6, count).astype(int).tolist())
        # No result has the number 0.
        rows += [(query_id, doc_ids[rank] if rank < depth else "0", 1) for rank in ranks]
    (folder / "qrels.txt").write_text("".join(f"{query_id} 0 {doc_id} {grade}\n" for query_id, doc_id, grade in rows))
    columns = [list(column) for column in zip(*rows, strict=True)]
    tables.write_table(folder / "qrels.parquet", pa.table(columns, schema=tables.QRELS))
    tables.write_table(folder / "queries.parquet", pa.table([query_ids, query_ids], schema=tables.QUERIES))


def write_in_a_loop(path: Path, rankings: Iterable[Ranking]) -> None:
    """Write a run as anybody would."""
    with open(path, "w", encoding="utf-8") as file:
        for query_id, doc_ids, scores in rankings:
            for rank, (doc_id, score) in enumerate(zip(doc_ids, scores.tolist(), strict=True), start=1):
                file.write(f"{query_id} Q0 {doc_id} {rank} {score} x\n")


def evaluate_plainly(qrels: str, run_path: str, output: str) -> None:
    """Evaluate as the documentation of pytrec_eval says, and write the values of every query."""
    import pytrec_eval

    with open(qrels, encoding="ascii") as lines:
        judged = pytrec_eval.parse_qrel(lines)
    with open(run_path, encoding="ascii") as lines:
        ranked = pytrec_eval.parse_run(lines)
    values = pytrec_eval.RelevanceEvaluator(judged, set(REQUESTS)).evaluate(ranked)
    wanted = {query: {ours: row[MEASURES[ours]] for ours in MEASURES} for query, row in values.items()}
    Path(output).write_text(json.dumps(wanted), encoding="utf-8")


def measure_evaluation(folder: Path, name: str, repeats: int) -> Iterator[Row]:
    """Compare the stage `evaluate` with the trec_eval program and with plain pytrec_eval, in cost and in numbers."""
    results, qrels = folder / f"{name}.trec", folder / "qrels.txt"
    with zipfile.ZipFile(fat_jar()) as jar:
        program = Path(jar.extract("trec_eval/trec_eval-linux-amd64", folder))
    program.chmod(0o755)
    trec_eval = (program, "-c", *(word for request in REQUESTS for word in ("-m", request)), qrels, results)
    files = {"run": results, "queries": folder / "queries.parquet", "qrels": folder / "qrels.parquet"}
    outputs = {"output": folder / "x.json", "output_per_query": folder / "x.parquet", "output_recall": folder / "x.csv"}
    named = {"measures": [*MEASURES], "system": "s", "split": "dev"}
    sides = {
        "trec_eval": lambda: run(*trec_eval)[0],
        "cort.evaluate": lambda: run_stage("evaluate", **files, **outputs, **named),
        "pytrec_eval": lambda: run(sys.executable, "-c", PLAIN, qrels, results, folder / "plain.json")[0],
    }
    yield from compare(f"evaluate the run {name}", repeats, sides)
    means = (line.split() for line in run(*trec_eval)[1].splitlines())
    cut = run(program, "-c", "-M", 10, "-m", "recip_rank", qrels, results)[1].split()[-1]
    refuse_differences(folder, {measure: value for measure, _, value in means} | {"recip_rank": cut})


def refuse_differences(folder: Path, printed: Mapping[str, str]) -> None:
    """End the program if a mean is not the one printed, or a query's value not plain pytrec_eval's to the last bit."""
    means = json.loads((folder / "x.json").read_text(encoding="utf-8"))["mean"]
    wrong = [name for name, value in means.items() if f"{value:.4f}" != printed[MEASURES[name]]]
    plain = json.loads((folder / "plain.json").read_text(encoding="utf-8"))
    for row in tables.read_table(folder / "x.parquet", tables.PER_QUERY).to_pylist():
        value = plain.get(row["query_id"], {}).get(row["measure"], 0.0)
        expected = 0.0 if row["measure"] == "RR@10" and value < 1 / 10 else value
        if row["value"] != expected:
            wrong.append(f"{row['measure']} of query {row['query_id']}")
    if wrong:
        sys.exit(f"found other numbers than trec_eval's: {', '.join(wrong[:5])}")


def measure_writing(folder: Path, name: str, repeats: int) -> Iterator[Row]:
    """Compare `write_run` with a loop, both in this process."""
    rankings = list(read_run(folder / f"{name}.trec"))
    sides = {
        "write_run": lambda: timed(lambda: write_run(folder / "written.trec", rankings, "x")),
        "a Python loop": lambda: timed(lambda: write_in_a_loop(folder / "loop.trec", rankings)),
    }
    return compare(f"write the run {name}", repeats, sides)


def main() -> None:
    """Measure and print."""
    args = parse(__doc__, queries=6980, depth=1000, repeats=5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_world(folder, args.queries, args.depth)
        runs = [folder / "first.trec", folder / "second.trec"]
        fuse = {"fuse": lambda: run_stage("fuse", runs=runs, tag="x", output=folder / "interleaved.trec")}
        rows = [row for some in ("first", "tied") for row in measure_evaluation(folder, some, args.repeats)]
        rows += compare("interleave two runs", args.repeats, fuse)
        rows += [row for some in ("first", "tied") for row in measure_writing(folder, some, args.repeats)]
    print_table(rows)


if __name__ == "__main__":
    main()
