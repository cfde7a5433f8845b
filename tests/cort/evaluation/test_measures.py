import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cort.evaluation import measures, names
from cort.formats import tables
from cort.formats.fields import LARGEST_GRADE
from cort.formats.runs import Run, read_run
from cort.runtime.errors import InputError
from tests.support.common import table_of

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
CUTS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)

# Our names for what `trec_eval -m all_trec` prints.
CUT = {"P": "P", "recall": "R", "ndcg_cut": "nDCG", "map_cut": "AP"}
TREC_TO_OURS = {"recip_rank": "RR", "map": "AP", "ndcg": "nDCG"}
TREC_TO_OURS |= {f"success_{k}": f"Success@{k}" for k in (1, 5, 10)}
TREC_TO_OURS |= {f"{theirs}_{k}": f"{ours}@{k}" for theirs, ours in CUT.items() for k in CUTS}


def make_run(rankings: dict[str, list[tuple[str, float]]]) -> Run:
    doc_ids = [doc_id for ranking in rankings.values() for doc_id, _ in ranking]
    scores = np.array([score for ranking in rankings.values() for _, score in ranking], dtype=np.float64)
    offsets = np.cumsum([0, *(len(ranking) for ranking in rankings.values())]).astype(np.int64)
    return Run(list(rankings), offsets, pa.array(doc_ids, pa.string()), scores)


def value(rankings, qrels, measure, relevance_level=1):
    return measures.evaluate_run(make_run(rankings), qrels, [measure], relevance_level)["q"][measure]


FIVE = {"q": [("a", 5.0), ("b", 4.0), ("c", 3.0), ("d", 2.0), ("e", 1.0)]}


# Relevant documents at ranks 3 and 5, of three; of the others one is judged.
THREE = {"c": 1, "e": 1, "missing": 1, "a": 0}
# b and e are judged: the second and fifth of five results. e and z are relevant; the first is found at rank 5.
SOME = {"b": 0, "e": 2, "z": 1}
MANY = {"a": 1, "b": 2, "c": 0, "d": 1, "x": 1, "y": 1}
KNOWN = [
    *((THREE, "RR", 1 / 3), (THREE, "RR@3", 1 / 3), (THREE, "RR@2", 0), (THREE, "P@4", 1 / 4), (THREE, "P@10", 2 / 10)),
    *((THREE, "R@4", 1 / 3), (THREE, "R@5", 2 / 3), (THREE, "AP", (1 / 3 + 2 / 5) / 3), (THREE, "AP@4", (1 / 3) / 3)),
    *((THREE, "Success@2", 0), (THREE, "Success@3", 1)),
    *((SOME, f"Judged@{k}", share) for k, share in ((1, 0), (2, 1 / 2), (4, 1 / 4), (5, 2 / 5), (10, 2 / 5))),
    *((SOME, "RR(judged_only=True)", 1 / 2), (SOME, "RR(judged_only=True)@1", 0), (SOME, "RR", 1 / 5)),
    *((SOME, "P(judged_only=True)@2", 1 / 2), (SOME, "P(judged_only=True)@10", 1 / 10)),
    *((SOME, "AP(judged_only=True)", (1 / 2) / 2), (SOME, "Success(judged_only=True)@2", 1)),
    (SOME, "nDCG(judged_only=True)@10", (2 / math.log2(3)) / (2 + 1 / math.log2(3))),
    *((SOME, f"R_cap@{k}", share) for k, share in ((1, 0), (4, 0), (5, 1 / 2), (100, 1 / 2))),
    # Capped recall reaches 1 if all of the top k are relevant.
    *((MANY, f"R_cap@{k}", share) for k, share in enumerate((1, 1, 2 / 3, 3 / 4, 3 / 5, 3 / 5), 1)),
]


@pytest.mark.parametrize(("judged", "measure", "expected"), KNOWN)
def test_known_answers(judged, measure, expected):
    assert value(FIVE, {"q": judged}, measure) == pytest.approx(expected, abs=1e-15)


def test_ndcg_uses_the_grades_themselves_at_every_level():
    qrels = {"q": {"b": 3, "d": 1, "missing": 2}}
    ideal = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    whole = (3 / math.log2(3) + 1 / math.log2(5)) / ideal
    cut = (3 / math.log2(3)) / (3 / math.log2(2) + 2 / math.log2(3))
    for level in (1, 2, 3):
        assert value(FIVE, qrels, "nDCG", level) == pytest.approx(whole)
        assert value(FIVE, qrels, "nDCG@2", level) == pytest.approx(cut)


