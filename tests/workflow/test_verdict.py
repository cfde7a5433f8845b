"""`make verdict` before and after its builds: what it writes, refuses and chooses."""

import json
from types import SimpleNamespace

import pytest

from cort.evaluation.comparisons import LOSS, NOT_SIGNIFICANT, WIN, Comparisons
from cort.experiment.checks import load
from cort.experiment.stored import write_experiment
from workflow import settings, verdict


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "questions.txt").write_text("a question\n", "utf-8")
    (tmp_path / "judged.tsv").write_text("1 0 a.md 1\n", "utf-8")
    return tmp_path


@pytest.fixture
def build(monkeypatch):
    """Record what would be built, which fails."""
    built = []
    monkeypatch.setattr(verdict, "build", lambda config, *targets, quiet=False: built.append((config.name, targets)))
    return built


def test_both_experiments_are_valid_and_their_weights_are_those_of_the_first(folder, build):
    words = ["--folder", "docs", "--queries", "questions.txt", "--qrels", "judged.tsv"]
    words += ["--model", "models/My Model@" + "a" * 40]
    assert verdict.main(words) == 1
    main, synthetic = (load(f"config/docs{end}.yaml") for end in ("", "-synthetic"))
    assert (
        [*main["systems"]] == [*synthetic["systems"]] == ["bm25", "static", "my-model", "static+bm25", "my-model+bm25"]
    )
    assert main["systems"]["my-model+bm25"]["fuse"]["weights"] == "results/docs-synthetic/weights/my-model+bm25.json"
    assert synthetic["systems"]["my-model+bm25"]["fuse"]["tune"] == "nDCG@10"
    # The lines of questions.txt have no ids.
    assert (main["splits"]["queries"]["qrels"], main["splits"]["queries"]["numbered"]) == ("judged.tsv", True)
    # Headings were tried first; nothing was built, so the next attempt uses sentences. Then judgements are checked.
    files = tuple(f"results/docs-synthetic/raw/imported/counts.{split}.json" for split in ("validation", "test"))
    assert build == [("docs-synthetic.yaml", files), ("docs.yaml", ("results/docs/collection/qrels.queries.parquet",))]
    assert {split["generate"]["from"] for split in synthetic["splits"].values()} == {"sentences"}


def test_each_call_writes_both_files_anew_for_what_it_names(folder, build):
    """`docs/` is the same folder."""

    def written(*words):
        verdict.main(["--folder", *words])
        return [path.read_text("utf-8") for path in sorted((folder / "config").iterdir())]

    first = written("docs")
    model = "models/a"
    (folder / model).mkdir(parents=True)
    second = written("docs/", "--queries", "questions.txt", "--model", model)
    assert "a+bm25" in second[0]
    assert [*load("config/docs.yaml")["splits"]] == ["queries"]
    assert written(str(folder / "docs"))[1] != second[1]
    assert written("./docs/") == first


def test_a_config_is_written_anew_after_a_call_with_a_mistake(folder, build, capsys):
    assert verdict.main(["--folder", "docs", "--model", "organisation/name@main"]) == 1
    assert "revision: found 'main'" in capsys.readouterr().err
    verdict.main(["--folder", "docs", "--model", f"organisation/name@{'a' * 40}"])
    assert load("config/docs.yaml")["encoders"]["name"]["revision"] == "a" * 40


@pytest.mark.parametrize("name", ["docs", "docs-synthetic"])
def test_files_are_kept_and_named_if_somebody_edited_one(folder, build, capsys, name):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / f"{name}.yaml"
    path.write_text(path.read_text("utf-8").replace("title: ", "seed: 5\ntitle: "), "utf-8")
    before = [one.read_bytes() for one in sorted((folder / "config").iterdir())]
    capsys.readouterr()
    verdict.main(["--folder", "docs"])
    assert f"used as edited: config/{name}.yaml\n" in capsys.readouterr().out
    assert verdict.main(["--folder", "docs", "--queries", "questions.txt"]) == 1
    expected = (
        f"config/{name}.yaml: found edits, expected QUERIES=questions.txt in config/docs.yaml, as edited files are"
    )
    assert expected in capsys.readouterr().err
    assert before == [one.read_bytes() for one in sorted((folder / "config").iterdir())]


