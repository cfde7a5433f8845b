import json

import numpy as np
import pytest

from cort.evaluation.measures import evaluate_run, means
from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.retrieval.documents import as_documents
from tests.support.common import write_ranked, write_rows

DEPTH, MEASURE = 20, "nDCG@10"


class Files:
    """Two runs of 12 queries, a re-ranker's scores of the first, and judgements of the 15 queries of the split."""

    def __init__(self, folder, stage):
        self.folder, self.stage = folder, stage
        self.a, self.b, self.scores = (folder / name for name in ("a.trec", "b.trec", "scores.parquet"))
        generator = np.random.default_rng(3)
        self.qrels = {f"q{q}": {f"d{d}": int(d % 3 > 0) for d in generator.permutation(40)[:6]} for q in range(15)}
        scores = []
        for path, signal in ((self.a, 1.5), (self.b, 1.0)):
            rankings = []
            for query in list(self.qrels)[:12]:
                ids = [f"d{d}" for d in generator.permutation(40)[:25]]
                judged = np.array([self.qrels[query].get(one, 0) for one in ids])
                found = generator.standard_normal(25) + signal * judged
                by = np.argsort(-found)
                rankings.append(Ranking(query, [ids[row] for row in by], found[by]))
                if path == self.a:
                    scores += [(query, one, generator.standard_normal()) for one in ids]
            write_run(path, rankings, path.stem)
        self.judge(self.qrels)
        write_rows(self.scores, tables.SCORES, scores)

    def judge(self, qrels):
        rows = [(query, doc, grade) for query, judged in qrels.items() for doc, grade in judged.items()]
        write_rows(self.folder / "qrels.parquet", tables.QRELS, rows)

    def change_runs(self, change, *paths):
        """Let a function change each ranking of some runs, or drop it."""
        for path in paths or (self.a, self.b):
            changed = [change(one) for one in read_run(path)]
            write_run(path, [one for one in changed if one], path.stem)

    def tuning(self, **changes):
        """Options of `tune weights`."""
        named = {"runs": [self.a, self.b], "parts": ["a", "b"], "qrels": self.folder / "qrels.parquet"}
        named |= {"measure": MEASURE, "depth": DEPTH, "output": self.folder / "out" / "weights.json"}
        return named | changes

    def tune(self, **changes):
        """The path of the tuned weights, and what is in it."""
        output = self.stage("tune weights", **self.tuning(**changes))
        return output, json.loads(output.read_text())

    def made(self, name, **options):
        """The run of the first `DEPTH` results that `fuse` or `rerank` makes."""
        own = {"fuse": {"method": "linear", "runs": [self.a, self.b]}, "rerank": self.reranked()}[name]
        return self.stage(name, **own | {"depth": DEPTH, "tag": "x", "output": self.folder / "x.trec"} | options)

    def reranked(self):
        return {"candidates": self.a, "scores": self.scores}

    def measured(self, name, **options):
        return means(evaluate_run(read_run(self.made(name, **options)), self.qrels, [MEASURE]), [MEASURE])[MEASURE]


@pytest.fixture
def files(tmp_path, stage):
    return Files(tmp_path, stage)


def shortened(ranking):
    return Ranking(ranking.query_id, ranking.doc_ids[:DEPTH], ranking.scores[:DEPTH])


@pytest.mark.parametrize("normalization", ["min-max", "z-score"])
def test_every_point_has_the_value_of_the_run_that_is_merged_with_it(files, normalization):
    output, found = files.tune(normalization=normalization)
    assert (found["parts"], found["queries"], len(found["grid"])) == (["a", "b"], 15, 21)
    content = output.read_bytes()
    assert files.tune(normalization=normalization)[0].read_bytes() == content
    files.change_runs(shortened)
    for point in found["grid"][::5]:
        value = files.measured("fuse", normalization=normalization, weights=point["weights"])
        assert point["value"] == pytest.approx(value, abs=1e-12)
    assert found["best"] == max(point["value"] for point in found["grid"])
    assert {"weights": found["weights"], "value": found["value"]} in found["grid"]
    value = files.measured("fuse", normalization=normalization, tuned=output)
    assert value == pytest.approx(found["value"], abs=1e-12)


