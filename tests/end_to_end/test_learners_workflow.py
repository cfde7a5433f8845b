"""Late interaction, sparse encoders, a second round of training and predicted queries, from texts to the searcher."""

import json
from contextlib import closing

import numpy as np
import pytest
import yaml
from sentence_transformers import SparseEncoder

from cort.config.stored import read_experiment
from cort.formats.artifacts import read_artifact
from cort.formats.runs import read_run
from cort.formats.tables import EXPANSIONS, IMPACTS, PASSAGES, QUERIES, TRIPLES, read_table
from cort.online.searcher import open_searcher
from cort.retrieval.audits import Audit
from tests.support.common import read_curve, texts_by_id
from tests.support.forking import snakemake, succeed
from tests.support.released import write_t5
from tests.support.sandbox import TINY, copy_with_tiny, hurry_latencies
from tests.support.workflow import learners_config, planned

pytestmark = pytest.mark.slow

LATE = ("late", "late+bm25", "bm25-late", "late-ivfpq", "taught-ivfpq")


@pytest.fixture(scope="module")
def built_learners(tmp_path_factory, lm):
    """The project with the experiment, built; and the planned jobs."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("learners") / "tree")
    hurry_latencies(tree)
    write_t5(tree / "models" / "t5", lm)
    # An IVF-PQ index needs 256 vectors.
    collection = tree / "tiny/data/collection.tsv"
    more = "".join(f"more{line}" for line in collection.read_text("utf-8").splitlines(keepends=True))
    with collection.open("a", encoding="utf-8") as file:
        file.write(more)
    config = learners_config(yaml.safe_load((tree / TINY).read_text("utf-8")))
    (tree / "learners.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    output = succeed(tree, "snakemake", "--cores", 2, "--configfile", "learners.yaml")
    return tree, planned(output)


@pytest.fixture(scope="module")
def jobs(built_learners):
    return built_learners[1]


@pytest.fixture(scope="module")
def results(built_learners):
    return built_learners[0] / "results" / "learners"


@pytest.fixture(scope="module")
def runs(results):
    return {path.stem: read_run(path) for path in (results / "runs/test").glob("*.trec")}


@pytest.fixture(scope="module")
def texts(results):
    return texts_by_id(results / "collection/queries.test.parquet", QUERIES)


@pytest.fixture(scope="module")
def searcher(results):
    stored = read_experiment(results / "experiment.yaml")
    with closing(open_searcher(stored, [*LATE, "free", "fused"], threads=2)) as searcher:
        yield searcher


def negatives(results, encoder):
    """Pairs of a query and a passage that an encoder learnt to tell from the relevant one."""
    table = read_table(results / f"triples/{encoder}.train.parquet", TRIPLES).to_pylist()
    return {(row["query_id"], row["negative"]) for row in table}


def found(path):
    """Pairs of a query and what is in a run for it."""
    return {(one.query_id, doc_id) for one in read_run(path, gaps=True) for doc_id in one.doc_ids}


def test_nothing_is_left_to_do_and_the_report_shows_all_systems(built_learners, results, runs):
    status, again = snakemake(built_learners[0], "--cores", 2, "--configfile", "learners.yaml")
    assert (status, "Nothing to be done" in again) == (0, True), again[-10_000:]
    page = (results / "report/index.html").read_text("utf-8")
    assert all(f'<th scope="row">{name}</th>' in page for name in runs)


def test_models_and_shards_have_jobs_of_their_own(jobs):
    # Of the encoders: taught, student and second, learned and free. Of the only re-ranker, its scores and tokens.
    assert (jobs["train"], jobs["train_reranker"], jobs["score"], jobs["rerank"]) == (5, 1, 1, 1)
    assert (jobs["encode_impacts"], jobs["encode_tokens"], jobs["encode"], jobs["expand"]) == (4, 2, 6, 2)
    assert (jobs["impact_index"], jobs["ivfpq"], jobs["audit_ivfpq"], jobs["retrieve_ivfpq"]) == (2, 2, 4, 2)
    # Weights of the fusion, and the runs that are evaluated; the student's negatives are searched for it alone.
    assert (jobs["retrieve_impacts"], jobs["negatives"]) == (3, 3)
    assert (jobs["import_triples"], jobs["import_pairs"], jobs["score_triples"]) == (1, 1, 2)


def test_released_triples_of_queries_that_are_held_out_are_dropped(results):
    for counted in ("triples/taught", "pairs/late"):
        counts = json.loads((results / f"{counted}.train.json").read_text("utf-8"))
        assert (counts["triples read"], counts["dropped: unknown query"], counts["triples kept"]) == (50, 10, 40)


def test_negatives_are_what_the_named_system_found(results):
    assert negatives(results, "second") <= found(results / "runs/train/student.trec")


def test_deep_negatives_are_drawn_from_the_merged_run_of_which_little_is_kept(results):
    """Ranks down to 40 of BM25 and a sparse encoder interleaved, where runs of training queries have 30 results."""
    path = results / "negatives/student.train/interleaved.trec"
    kept, table = read_run(path, gaps=True), read_table(results / "triples/student.train.parquet", TRIPLES)
    assert negatives(results, "student") <= found(path)
    assert 30 < max(table["negative_rank"].to_pylist()) <= 40
    # In two epochs a negative each, a positive, and the last rank.
    assert max(np.diff(kept.offsets)) <= 4
    assert not (results / "runs/train/interleaved.trec").exists()


def test_a_second_round_is_validated_and_logged(built_learners, results):
    curve = read_curve(results / "encoders/second/curve.csv")
    assert [row["validation_measure"] is None for row in curve] == [row["validation_loss"] is None for row in curve]
    [events] = (built_learners[0] / "logs/learners/events/encoders/second").glob("events.out.tfevents.*")
    assert events.stat().st_size > 500


def test_what_late_interaction_retrieves_and_reranks_has_the_same_scores(runs):
    pairs = []
    for one, other in zip(runs["late"], runs["bm25-late"], strict=True):
        scores = dict(zip(one.doc_ids, one.scores, strict=True))
        reranked = dict(zip(other.doc_ids[:20], other.scores, strict=False))
        pairs += [(scores[name], score) for name, score in reranked.items() if name in scores]
    assert len(pairs) > 10
    # But for half precision.
    assert all(own == pytest.approx(score, rel=5e-3) for own, score in pairs)


@pytest.mark.parametrize("system", ["late", "late-ivfpq", "taught-ivfpq"])
def test_searches_have_the_scores_of_the_runs(searcher, runs, texts, system):
    for ranking in runs[system]:
        answer = searcher.search(system, texts[ranking.query_id], searcher.depth)
        assert [one.score for one in answer.results] == pytest.approx(ranking.scores, abs=1e-4)
        if system == "late":
            assert answer.milliseconds.keys() == {"tokenize", "encode", "search", "total"}


@pytest.mark.parametrize("system", ["free", "fused"])
def test_searches_of_sparse_encoders_are_the_runs(searcher, runs, texts, system):
    for ranking in runs[system]:
        answer = searcher.search(system, texts[ranking.query_id], searcher.depth)
        assert [one.doc_id for one in answer.results] == ranking.doc_ids


def test_an_interleaved_search_begins_with_the_first_system(searcher, runs, texts):
    first = runs["late"][0]
    assert searcher.search("late+bm25", texts[first.query_id], 5).results[0].doc_id == first.doc_ids[0]


@pytest.mark.parametrize("model", ["late", "taught"])
def test_an_index_gives_scores_of_exact_search_and_its_audit_is_shown(results, runs, model):
    for one, other in zip(runs[f"{model}-ivfpq"], runs[model], strict=True):
        scores = dict(zip(other.doc_ids, other.scores, strict=True))
        shared = [(scores[name], score) for name, score in zip(one.doc_ids, one.scores, strict=True) if name in scores]
        assert len(shared) >= 0.5 * len(one.doc_ids)
        assert all(own == pytest.approx(score, abs=1e-5) for own, score in shared)
    audit = read_artifact(results / f"audit/test/{model}.ivfpq.json", Audit)
    assert max(search.recall for search in audit.searches) >= 0.9
    assert "IVFPQ" in (results / "report/figures/audits.svg").read_text("utf-8")


@pytest.mark.parametrize("name", ["learned", "free"])
def test_sentence_transformers_gives_queries_the_same_impacts(results, texts, name):
    model = SparseEncoder(str(results / "encoders" / name / "best"), device="cpu")
    table = read_table(results / f"embeddings/{name}/queries.test.parquet", IMPACTS).to_pylist()
    weights = model.encode_query([texts[row["id"]] for row in table]).to_dense().numpy() * 100
    for row, expected in zip(table, weights, strict=True):
        impacts = np.zeros(len(expected))
        impacts[row["tokens"]] = row["impacts"]
        assert np.abs(impacts - expected).max() <= 0.5 + 1e-3


def test_latency_is_measured(results):
    timed = json.loads((results / "latency/test.json").read_text("utf-8"))["rows"]
    assert {row["system"] for row in timed if "search" in row["milliseconds"]} == {"learned", "fused"}


def test_queries_that_a_t5_predicts_are_those_of_all_passages(results):
    shards = [read_table(results / f"expansions/t5/passages.{number}-of-2.parquet", EXPANSIONS) for number in (1, 2)]
    ids = read_table(results / "collection/passages.parquet", PASSAGES)["doc_id"].to_pylist()
    assert [name for shard in shards for name in shard["doc_id"].to_pylist()] == ids