def test_equal_scores_are_ordered_by_descending_doc_id_and_the_cut_respects_it():
    tied = {"q": [("a", 1.0), ("b", 1.0), ("c", 1.0)]}
    assert value(tied, {"q": {"a": 1}}, "RR") == 1 / 3
    assert value(tied, {"q": {"a": 1}}, "RR@2") == 0.0
    assert value(tied, {"q": {"c": 1}}, "RR@1") == 1.0


def test_queries_without_results_count_zero_and_queries_without_qrels_are_ignored():
    run = make_run({"unjudged": [("a", 1.0)], "found": [("a", 1.0)]})
    values = measures.evaluate_run(run, {"lost": {"a": 1}, "found": {"a": 1}}, ["RR@10", "nDCG@20"])
    assert values == {"lost": {"RR@10": 0.0, "nDCG@20": 0.0}, "found": {"RR@10": 1.0, "nDCG@20": 1.0}}
    assert list(values) == ["lost", "found"]
    assert measures.means(values, ["nDCG@20", "RR@10"]) == {"nDCG@20": 1 / 2, "RR@10": 1 / 2}


def test_chunks_of_queries_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    rankings = {f"q{i}": [(f"d{j}", float(s)) for j, s in enumerate(rng.random(30))] for i in range(23)}
    qrels = {f"q{i}": {f"d{j}": int(rng.integers(0, 4)) for j in range(0, 40, 3)} for i in range(25)}
    whole = measures.evaluate_run(make_run(rankings), qrels, ["RR@10", "nDCG@20", "AP"])
    monkeypatch.setattr(measures, "QUERIES_PER_CHUNK", 7)
    assert measures.evaluate_run(make_run(rankings), qrels, ["RR@10", "nDCG@20", "AP"]) == whole


# Our measures, and trec_eval's requests and answers.
OF_ALL = {"RR": "recip_rank", "nDCG": "ndcg", "nDCG@5": "ndcg_cut.5", "AP": "map", "AP@10": "map_cut.10"}
OF_ALL |= {"P@5": "P.5", "R@3": "recall.3", "R@20": "recall.20", "Success@2": "success.2"}
OF_JUDGED = {"RR(judged_only=True)": "recip_rank", "nDCG(judged_only=True)@5": "ndcg_cut.5"}
OF_JUDGED |= {"AP(judged_only=True)": "map", "P(judged_only=True)@5": "P.5"}


def ranked(results):
    """Sort results of a query as trec_eval holds them: by score in single precision, then by descending id."""
    return sorted(results, key=lambda result: (np.float32(result[1]), result[0]), reverse=True)


