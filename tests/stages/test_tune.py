import json

import numpy as np
import pytest

from cort import fuse, rerank
from cort import tune as tuning
from cort.evaluation.measures import evaluate_run, means
from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.retrieval.documents import as_documents
from tests.support.common import write_ranked, write_rows

DEPTH, MEASURE = 20, "nDCG@10"


@pytest.fixture
def files(tmp_path):
    """Two runs of 12 queries, a re-ranker's scores of the first, and judgements of the 15 queries of the split."""
    generator = np.random.default_rng(3)
    qrels = {f"q{q}": {f"d{d}": int(d % 3 > 0) for d in generator.permutation(40)[:6]} for q in range(15)}
    runs, scores = {}, []
    for name, signal in (("a", 1.5), ("b", 1.0)):
        rankings = []
        for query in list(qrels)[:12]:
            ids = [f"d{d}" for d in generator.permutation(40)[:25]]
            found = generator.standard_normal(25) + signal * np.array([qrels[query].get(one, 0) for one in ids])
            by = np.argsort(-found)
            rankings.append(Ranking(query, [ids[row] for row in by], found[by]))
            if name == "a":
                scores += [(query, one, generator.standard_normal()) for one in ids]
        write_run(tmp_path / f"{name}.trec", rankings, name)
        runs[name] = str(tmp_path / f"{name}.trec")
    rows = [(query, doc, grade) for query, judged in qrels.items() for doc, grade in judged.items()]
    write_rows(tmp_path / "qrels.parquet", tables.QRELS, rows)
    write_rows(tmp_path / "scores.parquet", tables.SCORES, scores)
    return {**runs, "qrels": qrels, "folder": tmp_path}


def tune(files, *runs, more=(), parts=("a", "b")):
    output = files["folder"] / "out" / "weights.json"
    options = ["--runs", *runs, "--parts", *parts, "--qrels", str(files["folder"] / "qrels.parquet")]
    options += ["--measure", MEASURE, "--depth", str(DEPTH), *more, "--output", str(output)]
    return tuning.main(["weights", *options]), output


def measured(files, stage, options):
    output = files["folder"] / "x.trec"
    assert stage.main([*options, "--depth", str(DEPTH), "--tag", "x", "--output", str(output)]) == 0
    return means(evaluate_run(read_run(output), files["qrels"], [MEASURE]), [MEASURE])[MEASURE]


@pytest.mark.parametrize("normalization", ["min-max", "z-score"])
def test_every_point_has_the_value_of_the_run_that_is_merged_with_it(files, normalization):
    cut = []
    for name in ("a", "b"):
        run = [Ranking(one.query_id, one.doc_ids[:DEPTH], one.scores[:DEPTH]) for one in read_run(files[name])]
        write_run(files["folder"] / f"{name}.cut.trec", run, name)
        cut.append(str(files["folder"] / f"{name}.cut.trec"))
    more = ["--normalization", normalization]
    status, output = tune(files, files["a"], files["b"], more=more)
    assert status == 0
    found = json.loads(output.read_text())
    assert (found["parts"], found["queries"], len(found["grid"])) == (["a", "b"], 15, 21)
    options = ["--method", "linear", "--runs", *cut, *more]
    for point in found["grid"][::5]:
        value = measured(files, fuse, [*options, "--weights", *map(str, point["weights"])])
        assert point["value"] == pytest.approx(value, abs=1e-12)
    assert found["best"] == max(point["value"] for point in found["grid"])
    assert {"weights": found["weights"], "value": found["value"]} in found["grid"]
    assert measured(files, fuse, [*options, "--tuned", str(output)]) == pytest.approx(found["value"], abs=1e-12)
    content = output.read_bytes()
    tune(files, files["a"], files["b"], more=more)
    assert output.read_bytes() == content


def test_a_reranker_is_weighed_against_its_candidates(files):
    scores = str(files["folder"] / "scores.parquet")
    status, output = tune(files, files["a"], more=["--scores", scores], parts=("a", "cross"))
    assert status == 0
    found = json.loads(output.read_text())
    options = ["--candidates", files["a"], "--scores", scores]
    for point in found["grid"][::5]:
        value = measured(files, rerank, [*options, "--weight", str(point["weights"][1])])
        assert point["value"] == pytest.approx(value, abs=1e-12)
    assert measured(files, rerank, [*options, "--tuned", str(output)]) == pytest.approx(found["value"], abs=1e-12)
    # These scores are random, and count for little.
    assert found["weights"][1] < 0.5