def test_a_reranker_is_weighed_against_its_candidates(files):
    output, found = files.tune(runs=files.a, scores=files.scores, parts=["a", "cross"])
    for point in found["grid"][::5]:
        value = files.measured("rerank", weight=point["weights"][1])
        assert point["value"] == pytest.approx(value, abs=1e-12)
    assert files.measured("rerank", tuned=output) == pytest.approx(found["value"], abs=1e-12)
    # These scores are random, and count for little.
    assert found["weights"][1] < 0.5


def test_weights_are_tuned_on_documents(files):
    def as_passages(ranking):
        query, doc_ids, scores = shortened(ranking)
        return Ranking(query, [f"d{int(one[1:]) % 13}#{one[1:]}" for one in doc_ids], scores)

    files.change_runs(as_passages)
    qrels = {query: {d: grade for d, grade in one.items() if int(d[1:]) < 13} for query, one in files.qrels.items()}
    files.judge(qrels)
    qrels = {query: judged for query, judged in qrels.items() if judged}
    for point in files.tune(aggregate="mean3")[1]["grid"][::5]:
        merged = as_documents(read_run(files.made("fuse", weights=point["weights"])), "mean3")
        assert point["value"] == pytest.approx(
            means(evaluate_run(merged, qrels, [MEASURE]), [MEASURE])[MEASURE], abs=1e-12
        )


def test_queries_that_only_some_runs_answer_are_logged(files, capsys):
    files.change_runs(lambda one: one if one.query_id != "q3" else None, files.b)
    files.tune()
    assert "1 of 12 queries are not answered by all runs" in capsys.readouterr().err


def test_a_run_without_results_is_tuned_and_merged(files):
    """Weights in the file are for systems by name, which an empty run does not have."""
    write_run(files.b, [], "b")
    output, found = files.tune()
    assert files.measured("fuse", tuned=output) == pytest.approx(found["best"])


def test_runs_that_do_not_fit_are_refused(files, refused):
    other, huge = files.folder / "other.trec", files.folder / "huge.trec"
    write_ranked(other, {"x": ["d1", "d2"]})
    with open(huge, "w") as file:
        file.writelines(f"q{q} Q0 d{d} {d + 1} {1e300 / (d + 1)} x\n" for q in range(12) for d in range(5))
    for changes, found in (
        ({"runs": [files.a, other]}, f"{files.a}: found no query of the other runs"),
        ({"runs": [files.a, huge]}, f"{huge}: found the score 1e+300"),
        ({"parts": "a"}, "--parts: found 1, expected 2"),
        ({"folds": 16}, f"{files.folder}/qrels.parquet: found 15 judged queries, expected 16"),
    ):
        assert refused("tune weights", **files.tuning(**changes)).startswith(found)
    files.judge({"x": {"d1": 1}})
    line = refused("tune weights", **files.tuning())
    assert line.startswith(f"{files.folder}/qrels.parquet: found no query of the runs")


@pytest.mark.parametrize("level", [1, 12])
def test_constant_scores_and_single_results_are_counted_and_merged(files, capsys, level):
    """Each of their documents gets 1 in `tune` as in `fuse`."""
    rankings = [shortened(one) for one in read_run(files.a)]
    write_run(files.a, rankings, "a")
    for number, one in enumerate(rankings[:level]):
        length = number % 2 * 19 + 1
        rankings[number] = Ranking(one.query_id, one.doc_ids[:length], np.full(length, 0.9))
    write_run(files.b, rankings, "b")
    grid = files.tune()[1]["grid"]
    warning = f"b.trec: {level} of 12 rankings have constant scores or a single result"
    assert capsys.readouterr().err.count(warning) == 1
    for point in grid[::5]:
        assert point["value"] == pytest.approx(files.measured("fuse", weights=point["weights"]), abs=1e-12)
        assert capsys.readouterr().err.count(warning) == 1


