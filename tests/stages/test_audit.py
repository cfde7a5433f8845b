import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cort import index
from cort.evaluation.measures import evaluate_run, means
from cort.formats import tables
from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.records import Ranking
from cort.formats.runs import read_run, run_of
from cort.reporting.figures import round_numbers
from cort.reporting.format import MISSING
from cort.reporting.panels import audit_panels
from cort.reporting.sections import audits_table
from cort.reporting.tables import to_csv
from cort.retrieval import auditing
from cort.retrieval.audits import Audit, Exact, Milliseconds, Search
from tests.support.common import command_line, write_rows
from tests.support.vectors import names, shard, unit

COUNT, QUERIES = 500, 40
MEASURES = ["RR@10", "R@20"]
LISTS, CANDIDATES = 8, 60
WIDTHS = {"hnsw": [10, 20, 60], "onng": [-0.3, 0.0, 0.3], "ivfpq": [1, 2, LISTS]}
BUILT = {
    "hnsw": {"M": 3, "ef-construction": 5},
    "onng": {"edges": 5, "outgoing": 3, "incoming": 4, "threads": 1},
    "ivfpq": {"lists": LISTS, "bytes": 2},
}
#: query -> its judgements; every second query has some
QRELS = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Indexes that miss much, queries of which every second has judgements."""
    folder = tmp_path_factory.mktemp("audit")
    vectors, queries = unit(1, COUNT), unit(2, QUERIES)
    for name, part in (("p1", slice(0, 180)), ("p2", slice(180, None))):
        shard(folder / f"{name}.arrow", names("d", COUNT)[part], vectors[part])
    shard(folder / "q.arrow", names("q", QUERIES), queries)
    for query in range(0, QUERIES, 2):
        QRELS[f"q{query}"] = {f"d{brute_force(query, COUNT)[rank]}": 1 for rank in (0, 7, 15)}
    rows = [(query, doc_id, 1) for query, own in QRELS.items() for doc_id in own]
    write_rows(folder / "qrels.parquet", tables.QRELS, rows)
    for kind, named in BUILT.items():
        assert index.main([kind, *command_line(named | shards_of(folder) | {"output": folder / kind})]) == 0
    return folder


def shards_of(folder):
    return {"passages": [folder / "p1.arrow", folder / "p2.arrow"]}


def brute_force(query, depth):
    products = unit(1, COUNT).astype(np.float64) @ unit(2, QUERIES)[query].astype(np.float64)
    return sorted(range(COUNT), key=lambda number: (-products[number], f"d{number}"))[:depth]


def audited(folder, kind, output, **changes):
    """The command that audits an index, and its options."""
    named = {"queries": folder / "q.arrow", "qrels": folder / "qrels.parquet", "index": folder / kind}
    named |= {"widths": WIDTHS[kind], "depths": [5, 20], "measures": MEASURES, "encoder": "e", "split": "dev"}
    named |= {"candidates": CANDIDATES} if kind == "ivfpq" else {"kind": kind}
    named |= shards_of(folder) | {"threads": 1, "output": output}
    return {"name": "audit ivfpq" if kind == "ivfpq" else "audit graph", **named, **changes}


def searched(folder, kind, output, **changes):
    """The command that searches an index, or exactly, and its options."""
    named = {"queries": folder / "q.arrow", "depth": 20, "tag": "t", "output": output}
    if kind == "exact":
        return {"name": "retrieve exact", **shards_of(folder), "gpus": 0, **named, **changes}
    named["index"] = folder / kind
    if kind == "ivfpq":
        return {"name": "retrieve ivfpq", **shards_of(folder), "candidates": CANDIDATES, **named, **changes}
    return {"name": "retrieve graph", "kind": kind, **named, **changes}


@pytest.mark.parametrize("kind", BUILT)
def test_recall_and_losses_are_those_of_the_runs(folder, stage, tmp_path, kind):
    found = read_artifact(stage(**audited(folder, kind, tmp_path / "audit.json")), Audit)
    exact, recalls, losses = {}, {}, {}
    for depth in (5, 20):
        run = read_run(stage(**searched(folder, "exact", tmp_path / "exact.trec", depth=depth)))
        exact[depth] = means(evaluate_run(run, QRELS, MEASURES), MEASURES)
        for width in WIDTHS[kind]:
            if kind == "hnsw" and width < depth:
                continue
            run = read_run(stage(**searched(folder, kind, tmp_path / "own.trec", width=width, depth=depth)))
            rankings = run.by_query()
            shares = [
                len({*rankings[f"q{query}"]} & {f"d{row}" for row in brute_force(query, depth)}) / depth
                for query in range(0, QUERIES, 2)
            ]
            recalls[width, depth] = sum(shares) / len(shares)
            own = means(evaluate_run(run, QRELS, MEASURES), MEASURES)
            losses[width, depth] = {name: exact[depth][name] - own[name] for name in MEASURES}
    assert {one.depth: one.measures for one in found.exact} == exact
    assert {(one.width, one.depth): one.recall for one in found.searches} == pytest.approx(recalls)
    assert {(one.width, one.depth): one.loss for one in found.searches} == losses
    # Every query has results at ranks 1, 8 and 16.
    assert exact[20] == {"RR@10": 1, "R@20": 1}
    # Otherwise nothing was tested.
    assert min(recalls.values()) < 0.7 < max(recalls.values())
    assert max(loss["R@20"] for loss in losses.values()) > 0
    assert (found.queries, found.passages, found.model, found.split, found.encoder) == (20, COUNT, "m", "dev", "e")
    assert found.vectors_per_token == (CANDIDATES if kind == "ivfpq" else None)
    assert all(one.milliseconds.mean > 0 and one.milliseconds.median > 0 for one in (*found.searches, *found.exact))


@pytest.mark.parametrize("kind", ["hnsw", "onng"])
def test_a_twin_of_the_last_result_is_no_miss(stage, tmp_path, kind):
    vectors = np.concatenate([unit(1, 150)] * 3)
    vectors[7] = 0
    passages = {"passages": shard(tmp_path / "p.arrow", names("d", 450), vectors)}
    queries = shard(tmp_path / "q.arrow", names("q", QUERIES), unit(2, QUERIES))
    assert index.main([kind, *command_line(passages | {"output": tmp_path / kind})]) == 0
    width, depths = {"hnsw": 450, "onng": 2.0}[kind], [1, 5, 20]
    named = {"queries": queries, "qrels": [], "measures": [], "widths": width, "depths": depths}
    found = read_artifact(stage(**audited(tmp_path, kind, tmp_path / "audit.json", **passages | named)), Audit)
    assert {one.depth: one.recall for one in found.searches} == dict.fromkeys(depths, 1)
    # Not because the same twins were found.
    runs = [
        stage(**searched(tmp_path, one, tmp_path / f"{one}.trec", **more, depth=5))
        for one, more in ((kind, {"queries": queries, "width": width}), ("exact", {"queries": queries, **passages}))
    ]
    own, exact = ([ranking.doc_ids for ranking in read_run(run)] for run in runs)
    assert own != exact


def test_an_audit_without_judgements_measures_recall(folder, stage, tmp_path):
    found = read_artifact(stage(**audited(folder, "hnsw", tmp_path / "all.json", qrels=[], measures=[])), Audit)
    assert found.queries == QUERIES
    assert all(one.loss == {} and 0 < one.recall <= 1 for one in found.searches)


def test_probes_are_chosen_by_the_audit_of_an_encoders_index(folder, stage, tmp_path):
    path = stage(**audited(folder, "ivfpq", tmp_path / "audit.json", candidates=COUNT))
    deepest = {one.width: one.recall for one in read_artifact(path, Audit).searches if one.depth == 20}
    assert deepest[1] < deepest[2] < deepest[LISTS] == 1
    exact = stage(**searched(folder, "exact", tmp_path / "exact.trec"))
    for recall, width in ((deepest[2], 2), (1, LISTS)):
        options = {"candidates": COUNT, "threads": width}
        chosen = stage(**searched(folder, "ivfpq", tmp_path / "a.trec", audit=path, recall=recall, **options))
        given = stage(**searched(folder, "ivfpq", tmp_path / "b.trec", width=width, **options))
        assert chosen.read_bytes() == given.read_bytes()
        assert (chosen.read_bytes() == exact.read_bytes()) == (width == LISTS)


def without_times(path):
    found = json.loads(path.read_text())
    for one in (*found["exact"], *found["searches"]):
        assert set(one.pop("milliseconds")) == {"mean", "median"}
    return found


def test_an_audit_is_reproducible_except_for_times(folder, stage, tmp_path):
    for name in ("a.json", "b.json"):
        stage(**audited(folder, "hnsw", tmp_path / name, sample=7))
    assert without_times(tmp_path / "a.json") == without_times(tmp_path / "b.json")
    assert without_times(tmp_path / "a.json")["queries"] == 7
    text = (tmp_path / "a.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_the_sample_is_of_judged_queries_and_of_the_seed(folder):
    ids, qrels = names("q", QUERIES), folder / "qrels.parquet"

    def drawn(sample, seed):
        options = SimpleNamespace(qrels=qrels, relevance_level=1, sample=sample, seed=seed)
        rows, found = auditing.sample_queries(options, ids, "q.arrow")
        assert found == {ids[row]: QRELS[ids[row]] for row in rows}
        return rows.tolist()

    assert drawn(None, 1) == drawn(20, 1) == drawn(99, 1) == list(range(0, QUERIES, 2))
    assert len(set(drawn(5, 1))) == 5
    assert set(drawn(5, 1)) < set(range(0, QUERIES, 2))
    assert drawn(5, 1) == sorted(drawn(5, 1)) != drawn(5, 2)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("onng", {"depths": [20, 5]}, "--depths: found [20, 5], "),
        ("onng", {"measures": ["MRR"]}, "measures: found 'MRR', "),
    ],
)
def test_bad_options_are_refused(folder, refused, tmp_path, kind, changes, words):
    assert refused(**audited(folder, kind, tmp_path / "a.json", **changes)).startswith(words)


@pytest.mark.parametrize(
    ("option", "prefix", "rows", "model", "words"),
    [
        ("passages", "d", 9, "m", f"hnsw/meta.json: found an index of {COUNT} vectors of {COUNT} passages ("),
        ("queries", "q", 3, "n", "other.arrow: found embeddings of model n, expected model m"),
        ("queries", "x", 3, "m", "other.arrow: found no query with judgements"),
    ],
)
def test_inputs_of_other_models_or_collections_are_refused(
    folder, refused, tmp_path, option, prefix, rows, model, words
):
    path = shard(tmp_path / "other.arrow", names(prefix, rows), unit(1, rows), model)
    line = refused(**audited(folder, "hnsw", tmp_path / "a.json", **{option: path}))
    assert words in line


def made(index="onng", parameter="epsilon", model="m", recalls=None):
    times = Milliseconds(2.0, 1.5)
    recalls = recalls or {(0.1, 20): 0.8, (0.2, 20): 0.9, (0.4, 20): 0.9, (0.1, 5): 1.0}
    searches = [Search(depth, {"RR@10": 0.5}, times, recall, width) for (width, depth), recall in recalls.items()]
    exact = [Exact(depth, {"RR@10": 0.75}, Milliseconds(8.0, 8.0)) for depth in (5, 20)]
    return Audit("e", exact, index, model, parameter, COUNT, QUERIES, searches, "dev")


def of_audit(folder, tmp_path, audit, **changes):
    """A search whose width an audit decides."""
    if audit is not None:
        write_artifact(tmp_path / "audit.json", audit)
        changes["audit"] = tmp_path / "audit.json"
    return searched(folder, "onng", tmp_path / "run.trec", **changes)


@pytest.mark.parametrize(("recall", "epsilon"), [(0.85, "0.2"), (0.9, "0.2"), (0.5, "0.1")])
def test_the_smallest_width_with_enough_recall_at_the_largest_depth_is_taken(
    folder, stage, tmp_path, capsys, recall, epsilon
):
    run = stage(**of_audit(folder, tmp_path, made(), recall=recall)).read_bytes()
    assert f"at epsilon {epsilon}, " in capsys.readouterr().err
    assert stage(**searched(folder, "onng", tmp_path / "run.trec", width=epsilon)).read_bytes() == run


BEST = "audit.json: found at best epsilon 0.2 with 0.9000 of the exact top 20"


@pytest.mark.parametrize(
    ("audit", "changes", "words"),
    [
        (made(), {"recall": 0.95}, f"{BEST}, expected a recall of 0.95"),
        (made("hnsw", "ef", recalls={(50, 20): 0.9}), {}, "found the audit of an hnsw index of model m, expected of"),
        (made(model="n"), {}, "found the audit of an onng index of model n"),
    ],
)
def test_audits_that_choose_no_width_are_refused(folder, refused, tmp_path, audit, changes, words):
    assert words in refused(**of_audit(folder, tmp_path, audit, **changes))


def both():
    return [made(), made("hnsw", "ef", recalls={(10, 5): 0.5, (50, 20): 0.99})]


def test_a_table_has_exact_search_first_and_all_searches_by_depth():
    table = audits_table(both())
    assert [row[:8] for row in table.shown()] == [
        ["dev", "e", "5", "exact", MISSING, "1.0000", "8.00", "8.00"],
        ["dev", "e", "5", "onng", "epsilon 0.1", "1.0000", "2.00", "1.50"],
        ["dev", "e", "5", "hnsw", "ef 10", "0.5000", "2.00", "1.50"],
        ["dev", "e", "20", "exact", MISSING, "1.0000", "8.00", "8.00"],
        ["dev", "e", "20", "onng", "epsilon 0.1", "0.8000", "2.00", "1.50"],
        ["dev", "e", "20", "onng", "epsilon 0.2", "0.9000", "2.00", "1.50"],
        ["dev", "e", "20", "onng", "epsilon 0.4", "0.9000", "2.00", "1.50"],
        ["dev", "e", "20", "hnsw", "ef 50", "0.9900", "2.00", "1.50"],
    ]
    assert to_csv(table).splitlines()[2] == "dev,e,5,onng,epsilon 0.1,1.0,2.0,1.5,4.0,,0.5"


def test_an_index_is_compared_with_the_exact_times_of_its_own_audit():
    first, second = both()
    slower = replace(second, exact=[replace(one, milliseconds=Milliseconds(16.0, 16.0)) for one in second.exact])
    frame = audits_table([first, slower]).frame
    faster = frame["times faster"]
    assert [*faster[frame["index"] == "hnsw"]] == [8.0, 8.0]
    assert {*faster[frame["index"] == "onng"]} == {4.0}


def test_queries_with_fewer_results_than_they_could_have_are_counted(folder, stage, refused, tmp_path, capsys):
    """A list has fewer passages than the depth, for some queries."""
    output = tmp_path / "run.trec"
    run = read_run(stage(**searched(folder, "ivfpq", output, width=1, depth=CANDIDATES)))
    short = sum(len(ranking.doc_ids) < CANDIDATES for ranking in run)
    assert f"{short} of {QUERIES} queries have fewer than {CANDIDATES} results" in capsys.readouterr().err
    stage(**searched(folder, "ivfpq", output, width=LISTS, depth=CANDIDATES))
    assert "fewer than" not in capsys.readouterr().err
    line = refused(**searched(folder, "ivfpq", tmp_path / "other.trec", candidates=10))
    assert line.startswith("--candidates: found 10, expected 20 (the depth) or more")


def test_a_panel_has_a_line_per_index_and_exact_search():
    first, second = audit_panels(audits_table(both()))
    assert first.title == "e, dev, top 5"
    assert [(line.label, [*line.x], [*line.y]) for line in second.lines] == [
        ("exact search", [8.0, 8.0], [0.8, 1.0]),
        ("ONNG", [2.0, 2.0, 2.0], [0.8, 0.9, 0.9]),
        ("HNSW", [2.0], [0.99]),
    ]
    assert second.ticks == [2.0, 5.0, 10.0]
    # The clock may be too coarse to see a search.
    nothing = replace(both()[0], exact=[Exact(5, {}, Milliseconds(0.0, 0.0))])
    assert audit_panels(audits_table([nothing]))[0].ticks == []


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([0.03], [0.02, 0.05]),
        ([1.0, 3.0], [1.0, 2.0, 5.0]),
        ([0.4, 70.0], [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]),
        ([0.0, 3.0], []),
    ],
)
def test_marks_are_round_and_hold_all_values(values, marks):
    assert round_numbers(values) == marks


def test_measures_are_of_documents_if_passages_are_aggregated():
    options = SimpleNamespace(measures=["RR@10"], aggregate="max", relevance_level=1)
    ranking = Ranking("q", ["a#1", "a#2", "b#0"], np.array([3.0, 3.0, 1.0]))
    assert auditing.evaluate(options, run_of([ranking]), {"q": {"b": 1}}) == {"RR@10": 1 / 2}