def test_weights_are_tuned_on_documents(files):
    runs = []
    for name in ("a", "b"):
        passages = [
            Ranking(query, [f"d{int(one[1:]) % 13}#{one[1:]}" for one in doc_ids[:DEPTH]], scores[:DEPTH])
            for query, doc_ids, scores in read_run(files[name])
        ]
        runs.append(str(files["folder"] / f"{name}.passages.trec"))
        write_run(runs[-1], passages, name)
    judged = [
        (query, doc, grade) for query, one in files["qrels"].items() for doc, grade in one.items() if int(doc[1:]) < 13
    ]
    write_rows(files["folder"] / "qrels.parquet", tables.QRELS, judged)
    qrels = {query: {doc: grade for name, doc, grade in judged if name == query} for query, _, _ in judged}
    status, output = tune(files, *runs, more=["--aggregate", "mean3"])
    assert status == 0
    for point in json.loads(output.read_text())["grid"][::5]:
        merged = files["folder"] / "x.trec"
        options = ["--method", "linear", "--runs", *runs, "--weights", *map(str, point["weights"])]
        assert fuse.main([*options, "--depth", str(DEPTH), "--tag", "x", "--output", str(merged)]) == 0
        found = means(evaluate_run(as_documents(read_run(merged), "mean3"), qrels, [MEASURE]), [MEASURE])
        assert point["value"] == pytest.approx(found[MEASURE], abs=1e-12)


def test_queries_that_only_some_runs_answer_are_logged(files, capsys):
    write_run(files["b"], [one for one in read_run(files["b"]) if one.query_id != "q3"], "b")
    assert tune(files, files["a"], files["b"])[0] == 0
    assert "1 of 12 queries are not answered by all runs" in capsys.readouterr().err


def test_a_run_without_results_is_tuned_and_merged(files):
    """Weights in the file are for systems by name, which an empty run does not have."""
    write_run(files["b"], [], "b")
    status, weights = tune(files, files["a"], files["b"])
    assert status == 0
    options = ["--method", "linear", "--runs", files["a"], files["b"], "--tuned", str(weights)]
    assert measured(files, fuse, options) == pytest.approx(json.loads(weights.read_text())["best"])


def refused(files, capsys, *runs, **options):
    status, output = tune(files, *runs, **options)
    assert status == 1
    assert not output.parent.exists()
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "error" in line.lower())
    return line


def test_runs_that_do_not_fit_are_refused(files, capsys):
    other, huge = (str(files["folder"] / f"{name}.trec") for name in ("other", "huge"))
    write_ranked(other, {"x": ["d1", "d2"]})
    with open(huge, "w") as file:
        file.writelines(f"q{q} Q0 d{d} {d + 1} {1e300 / (d + 1)} x\n" for q in range(12) for d in range(5))
    line = refused(files, capsys, files["a"], other)
    assert "found no query of the other runs, expected runs of the same queries; name runs of one split" in line
    assert "huge.trec: found the score 1e+300, expected -3.4e+38 to 3.4e+38" in refused(files, capsys, files["a"], huge)
    assert "--runs: found 1 run, expected two or more" in refused(files, capsys, files["a"], parts=("a",))
    assert "--parts: found 1, expected 2" in refused(files, capsys, files["a"], files["b"], parts=("a",))
    write_rows(files["folder"] / "qrels.parquet", tables.QRELS, [("x", "d1", 1)])
    assert "qrels.parquet: found no query of the runs" in refused(files, capsys, files["a"], files["b"])