def test_weights_that_are_invalid_or_of_other_systems_are_refused(files, refused):
    weights, _ = files.tune()
    output = {"tag": "x", "output": files.folder / "x.trec"}
    fused = {"runs": [files.a, files.b], **output}
    reranked = {"candidates": files.b, "scores": files.scores, "depth": 5, "tuned": weights, **output}
    linear = {"method": "linear"}
    for name, options, found in (
        ("fuse", fused | linear | {"weights": 0.5}, "--weights: found 1 weights for 2 runs"),
        ("fuse", fused | linear | {"tuned": weights, "runs": [files.b, files.a]},
         f"{weights}: found weights of a, b, expected those of b, a"),
        ("rerank", reranked, f"{weights}: found weights of a, b, expected those of b, any"),
        # Without folds in the file.
        ("fuse", fused | linear | {"tuned": weights, "folded": True}, f"{weights}: found "),
    ):  # fmt: skip
        assert refused(name, **options).startswith(found)


# Folds: a tuned value for the queries of each fold, chosen on those of the others.


def lines_of(path):
    """The lines of a run by query."""
    lines = {}
    for line in path.read_text("utf-8").splitlines():
        lines.setdefault(line.split()[0], []).append(line)
    return lines


def weighed(files, name):
    """Options that tune the weights of a fusion, or of a re-ranker."""
    return {"fuse": {}, "rerank": {"runs": files.a, "scores": files.scores}}[name]


def folded_run(files, name):
    """Tune by folds, and return the tuned values and the lines of the run that is made with them."""
    output, found = files.tune(**weighed(files, name), folds=4, seed=7)
    return found, lines_of(files.made(name, tuned=output, folded=True, output=files.folder / "folded.trec"))


@pytest.mark.parametrize("name", ["fuse", "rerank"])
def test_each_fold_is_merged_with_what_is_best_on_the_others(files, name):
    """An oracle: leave the queries of a fold out of the judgements, tune on the rest, merge the whole run."""
    files.change_runs(shortened)
    found, lines = folded_run(files, name)
    assert sorted(len(fold["queries"]) for fold in found["folds"]) == [3, 4, 4, 4]
    assert sorted(query for fold in found["folds"] for query in fold["queries"]) == sorted(files.qrels)
    _, whole = files.tune(**weighed(files, name))
    assert {key: value for key, value in found.items() if key != "folds"} == whole
    values = evaluate_run(read_run(files.folder / "folded.trec"), files.qrels, [MEASURE])
    for fold in found["folds"]:
        files.judge({query: judged for query, judged in files.qrels.items() if query not in fold["queries"]})
        output, other = files.tune(**weighed(files, name))
        assert fold["weights"] == other["weights"]
        made = lines_of(files.made(name, tuned=output))
        assert [made.get(query) for query in fold["queries"]] == [lines.get(query) for query in fold["queries"]]
        mean = np.mean([values[query][MEASURE] for query in fold["queries"]])
        assert fold["value"] == pytest.approx(mean, abs=1e-12)
    # Otherwise this would show nothing.
    assert len({tuple(fold["weights"]) for fold in found["folds"]}) > 1


@pytest.mark.parametrize("name", ["fuse", "rerank"])
def test_the_judgements_of_a_query_do_not_change_its_own_ranking(files, name):
    before, lines = folded_run(files, name)
    moved = 0
    for query in list(files.qrels)[:12]:
        qrels = {**files.qrels, query: {doc: 2 - 2 * bool(grade) for doc, grade in files.qrels[query].items()}}
        # In another order, too.
        files.judge(dict(reversed(qrels.items())))
        after, now = folded_run(files, name)
        fold = next(number for number, fold in enumerate(before["folds"]) if query in fold["queries"])
        queries = before["folds"][fold]["queries"]
        assert after["folds"][fold]["queries"] == queries
        assert {one: now.get(one) for one in queries} == {one: lines.get(one) for one in queries}
        moved += [fold["weights"] for fold in after["folds"]] != [fold["weights"] for fold in before["folds"]]
    # They do count for the others.
    assert moved


def test_queries_outside_of_all_folds_get_the_weights_of_all(files):
    files.judge({query: judged for query, judged in files.qrels.items() if query != "q3"})
    _, lines = folded_run(files, "fuse")
    whole = lines_of(files.made("fuse", tuned=files.folder / "out" / "weights.json"))
    assert whole["q3"] == lines["q3"]
    assert whole != lines
