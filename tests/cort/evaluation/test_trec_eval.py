"""Our measures, those of the trec_eval program, and the MRR of MS MARCO's own script are the same on the same run."""

import platform
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cort import import_run
from cort.evaluation.measures import evaluate_run, means
from cort.formats import tables
from cort.formats.runs import read_run
from cort.retrieval.anserini import fat_jar
from tests.support.common import command_line, write_rows

PROGRAM = "trec_eval/trec_eval-linux-amd64"
DOCUMENTS = [str(number) for number in range(1, 61)]
QUERIES = [str(number) for number in range(100, 140)]
# As in the first table of the CoRT paper, with cuts that fit the small runs; by trec_eval's names.
TABLE_1 = {"ndcg_cut_20": "nDCG@20", "map": "AP", **{f"recall_{k}": f"R@{k}" for k in (5, 10, 20, 1000)}}


@pytest.fixture(scope="session")
def trec_eval(tmp_path_factory):
    """Run NIST's C program, which Anserini brings: query or "all" -> measure -> value as printed."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the program is for Linux on x86_64")
    with zipfile.ZipFile(fat_jar()) as jar:
        program = Path(jar.extract(PROGRAM, tmp_path_factory.mktemp("trec_eval")))
    program.chmod(0o755)

    def run(qrels, results, *options):
        command = [program, "-q", *map(str, options), qrels, results]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found: dict[str, dict[str, str]] = {}
        for line in said.splitlines():
            measure, query_id, value = line.split()
            found.setdefault(query_id, {})[measure] = value
        return found

    return run


def official_mrr(qrels, lines):
    """MRR@10 as msmarco_passage_eval.py computes it: by the rank column, over all queries of the qrels."""
    candidates: dict[int, list[int]] = {}
    for line in lines:
        query_id, _, doc_id, rank, _, _ = line.split()
        # One slot per rank, 0 where there is none.
        candidates.setdefault(int(query_id), [0] * 1000)[int(rank) - 1] = int(doc_id)
    total = 0.0
    for query_id, ranked in candidates.items():
        relevant = {int(doc_id) for doc_id in qrels.get(str(query_id), ())}
        for position in range(10):
            if ranked[position] in relevant:
                total += 1 / (position + 1)
                break
    return total / len(qrels)


@pytest.fixture(params=range(2))
def world(request, tmp_path):
    """A published run full of ties, in any order, without some queries; grades 0 to 3, some queries with 0 alone."""
    generator = np.random.default_rng(request.param)
    qrels = {
        query_id: {str(doc): int(generator.integers(0, 4)) for doc in generator.permutation(DOCUMENTS)[:8]}
        for query_id in QUERIES
    }
    qrels[QUERIES[0]] = dict.fromkeys(qrels[QUERIES[0]], 0)
    scores = ["1.0", "1.00000000001", "0.5", "7e-1", "12.25", "-3"]
    lines = [
        f"{query_id} Q0 {doc} {rank} {scores[generator.integers(len(scores))]} published"
        for query_id in QUERIES[:-6]
        for rank, doc in enumerate(generator.permutation(DOCUMENTS)[: generator.integers(1, 60)], start=1)
    ]
    generator.shuffle(lines)
    (tmp_path / "published.trec").write_text("\n".join([*lines, ""]))
    rows = (f"{query} 0 {doc} {grade}\n" for query, judged in qrels.items() for doc, grade in judged.items())
    (tmp_path / "qrels.txt").write_text("".join(rows))
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, zip(QUERIES, QUERIES, strict=True))
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, zip(DOCUMENTS, DOCUMENTS, strict=True))
    return tmp_path, qrels


def imported(folder):
    files = {"run": "published.trec", "queries": "queries.parquet", "passages": "passages.parquet"}
    named = {name: folder / file for name, file in files.items()} | {"output": folder / "run.trec", "tag": "x"}
    assert import_run.main(command_line(named)) == 0
    return folder / "run.trec"


def relevant_only(qrels, level):
    """What the official script reads: every query, and of its documents those that count as relevant."""
    return {query: {doc for doc, grade in judged.items() if grade >= level} for query, judged in qrels.items()}


@pytest.mark.parametrize("level", [1, 2])
def test_the_measures_of_the_papers_are_the_same_by_all_three(world, trec_eval, level):
    folder, qrels = world
    run = imported(folder)
    mrr = ("-c", "-M", 10, "-l", level, "-m", "recip_rank")
    published, written = (trec_eval(folder / "qrels.txt", path, *mrr) for path in (folder / "published.trec", run))
    assert published == written
    options = ("-c", "-l", level, "-m", "ndcg_cut.20", "-m", "recall.5,10,20,1000", "-m", "map")
    names = ["RR@10", *TABLE_1.values()]
    # The published run has ties; as it stands, and as it is imported.
    for path in (folder / "published.trec", run):
        printed = trec_eval(folder / "qrels.txt", path, *options)
        ours = evaluate_run(read_run(path), qrels, names, level)
        rows = {**ours, "all": means(ours, names)}
        for query, values in printed.items():
            # 1/rank is known from four decimals.
            assert f"{rows[query]['RR@10']:.4f}" == published[query]["recip_rank"]
            assert {theirs: f"{rows[query][name]:.4f}" for theirs, name in TABLE_1.items()} == values
        assert len(printed) == len(QUERIES) - 6 + 1
    official = official_mrr(relevant_only(qrels, level), run.read_text().splitlines())
    assert official == pytest.approx(rows["all"]["RR@10"], abs=1e-15)
    assert 0 < official < 1