@pytest.mark.parametrize("level", [1, 12])
def test_constant_scores_and_single_results_are_counted_and_merged(files, capsys, level):
    """Each of their documents gets 1 in `tune` as in `fuse`."""
    rankings = [Ranking(name, doc_ids[:DEPTH], scores[:DEPTH]) for name, doc_ids, scores in read_run(files["a"])]
    write_run(files["a"], rankings, "a")
    changed = [
        one
        if number >= level
        else Ranking(one.query_id, one.doc_ids[: number % 2 * 19 + 1], np.full(number % 2 * 19 + 1, 0.9))
        for number, one in enumerate(rankings)
    ]
    write_run(files["b"], changed, "b")
    status, output = tune(files, files["a"], files["b"])
    assert status == 0
    warning = f"b.trec: {level} of 12 rankings have constant scores or a single result"
    assert capsys.readouterr().err.count(warning) == 1
    for point in json.loads(output.read_text())["grid"][::5]:
        options = ["--method", "linear", "--runs", files["a"], files["b"], "--weights", *map(str, point["weights"])]
        assert point["value"] == pytest.approx(measured(files, fuse, options), abs=1e-12)
        assert capsys.readouterr().err.count(warning) == 1


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (["0.5"], "--weights: found 0.5, for 2 parts, expected 2 numbers; give one per part"),
        (["0", "0"], "--weights: found 0 0, expected numbers from 0, not all 0; fix them"),
    ],
)
def test_invalid_weights_are_refused(files, capsys, weights, complaint):
    options = ["--method", "linear", "--runs", files["a"], files["b"], "--weights", *weights, "--tag", "x"]
    assert fuse.main([*options, "--output", str(files["folder"] / "out" / "x.trec")]) == 1
    assert complaint in capsys.readouterr().err
    assert not (files["folder"] / "out").exists()


def test_weights_of_other_systems_are_refused(files, complaint):
    status, weights = tune(files, files["a"], files["b"])
    assert status == 0
    output = files["folder"] / "x.trec"
    options = ["--tuned", str(weights), "--tag", "x", "--output", str(output)]
    merged = [*options, "--method", "linear", "--runs", files["b"], files["a"]]
    line = f"{weights}: found weights of a, b, expected those of b, a; "
    assert complaint(fuse.main, merged, output).startswith(line)
    scores = str(files["folder"] / "scores.parquet")
    reranked = [*options, "--candidates", files["b"], "--scores", scores, "--depth", "5"]
    assert f"{weights}: found weights of a, b, expected those of b, any; " in complaint(rerank.main, reranked, output)
    # What has no effect is refused, too.
    runs = ["--runs", files["a"], files["b"], *options[2:]]
    for more, expected in (
        (["--method", "linear", *options[:2], "--weights", "1", "2"], "--weights: found 1 2 beside --tuned"),
        (["--method", "linear", "--k", "9"], "--k: found 9 with --method linear"),
        (["--method", "rrf", "--weights", "1", "2"], "--weights: found 1 2 with --method rrf"),
        (["--normalization", "z-score"], "--normalization: found z-score with --method interleave"),
        (["--method", "rrf", *options[:2]], f"--tuned: found {weights} with --method rrf"),
    ):
        line = complaint(fuse.main, [*runs, *more], output)
        assert line == f"{expected}, expected no value, as it has no effect; leave it out"
    line = complaint(rerank.main, [*reranked, "--weight", "0.5"], output)
    assert line.startswith("--weight: found 0.5 beside --tuned, expected no value")


# Folds: a tuned value for the queries of each fold, chosen on those of the others.

FOLDS = ("--folds", "4", "--seed", "7")


def lines_of(path):
    """The lines of a run by query."""
    lines = {}
    for line in path.read_text("utf-8").splitlines():
        lines.setdefault(line.split()[0], []).append(line)
    return lines


def folded_run(files, *options, stage=fuse):
    """Tune by folds, and return the tuned values and the lines of the run that is made with them."""
    runs = [files["a"], files["b"]] if stage is fuse else [files["a"]]
    more = () if stage is fuse else ("--scores", str(files["folder"] / "scores.parquet"))
    status, output = tune(files, *runs, more=[*FOLDS, *more, *options])
    assert status == 0
    made = files["folder"] / "folded.trec"
    words = ["--method", "linear", "--runs", *runs] if stage is fuse else ["--candidates", *runs, *more]
    words += ["--tuned", str(output), "--folded", "--depth", str(DEPTH), "--tag", "x", "--output", str(made)]
    assert stage.main(words) == 0
    return json.loads(output.read_text()), lines_of(made)


