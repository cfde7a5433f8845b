import json
from dataclasses import asdict

import numpy as np
import pytest

from cort import audit, evaluate, index, report, retrieve
from cort.evaluation.measures import Measures
from cort.formats import tables
from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.records import Ranking
from cort.formats.runs import read_run
from cort.reporting.sections import audit_blocks, audit_panels, audits_table, round_numbers
from cort.reporting.tables import to_csv, to_markdown
from cort.retrieval.audits import Audit, Exact, Milliseconds, Search
from cort.retrieval.graph_search import open_index
from tests.support.common import command_line, write_rows
from tests.support.online import write_results
from tests.support.vectors import names, shard, unit

COUNT, QUERIES = 500, 40
MEASURES = ["RR@10", "R@20"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Indexes that miss much, queries of which every second has judgements."""
    folder = tmp_path_factory.mktemp("audit")
    vectors, queries = unit(1, COUNT), unit(2, QUERIES)
    passages = [shard(folder / "p1.arrow", names("d", COUNT)[:180], vectors[:180])]
    passages.append(shard(folder / "p2.arrow", names("d", COUNT)[180:], vectors[180:]))
    shard(folder / "q.arrow", names("q", QUERIES), queries)
    best = np.argsort(-(queries @ vectors.T), axis=1)
    rows = [(f"q{query}", f"d{best[query, rank]}", 1) for query in range(0, QUERIES, 2) for rank in (0, 7, 15)]
    write_rows(folder / "qrels.parquet", tables.QRELS, rows)
    write_rows(folder / "queries.parquet", tables.QUERIES, [(name, "a query") for name in names("q", QUERIES)])
    options = ["--M", "4", "--ef-construction", "10", "--output", str(folder / "hnsw")]
    assert index.main(["hnsw", "--passages", *passages, *options]) == 0
    options = ["--edges", "5", "--outgoing", "3", "--incoming", "4", "--threads", "1", "--output", str(folder / "onng")]
    assert index.main(["onng", "--passages", *passages, *options]) == 0
    return folder


WIDTHS = {"hnsw": [10, 20, 60], "onng": [-0.3, 0.0, 0.3]}


def run(folder, kind, *more, output=None, **replaced):
    named = {"passages": [folder / "p1.arrow", folder / "p2.arrow"], "queries": folder / "q.arrow", "kind": kind}
    named |= {"qrels": folder / "qrels.parquet", "index": folder / kind, "widths": WIDTHS[kind], "depths": [5, 20]}
    named |= {"measures": MEASURES, "encoder": "e", "split": "dev", "threads": 1}
    named |= {"output": output or folder / f"{kind}.json"}
    return audit.main(["graph", *command_line(named, replaced), *more])


def brute_force(query, depth):
    products = unit(1, COUNT).astype(np.float64) @ unit(2, QUERIES)[query].astype(np.float64)
    return sorted(range(COUNT), key=lambda number: (-products[number], f"d{number}"))[:depth]


@pytest.mark.parametrize("kind", ["hnsw", "onng"])
def test_recall_equals_a_count_by_brute_force(folder, kind):
    assert run(folder, kind) == 0
    found = read_artifact(folder / f"{kind}.json", Audit)
    graph = open_index(kind, folder / kind)
    expected = {}
    for width in WIDTHS[kind]:
        for depth in (5, 20):
            if kind == "hnsw" and width < depth:
                continue
            shares = []
            for query in range(0, QUERIES, 2):
                rows = graph.search(unit(2, QUERIES)[query], width, depth).rows.tolist()
                shares.append(len({*rows} & {*brute_force(query, depth)}) / depth)
            expected[width, depth] = sum(shares) / len(shares)
    assert {(one.width, one.depth): one.recall for one in found.searches} == pytest.approx(expected)
    # Otherwise nothing was tested.
    assert min(expected.values()) < 0.9 < max(expected.values())
    assert (found.queries, found.passages, found.model, found.split, found.encoder) == (20, COUNT, "m", "dev", "e")
    assert all(one.milliseconds.mean > 0 and one.milliseconds.median > 0 for one in (*found.searches, *found.exact))


def test_an_audit_without_judgements_measures_recall(folder, tmp_path):
    assert run(folder, "hnsw", output=tmp_path / "all.json", qrels=[], measures=[]) == 0
    found = read_artifact(tmp_path / "all.json", Audit)
    assert found.queries == QUERIES
    assert all(one.loss == {} and 0 < one.recall <= 1 for one in found.searches)


@pytest.mark.parametrize(("kind", "width"), [("hnsw", 20), ("onng", 0.0)])
def test_losses_are_differences_of_the_measures_of_the_runs(folder, tmp_path, kind, width):
    assert run(folder, kind) == 0
    found = read_artifact(folder / f"{kind}.json", Audit)
    exact, own = tmp_path / "exact.trec", tmp_path / "own.trec"
    shared = ["--queries", str(folder / "q.arrow"), "--depth", "20", "--tag", "t"]
    passages = [str(folder / name) for name in ("p1.arrow", "p2.arrow")]
    assert retrieve.main(["exact", *shared, "--passages", *passages, "--device", "cpu", "--output", str(exact)]) == 0
    options = ["--kind", kind, "--index", str(folder / kind), "--width", str(width), "--output", str(own)]
    assert retrieve.main(["graph", *shared, *options]) == 0
    means = []
    for path in (exact, own):
        options = ["--run", str(path), "--queries", str(folder / "queries.parquet"), "--system", "s", "--split", "dev"]
        options += ["--qrels", str(folder / "qrels.parquet"), "--measures", *MEASURES]
        options += ["--output", str(tmp_path / "m.json"), "--output-per-query", str(tmp_path / "m.parquet")]
        assert evaluate.main([*options, "--output-recall", str(tmp_path / "r.csv")]) == 0
        means.append(json.loads((tmp_path / "m.json").read_text())["mean"])
    (best,) = [one for one in found.exact if one.depth == 20]
    (some,) = [one for one in found.searches if (one.width, one.depth) == (width, 20)]
    assert best.measures == means[0]
    assert some.loss == {name: means[0][name] - means[1][name] for name in MEASURES}
    assert some.loss["R@20"] > 0


LISTS, CANDIDATES = 8, 60


@pytest.fixture(scope="module")
def lists(folder):
    """An IVF-PQ index of the same vectors."""
    passages = [str(folder / name) for name in ("p1.arrow", "p2.arrow")]
    options = ["--lists", str(LISTS), "--bytes", "2", "--output", str(folder / "ivfpq")]
    assert index.main(["ivfpq", "--passages", *passages, *options]) == 0
    return folder / "ivfpq"


def audit_lists(folder, output, **replaced):
    named = {"passages": [folder / "p1.arrow", folder / "p2.arrow"], "queries": folder / "q.arrow"}
    named |= {"qrels": folder / "qrels.parquet", "index": folder / "ivfpq", "widths": [1, 2, LISTS], "depths": [5, 20]}
    named |= {"candidates": CANDIDATES, "measures": MEASURES, "encoder": "e", "split": "dev", "threads": 2}
    return audit.main(["ivfpq", *command_line(named | {"output": output}, replaced)])


def retrieve_from(folder, output, **replaced):
    named = {"passages": [folder / "p1.arrow", folder / "p2.arrow"], "queries": folder / "q.arrow", "depth": 20}
    named |= {"index": folder / "ivfpq", "candidates": CANDIDATES, "tag": "t", "output": output}
    assert retrieve.main(["ivfpq", *command_line(named, replaced)]) == 0
    return list(read_run(output))


def test_an_ivfpq_index_searched_in_full_writes_the_run_of_exact_search(folder, lists, tmp_path):
    passages = [str(folder / name) for name in ("p1.arrow", "p2.arrow")]
    options = ["--depth", "20", "--tag", "t", "--device", "cpu", "--output", str(tmp_path / "exact.trec")]
    queries = ["--queries", str(folder / "q.arrow")]
    assert retrieve.main(["exact", *queries, "--passages", *passages, *options]) == 0
    for threads in (1, 3):
        retrieve_from(folder, tmp_path / "own.trec", width=LISTS, candidates=COUNT, threads=threads)
        assert (tmp_path / "own.trec").read_bytes() == (tmp_path / "exact.trec").read_bytes()


def test_the_audit_of_an_encoders_ivfpq_index_is_a_count_by_brute_force(folder, lists, tmp_path):
    assert audit_lists(folder, tmp_path / "audit.json") == 0
    found = read_artifact(tmp_path / "audit.json", Audit)
    expected = {}
    for width in (1, 2, LISTS):
        rankings = retrieve_from(folder, tmp_path / "own.trec", width=width)
        assert [one.query_id for one in rankings] == names("q", QUERIES)
        for depth in (5, 20):
            wanted = [{f"d{row}" for row in brute_force(query, depth)} for query in range(0, QUERIES, 2)]
            shares = [
                len({*one.doc_ids[:depth]} & best) / depth for one, best in zip(rankings[::2], wanted, strict=True)
            ]
            expected[width, depth] = sum(shares) / len(shares)
    assert {(one.width, one.depth): one.recall for one in found.searches} == pytest.approx(expected)
    assert min(expected.values()) < 0.7 < max(expected.values())
    assert (found.queries, found.passages, found.model, found.vectors_per_token) == (20, COUNT, "m", CANDIDATES)
    # Every query has results at ranks 1, 8 and 16.
    (best,) = [one for one in found.exact if one.depth == 20]
    assert best.measures == {"RR@10": 1, "R@20": 1}


def test_probes_are_chosen_by_the_audit_of_an_encoders_index(folder, lists, tmp_path):
    path = tmp_path / "audit.json"
    assert audit_lists(folder, path, candidates=COUNT) == 0
    deepest = {one.width: one.recall for one in read_artifact(path, Audit).searches if one.depth == 20}
    assert deepest[1] < deepest[2] < deepest[LISTS] == 1
    for recall, width in ((deepest[2], 2), (1, LISTS)):
        retrieve_from(folder, tmp_path / "a.trec", candidates=COUNT, audit=path, recall=recall)
        retrieve_from(folder, tmp_path / "b.trec", candidates=COUNT, width=width)
        assert (tmp_path / "a.trec").read_bytes() == (tmp_path / "b.trec").read_bytes()


def test_queries_of_another_encoder_are_refused_by_an_ivfpq_index(folder, lists, tmp_path, complaint):
    path = shard(tmp_path / "other.arrow", ["q0"], unit(2, 1), model="n")
    named = {"passages": [folder / "p1.arrow", folder / "p2.arrow"], "queries": path, "depth": 20, "width": 1}
    named |= {"index": lists, "tag": "t", "output": tmp_path / "run.trec"}
    line = complaint(retrieve.main, ["ivfpq", *command_line(named)], tmp_path / "run.trec")
    assert line.startswith(f"{path}: found ")


def without_times(path):
    found = json.loads(path.read_text())
    for one in (*found["exact"], *found["searches"]):
        assert set(one.pop("milliseconds")) == {"mean", "median"}
    return found


def test_an_audit_is_reproducible_except_for_times(folder, tmp_path):
    for name in ("a.json", "b.json"):
        assert run(folder, "hnsw", "--sample", "7", output=tmp_path / name) == 0
    assert without_times(tmp_path / "a.json") == without_times(tmp_path / "b.json")
    assert without_times(tmp_path / "a.json")["queries"] == 7
    text = (tmp_path / "a.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_the_sample_is_of_judged_queries_and_of_the_seed():
    ids = names("q", QUERIES)
    judged = {query_id: {} for query_id in ids[::2]}

    def drawn(number, seed):
        return audit.sample_judged(ids, judged, number, seed, "q.arrow").tolist()

    assert drawn(None, 1) == drawn(20, 1) == drawn(99, 1) == list(range(0, QUERIES, 2))
    assert len(set(drawn(5, 1))) == 5
    assert set(drawn(5, 1)) < set(range(0, QUERIES, 2))
    assert drawn(5, 1) == sorted(drawn(5, 1)) != drawn(5, 2)


@pytest.mark.parametrize(
    ("kind", "replaced", "complaint"),
    [
        ("hnsw", {"widths": ["10"]}, "--widths: found ef 10, expected 20 (the depth) or more"),
        ("hnsw", {"widths": ["5", "10"]}, "--widths: found ef 10 at most, expected 20 (the depth) or more"),
        ("hnsw", {"widths": ["30.5"]}, "--widths: found ef 30.5, expected a whole number from 1"),
        ("onng", {"widths": ["-1"]}, "--widths: found epsilon -1, expected a number above -1"),
        ("onng", {"depths": ["20", "5"]}, "--depths: found 20 5, expected increasing numbers from 1"),
        ("onng", {"measures": ["MRR"]}, "measures: found 'MRR', expected "),
    ],
)
def test_bad_options_are_refused(folder, tmp_path, capsys, kind, replaced, complaint):
    assert run(folder, kind, output=tmp_path / "a.json", **replaced) == 1
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_inputs_of_other_models_or_collections_are_refused(folder, tmp_path, capsys):
    few = shard(tmp_path / "few.arrow", names("d", 9), unit(1, 9))
    other = shard(tmp_path / "other.arrow", names("q", 3), unit(1, 3), model="n")
    strangers = shard(tmp_path / "strangers.arrow", names("x", 3), unit(1, 3))
    for replaced, complaint in (
        ({"passages": [few]}, f"few.arrow: found 9 passages, expected {COUNT} as in {folder}/hnsw"),
        ({"queries": [other]}, "other.arrow: found embeddings of model n, expected model m"),
        ({"queries": [strangers]}, "strangers.arrow: found no query with judgements"),
    ):
        assert run(folder, "hnsw", output=tmp_path / "a.json", **replaced) == 1
        assert complaint in capsys.readouterr().err
        assert not (tmp_path / "a.json").exists()


def made(index="onng", parameter="epsilon", model="m", recalls=None):
    times = Milliseconds(2.0, 1.5)
    recalls = recalls or {(0.1, 20): 0.8, (0.2, 20): 0.9, (0.4, 20): 0.9, (0.1, 5): 1.0}
    searches = [Search(depth, {"RR@10": 0.5}, times, recall, width) for (width, depth), recall in recalls.items()]
    exact = [Exact(depth, {"RR@10": 0.75}, Milliseconds(8.0, 8.0)) for depth in (5, 20)]
    return Audit("e", exact, index, model, parameter, COUNT, QUERIES, searches, "dev")


def search(folder, tmp_path, *more, audit=None):
    options = ["--kind", "onng", "--index", str(folder / "onng"), "--queries", str(folder / "q.arrow"), "--depth", "20"]
    if audit is not None:
        write_artifact(tmp_path / "audit.json", audit)
        options += ["--audit", str(tmp_path / "audit.json")]
    return retrieve.main(["graph", *options, "--tag", "t", "--output", str(tmp_path / "run.trec"), *more])


@pytest.mark.parametrize(("recall", "epsilon"), [("0.85", "0.2"), ("0.9", "0.2"), ("0.5", "0.1")])
def test_the_smallest_width_with_enough_recall_at_the_largest_depth_is_taken(folder, tmp_path, capsys, recall, epsilon):
    assert search(folder, tmp_path, "--recall", recall, audit=made()) == 0
    assert f"at epsilon {epsilon}, " in capsys.readouterr().err
    run = (tmp_path / "run.trec").read_bytes()
    assert search(folder, tmp_path, "--width", epsilon) == 0
    assert (tmp_path / "run.trec").read_bytes() == run


BEST = "audit.json: found at best epsilon 0.2 with 0.9000 of the exact top 20"


@pytest.mark.parametrize(
    ("audit", "more", "complaint"),
    [
        (made(), ["--recall", "0.95"], f"{BEST}, expected a recall of 0.95"),
        (made("hnsw", "ef", recalls={(50, 20): 0.9}), [], "found the audit of an hnsw index of model m, expected of"),
        (made(model="n"), [], "found the audit of an onng index of model n"),
        (made("hnsw", "ef"), [], "audit.json: found ef 0.1, expected a whole number from 1"),
        (made(recalls={(0.1, 20): 1.5}), [], "found 1.5 at searches[0].recall, expected a number from 0 to 1"),
        (made("onng", "ef"), [], "found 'onng' with 'ef' at index"),
        (made(), ["--width", "0.1"], "--width: found 0.1 beside --audit, expected no value, as it has no effect;"),
        (None, ["--recall", "0.5"], "--recall: found 0.5 without --audit, expected no value"),
    ],
)
def test_audits_that_choose_no_width_are_refused(folder, tmp_path, capsys, audit, more, complaint):
    assert search(folder, tmp_path, *more, audit=audit) == 1
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "run.trec").exists()


def both():
    return [made(), made("hnsw", "ef", recalls={(10, 5): 0.5, (50, 20): 0.99})]


def test_a_table_has_exact_search_first_and_all_searches_by_depth():
    table = audits_table(audit_blocks(both()))
    assert to_csv(table).splitlines() == [
        "split,encoder,depth,index,width,recall,mean_ms,median_ms,times_faster,loss_RR@10",
        "dev,e,5,exact,,1.0,8.0,8.0,,",
        "dev,e,5,onng,0.1,1.0,2.0,1.5,4.0,0.5",
        "dev,e,5,hnsw,10,0.5,2.0,1.5,4.0,0.5",
        "dev,e,20,exact,,1.0,8.0,8.0,,",
        "dev,e,20,onng,0.1,0.8,2.0,1.5,4.0,0.5",
        "dev,e,20,onng,0.2,0.9,2.0,1.5,4.0,0.5",
        "dev,e,20,onng,0.4,0.9,2.0,1.5,4.0,0.5",
        "dev,e,20,hnsw,50,0.99,2.0,1.5,4.0,0.5",
    ]
    assert "0.9900" in to_markdown(table)


def test_a_panel_has_a_line_per_index_and_exact_search():
    first, second = audit_panels(audit_blocks(both()))
    assert first.title == "e, dev, top 5"
    assert [(line.label, line.kind, line.x, line.y) for line in second.lines] == [
        ("exact search", "line", [8.0, 8.0], [0.8, 1.0]),
        ("ONNG", "points", [2.0, 2.0, 2.0], [0.8, 0.9, 0.9]),
        ("HNSW", "points", [2.0], [0.99]),
    ]
    assert second.ticks == [2.0, 5.0, 10.0]
    graphs = "onng, epsilon 0.2: 0.900 in 2.00 ms; hnsw, ef 50: 0.990 in 2.00 ms."
    assert second.summary.endswith(f"Exact search takes 8.00 ms; {graphs}")


def test_measures_stand_in_the_order_of_the_experiment(tmp_path):
    times = Milliseconds(1.0, 1.0)
    exact = [Exact(5, {"AP": 0.1, "R@5": 0.2, "RR": 0.3}, times)]
    one = Audit("e", exact, "onng", "m", "epsilon", 9, 9, [], "dev")
    assert audit_blocks([one], ["RR", "R@5", "nDCG"])[0].measures == ["RR", "R@5", "AP"]


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([0.03], [0.02, 0.05]),
        ([1.0, 3.0], [1.0, 2.0, 5.0]),
        ([0.4, 70.0], [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]),
        ([], [0.1, 1.0]),
    ],
)
def test_marks_are_round_and_hold_all_values(values, marks):
    assert round_numbers(values) == marks


def test_the_page_shows_them(tmp_path):
    for number, one in enumerate(both()):
        write_artifact(tmp_path / f"{number}.json", one)
    (tmp_path / "m.json").write_text(json.dumps(asdict(Measures("s", "dev", 1, QUERIES, {"RR@10": 0.75}))))
    write_results(tmp_path, {"s": {"retrieve": "bm25"}}, evaluation={"baseline": "s"})
    options = ["--experiment", str(tmp_path / "experiment.yaml"), "--measures-files", str(tmp_path / "m.json")]
    options += ["--audits", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "--output-folder", str(tmp_path / "r")]
    assert report.main(options) == 0
    page = (tmp_path / "r" / "index.html").read_text()
    assert "Graph indexes" in page
    assert "hnsw, ef 50" in page
    assert f"e on dev: {QUERIES} queries, {COUNT} passages" in page
    assert "exact search" in (tmp_path / "r" / "figures" / "audits.svg").read_text()
    assert (tmp_path / "r" / "tables" / "audits.csv").read_text().count("\n") == 9


def test_measures_are_of_documents_if_passages_are_aggregated():
    truth = audit.Truth([], {}, {"q": {"b": 1}}, ["RR@10"], 1, "max")
    ranking = Ranking("q", ["a#1", "a#2", "b#0"], np.array([3.0, 3.0, 1.0]))
    assert truth.values([ranking]) == {"RR@10": 1 / 2}