def test_an_edited_file_may_have_what_a_later_call_names(folder, build, capsys):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / "docs.yaml"
    edited = path.read_text("utf-8").replace("splits: {", "splits: {of_people: {queries: questions.txt}, ")
    path.write_text(edited.replace("encoders:\n", "encoders:\n  mine: {pretrained: models/mine}\n"), "utf-8")
    (folder / "models" / "mine").mkdir(parents=True)
    build.clear()
    verdict.main(["--folder", "docs", "--queries", "./questions.txt", "--model", "models/mine/"])
    assert "error" not in capsys.readouterr().err
    assert build == [("docs-synthetic.yaml", ())]


def test_a_file_about_another_folder_and_one_of_somebody_else_are_refused(folder, build, capsys):
    verdict.main(["--folder", "docs"])
    (folder / "more" / "docs").mkdir(parents=True)
    path = folder / "config" / "docs.yaml"
    assert verdict.main(["--folder", "more/docs"]) == 1
    expected = "config/docs.yaml: found the folder docs, expected more/docs; set NAME= to write another one"
    assert expected in capsys.readouterr().err
    assert verdict.main(["--folder", "more/docs", "--name", "other"]) == 1
    assert 'folder: "more/docs"' in (folder / "config" / "other.yaml").read_text("utf-8")
    path.write_text("dataset: mine\n", "utf-8")
    assert verdict.main(["--folder", "docs"]) == 1
    expected = "config/docs.yaml: row 1: found dataset: mine, expected # Written by `make verdict` for ...; set NAME="
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--folder", "absent"], "FOLDER: found absent, expected a folder of documents"),
        (["--folder", "questions.txt"], "FOLDER: found questions.txt, expected a folder of documents"),
        (["--folder", "docs", "--queries", "absent.txt"], "QUERIES: found absent.txt, expected a file"),
        (["--folder", "docs", "--qrels", "judged.tsv"], "QRELS: found judged.tsv, expected QUERIES, too"),
        (["--folder", "docs", "--model", "models/absent"], "MODEL: found models/absent, expected a folder, or NAME@"),
        (["--folder", "docs", "--name", "My Docs"], "NAME: found My Docs, expected small letters"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(folder, capsys, words, message):
    assert verdict.main(words) == 1
    assert message in capsys.readouterr().err
    assert not [*(folder / "config").iterdir()]


@pytest.mark.parametrize(
    ("verdicts", "best"),
    [
        ({"static": LOSS, "fused": WIN, "dense": WIN}, ["dense", "fused", "bm25"]),
        ({"static": LOSS, "fused": WIN, "dense": NOT_SIGNIFICANT}, ["fused", "bm25"]),
        ({"static": LOSS, "fused": NOT_SIGNIFICANT, "dense": NOT_SIGNIFICANT}, ["bm25"]),
    ],
)
def test_the_best_is_chosen_among_those_significantly_better_than_bm25(verdicts, best):
    means = {"static": 0.3, "fused": 0.5, "dense": 0.6}
    against = [(name, "bm25", verdicts[name], means[name]) for name in means] + [("fused", "dense", WIN, 0.9)]
    rows = [
        SimpleNamespace(system=name, baseline=other, measure="nDCG@10", verdict=outcome, mean=mean)
        for name, other, outcome, mean in against
    ]
    compared = Comparisons("test", "bm25", 100, 0.95, 100, 0.05, 0, rows, [])
    assert verdict.best_first(compared) == best


@pytest.mark.parametrize(
    ("queries", "labels", "decides"), [(25, "human", True), (24, "human", False), (25, "LLM", False)]
)
def test_judgements_of_people_decide_if_there_are_enough(folder, build, monkeypatch, queries, labels, decides):
    verdict.main(["--folder", "docs", "--queries", "questions.txt", "--qrels", "judged.tsv"])
    config = load("config/docs.yaml")
    config["splits"]["queries"]["labels"] = labels
    found = Comparisons("queries", "bm25", queries, 0.95, 100, 0.05, 0, [], [])
    monkeypatch.setattr(verdict, "compared_on", lambda config, split: found)
    assert verdict.judged_by_people(config) is (found if decides else None)


def add_systems(path, *entries):
    path.write_text(path.read_text("utf-8").replace("systems:\n", "".join(["systems:\n", *entries]), 1), "utf-8")


RERANKED = "  reranked: {rerank: bm25, reranker: cross}\n"


def test_the_best_system_that_engines_can_run_is_deployed(folder, build):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / "docs.yaml"

    def deployed(*systems):
        verdict.add_deployment(path, systems)
        return {name: entry["system"] for name, entry in load(path)["deploy"].items()}

    assert deployed("static+bm25", "bm25") == {"search": "static+bm25"}
    assert deployed("bm25") == {"search": "bm25"}
    assert not verdict.is_edited(path)
    add_systems(path, RERANKED)
    path.write_text(path.read_text("utf-8") + "rerankers: {cross: {pretrained: models/cross}}\n", "utf-8")
    # The second is only in the other experiment.
    assert deployed("reranked", "elsewhere", "static", "bm25") == {"search": "static"}
    assert verdict.is_edited(path)
    assert deployed("reranked") == {}
    path.write_text(path.read_text("utf-8").replace("deploy: {}", "deploy: {s: {system: bm25, targets: [parquet]}}"))
    assert deployed("static") == {"s": "bm25"}


def test_the_cost_of_systems_also_of_those_that_somebody_added(folder, build):
    verdict.main(["--folder", "docs"])
    path, results = folder / "config" / "docs.yaml", folder / "results" / "docs"
    add_systems(path, RERANKED)
    path.write_text(path.read_text("utf-8") + "rerankers: {cross: {pretrained: models/cross}}\n", "utf-8")
    config = load(path)
    write_experiment(results / "experiment.yaml", config, 2)
    files = {"lexical/bm25/index/lucene/data": 3, "embeddings/static/passages.1-of-2.arrow": 2}
    for name, megabytes in files.items() | {("embeddings/static/passages.2-of-2.arrow", 1)}:
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_bytes(bytes(megabytes * 10**6))
    times = {"sequential": {"p50": 3, "p95": 4}, "concurrent": {"p50": 1, "p95": 2}}
    rows = [{"system": "static+bm25", "batch": batch, "milliseconds": times} for batch in (32, 1)]
    (results / "latency").mkdir()
    (results / "latency" / "sample.json").write_text(json.dumps({"rows": rows}), "utf-8")
    measured = "6 MB of index; 1.0 ms per query here, 95 % under 2.0 ms"
    assert verdict.cost(path, config, "static+bm25") == measured
    added = f"3 MB of index; add reranked to latency.systems of {path} to measure its time"
    assert verdict.cost(path, config, "reranked") == added
    assert verdict.cost(path, config, "elsewhere") == f"{path} does not have elsewhere: add it there to search with it"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nsystems:", "\nevaluation: {baseline: static}\nsystems:"),
        ("\nsystems:", "\nevaluation: {measures: [RR@10]}\nsystems:"),
        ("  test: {", "  other: {"),
    ],
)
def test_an_edit_after_which_nothing_is_compared_with_bm25_is_refused(folder, build, capsys, old, new):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / "docs-synthetic.yaml"
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    build.clear()
    assert verdict.main(["--folder", "docs"]) == 1
    expected = "found edits, and no comparison with bm25, expected bm25 as the baseline, and another system"
    assert f"config/docs-synthetic.yaml: {expected}" in capsys.readouterr().err
    assert build == []


def test_the_language_can_be_changed_when_a_deployment_is_filled_in(folder, build):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / "docs.yaml"
    verdict.add_deployment(path, ["static+bm25"])
    path.write_text(path.read_text("utf-8") + "lexical: {bm25: {language: de}}\n", "utf-8")
    main, synthetic = load(path), load(path.with_name("docs-synthetic.yaml"))
    assert [config["lexical"]["bm25"]["language"] for config in (main, synthetic)] == ["de", "de"]
    words = settings.deployment(main, SimpleNamespace(deployment="search"))
    assert words[words.index("--language") + 1] == "de"