@pytest.mark.parametrize("stage", [fuse, rerank])
def test_each_fold_is_merged_with_what_is_best_on_the_others(files, stage):
    """An oracle: leave the queries of a fold out of the judgements, tune on the rest, merge the whole run."""
    for name in ("a", "b"):
        run = [Ranking(one.query_id, one.doc_ids[:DEPTH], one.scores[:DEPTH]) for one in read_run(files[name])]
        write_run(files[name], run, name)
    found, lines = folded_run(files, stage=stage)
    assert sorted(len(fold["queries"]) for fold in found["folds"]) == [3, 4, 4, 4]
    assert sorted(query for fold in found["folds"] for query in fold["queries"]) == sorted(files["qrels"])
    runs = [files["a"], files["b"]] if stage is fuse else [files["a"]]
    more = [] if stage is fuse else ["--scores", str(files["folder"] / "scores.parquet")]
    whole = tune(files, *runs, more=more)[1].read_text()
    assert {key: value for key, value in found.items() if key != "folds"} == json.loads(whole)
    options = ["--method", "linear", "--runs", *runs] if stage is fuse else ["--candidates", *runs, *more]
    for fold in found["folds"]:
        left = {query: judged for query, judged in files["qrels"].items() if query not in fold["queries"]}
        rows = [(query, doc, grade) for query, judged in left.items() for doc, grade in judged.items()]
        write_rows(files["folder"] / "qrels.parquet", tables.QRELS, rows)
        output = tune(files, *runs, more=more)[1]
        assert fold["weights"] == json.loads(output.read_text())["weights"]
        made = files["folder"] / "x.trec"
        words = [*options, "--tuned", str(output), "--depth", str(DEPTH), "--tag", "x", "--output", str(made)]
        assert stage.main(words) == 0
        own = {query: one for query, one in lines_of(made).items() if query in fold["queries"]}
        assert own == {query: one for query, one in lines.items() if query in fold["queries"]}
        values = evaluate_run(read_run(files["folder"] / "folded.trec"), files["qrels"], [MEASURE])
        mean = np.mean([values[query][MEASURE] for query in fold["queries"]])
        assert fold["value"] == pytest.approx(mean, abs=1e-12)
    # Otherwise this would show nothing.
    assert len({tuple(fold["weights"]) for fold in found["folds"]}) > 1


@pytest.mark.parametrize("stage", [fuse, rerank])
def test_the_judgements_of_a_query_do_not_change_its_own_ranking(files, stage):
    before, lines = folded_run(files, stage=stage)
    moved = 0
    for query in list(files["qrels"])[:12]:
        qrels = {**files["qrels"], query: {doc: 2 - 2 * bool(grade) for doc, grade in files["qrels"][query].items()}}
        # In another order, too.
        rows = [(one, doc, grade) for one, judged in reversed(qrels.items()) for doc, grade in judged.items()]
        write_rows(files["folder"] / "qrels.parquet", tables.QRELS, rows)
        after, now = folded_run(files, stage=stage)
        fold = next(number for number, fold in enumerate(before["folds"]) if query in fold["queries"])
        queries = before["folds"][fold]["queries"]
        assert after["folds"][fold]["queries"] == queries
        assert {one: now.get(one) for one in queries} == {one: lines.get(one) for one in queries}
        moved += [fold["weights"] for fold in after["folds"]] != [fold["weights"] for fold in before["folds"]]
    # They do count for the others.
    assert moved


def test_queries_outside_of_all_folds_get_the_weights_of_all(files):
    rows = [(query, doc, grade) for query, judged in files["qrels"].items() for doc, grade in judged.items()]
    write_rows(files["folder"] / "qrels.parquet", tables.QRELS, [row for row in rows if row[0] != "q3"])
    _, lines = folded_run(files)
    made = files["folder"] / "x.trec"
    words = [
        "--method",
        "linear",
        "--runs",
        files["a"],
        files["b"],
        "--tuned",
        str(files["folder"] / "out/weights.json"),
    ]
    assert fuse.main([*words, "--depth", str(DEPTH), "--tag", "x", "--output", str(made)]) == 0
    assert lines_of(made)["q3"] == lines["q3"]
    assert lines_of(made) != lines
    # `--folded` of a file without folds.
    words[-1] = str(tune(files, files["a"], files["b"])[1])
    assert fuse.main([*words, "--folded", "--tag", "x", "--output", str(made)]) == 1


def test_folds_need_as_many_queries_and_tuned_values(files, capsys, complaint):
    line = refused(files, capsys, files["a"], files["b"], more=["--folds", "16"])
    assert "qrels.parquet: found 15 judged queries, expected 16 or more, one per fold; lower folds" in line
    words = ["--method", "linear", "--runs", files["a"], files["b"], "--folded", "--tag", "x", "--output"]
    line = complaint(fuse.main, [*words, str(files["folder"] / "x.trec")], files["folder"] / "x.trec")
    assert line == "--folded: found True without --tuned, expected no value, as it has no effect; leave it out"