@pytest.fixture(scope="module")
def apart():
    """A process that trec_eval may end, as it does for some grades."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


# TREC's web tracks have -2 for spam; the last ones are as far as judgements may go.
@pytest.mark.parametrize("grades", [(0, 3), (-2, 3), (-LARGEST_GRADE, LARGEST_GRADE)])
@pytest.mark.parametrize("judged_only", [False, True])
@pytest.mark.parametrize("level", [1, 2])
def test_the_same_numbers_as_trec_eval(apart, level, judged_only, grades):
    import pytrec_eval

    rng = np.random.default_rng(4)
    # Ids that are numbers, as the ranks that stand for documents; few scores, two alike in single precision only.
    scores = [1.0, 1.0 + 1e-9, 2.0, 2.5, -1.0]
    rankings = {
        f"q{i}": [(str(j), scores[rng.integers(5)]) for j in rng.permutation(60)[: rng.integers(0, 40)]]
        for i in range(60)
    }
    # Of a third of the queries, no grade is above the lowest.
    highest = [grades[0] if i % 3 == 0 else grades[1] for i in range(65)]
    qrels = {
        f"q{i}": {str(j): int(rng.integers(grades[0], top + 1)) for j in rng.permutation(80)[: rng.integers(1, 30)]}
        for i, top in enumerate(highest)
    }
    requests = OF_JUDGED if judged_only else OF_ALL
    names = [*requests, "Judged@10", "R_cap@10"]
    found = apart.submit(measures.evaluate_run, make_run(rankings), qrels, names, level).result(timeout=60)
    options = {"relevance_level": level, "judged_docs_only_flag": int(judged_only)}
    # trec_eval takes the depths of one measure together.
    asked = {*requests.values()} - {"recall.3", "recall.20"} | {"recall.3,20"}
    counted = {query_id: {doc_id: max(grade, 0) for doc_id, grade in of.items()} for query_id, of in qrels.items()}
    # Its -J also leaves out documents with a grade below 0, as unjudged.
    kept = {query_id: {doc_id: of[doc_id] for doc_id in of if of[doc_id] >= 0} for query_id, of in qrels.items()}
    given = {query_id: of for query_id, of in (kept if judged_only else counted).items() if of}
    expected = pytrec_eval.RelevanceEvaluator(given, asked, **options).evaluate(
        {query_id: dict(ranking) for query_id, ranking in rankings.items()}
    )
    for query_id, judged in counted.items():
        row, ranking = expected.get(query_id, {}), rankings.get(query_id, [])
        values = [row.get(answer.replace(".", "_"), 0.0) for answer in requests.values()]
        first = [doc_id for doc_id, _ in ranked(ranking)[:10]]
        values.append(sum(doc_id in judged for doc_id in first) / max(len(first), 1))
        relevant = sum(grade >= level for grade in judged.values())
        values.append(sum(judged.get(doc_id, 0) >= level for doc_id in first) / max(min(relevant, 10), 1))
        assert list(found[query_id].values()) == values


def test_recall_at_every_depth_is_the_mean_of_that_measure():
    rng = np.random.default_rng(5)
    rankings = {f"q{i}": [(f"d{j}", -float(n)) for n, j in enumerate(rng.permutation(30))] for i in range(20)}
    qrels = {f"q{i}": {f"d{j}": int(rng.integers(0, 3)) for j in rng.permutation(50)[:9]} for i in range(25)}
    ranks = measures.judged_ranks(make_run(rankings), qrels)
    names = [f"R@{k}" for k in range(1, 36)]
    for level in (1, 2):
        values = measures.means(measures.evaluate_ranks(ranks, qrels, names, level), names)
        assert measures.recall_by_depth(ranks, qrels, 35, level) == pytest.approx(list(values.values()), abs=1e-14)


def test_equal_recall_is_equal_whatever_queries_it_comes_from():
    qrels = {q: {f"{q}{number}": 1 for number in range(10)} for q in "abc"}
    # In floating point, .1 + .2 is not .3.
    split = {"a": [("a0", 1.0)], "b": [("b0", 2.0), ("b1", 1.0)]}
    together = {"c": [("c0", 3.0), ("c1", 2.0), ("c2", 1.0)]}
    first, second = (
        measures.recall_by_depth(measures.judged_ranks(make_run(run), qrels), qrels, 3) for run in (split, together)
    )
    assert first[-1] == second[-1] == 0.1
    assert measures.recall_by_depth({}, qrels, 0) == []


def test_all_unknown_names_are_reported_at_once_and_repeated_ones_or_none_are_refused():
    with pytest.raises(InputError, match=r"found 'MRR@10', 'ndcg@20', 'R', 'P@0', 'AP@x', expected .*nDCG@k"):
        names.parse_measures(["RR@10", "MRR@10", "ndcg@20", "R", "P@0", "R@1000", "AP@x"])
    for name in ("Judged", "Judged(judged_only=True)@10", "nDCG@10(judged_only=True)", "judged@10"):
        assert names.parse_measure(name) is None
    for repeated, found in ((["RR", "AP", "RR"], "'RR' again"), ([], "no measure")):
        with pytest.raises(InputError, match=f"measures: found {found}"):
            names.parse_measures(repeated)


def test_means_are_exact_and_refuse_nothing_to_average():
    assert measures.means({str(number): {"RR": 0.1} for number in range(10)}, ["RR"]) == {"RR": 0.1}
    with pytest.raises(ValueError, match="at least one"):
        measures.means({}, ["RR"])


qrels_table = partial(table_of, tables.QRELS)


def test_qrels_by_query_keeps_the_order_and_refuses_empty_tables():
    table = qrels_table([("2", "a", 1), ("1", "b", 0), ("2", "c", 3)])
    assert measures.qrels_by_query(table) == {"2": {"a": 1, "c": 3}, "1": {"b": 0}}
    assert list(measures.qrels_by_query(table)) == ["2", "1"]
    with pytest.raises(InputError, match="qrels: found no judgement"):
        measures.qrels_by_query(qrels_table([]))


def read_qrels(path):
    qrels = {}
    for line in path.read_text().splitlines():
        query_id, _, doc_id, relevance = line.split()
        qrels.setdefault(query_id, {})[doc_id] = int(relevance)
    return qrels


def read_trec_run(path, depth=None):
    """Read the first five fields (results.trunc has junk after them); `depth` cuts as trec_eval -M does."""
    rankings: dict[str, list[tuple[str, float]]] = {}
    for line in path.read_text().splitlines():
        query_id, _, doc_id, _, score = line.split()[:5]
        rankings.setdefault(query_id, []).append((doc_id, float(score)))

    return make_run({query: ranked(ranking)[:depth] for query, ranking in rankings.items()})


# Output, qrels, run, -M, -l, -c; what makes each was found by comparing num_ret, num_rel and num_q.
TREC_EVAL_OUTPUTS = [
    ("out.test.a", "qrels.test", "results.test", None, 1),
    ("out.test.aq", "qrels.test", "results.test", None, 1),
    ("out.test.aqc", "qrels.test", "results.trunc", None, 1),
    ("out.test.aqcM", "qrels.test", "results.trunc", 100, 1),
    ("out.test.aql", "qrels.rel_level", "results.test", None, 2),
]


@pytest.mark.skipif(not (DATA / "trec_eval").exists(), reason="trec_eval's own data are not here")
@pytest.mark.parametrize(("output", "qrels", "run", "depth", "level"), TREC_EVAL_OUTPUTS)
def test_every_printed_digit_of_trec_eval(output, qrels, run, depth, level):
    folder = DATA / "trec_eval"
    names = list(TREC_TO_OURS.values())
    values = measures.evaluate_run(read_trec_run(folder / run, depth), read_qrels(folder / qrels), names, level)
    values["all"] = measures.means(dict(values), names)
    compared = 0
    for line in (folder / output).read_text().splitlines():
        name, query_id, printed = line.split()
        if name in TREC_TO_OURS:
            assert f"{values[query_id][TREC_TO_OURS[name]]:.4f}" == printed, (name, query_id)
            compared += 1
    queries = 1 if output == "out.test.a" else 4
    assert compared == queries * len(TREC_TO_OURS)


@pytest.mark.skipif(not (DATA / "msmarco-meta").exists(), reason="the published runs are not here")
@pytest.mark.parametrize(
    # "The assessments for the BM25 rankings are complete" (CoRT, section 4.2.2); others have rankings of their own.
    ("run", "year", "results", "unjudged"),
    [("BM25", 19, 430, 0), ("D_BERT_KD_TASB", 19, 430, 42), ("BM25", 20, 540, 3), ("D_BERT_KD_TASB", 20, 540, 32)],
)
def test_unjudged_passages_of_published_runs(run, year, results, unjudged):
    folder = DATA / "msmarco-meta"
    qrels = read_qrels(folder / f"qrels.dl{year}-passage.txt")
    ranks = measures.judged_ranks(read_run(folder / f"run.{run}.dl{year}.trec"), qrels)
    found = measures.describe_judged(ranks, qrels, ["nDCG@10"], 2)
    assert (found.results, found.unjudged, found.judgements) == (results, unjudged, {19: 9260, 20: 11386}[year])
    # No list is shorter than 10.
    assert found.mean["Judged@10"] == pytest.approx(1 - unjudged / results)


def test_what_is_judged_of_the_first_results():
    rankings = FIVE | {"r": [(f"d{n}", -float(n)) for n in range(30)], "unjudged query": [("a", 1.0)]}
    qrels = {"q": {"b": 0, "e": 2, "z": 1}, "r": {"d0": 1, "d9": 0, "d10": 1}, "s": {"x": 1}}
    found = measures.describe_judged(measures.judged_ranks(make_run(rankings), qrels), qrels, ["RR@10", "R@5"])
    assert (found.judgements, found.relevant, found.results, found.unjudged) == (7, 5, 5 + 10, 3 + 8)
    # Of those that are judged, d10 comes third.
    expected = {"Judged@10": 2 / 5 + 2 / 10, "P@10": 1 / 10 + 1 / 10, "P(judged_only=True)@10": 1 / 10 + 2 / 10}
    expected |= {"RR@10": 1 / 5 + 1, "RR(judged_only=True)@10": 1 / 2 + 1}
    assert found.mean == pytest.approx({name: total / 3 for name, total in expected.items()})
