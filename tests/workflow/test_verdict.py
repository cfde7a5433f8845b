"""`make verdict` before and after its builds: what it writes, refuses and chooses."""

from types import SimpleNamespace

import pytest

from cort.evaluation.comparisons import LOSS, NOT_SIGNIFICANT, WIN, Comparisons
from cort.experiment.checks import load
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
    assert main["splits"]["queries"]["qrels"] == "judged.tsv"
    # Headings were tried first; nothing was built, so the next attempt uses sentences. Then judgements are checked.
    files = tuple(f"results/docs-synthetic/raw/imported/counts.{split}.json" for split in ("validation", "test"))
    assert build == [("docs-synthetic.yaml", files), ("docs.yaml", ("results/docs/collection/qrels.queries.parquet",))]
    assert {split["generate"]["from"] for split in synthetic["splits"].values()} == {"sentences"}


def test_files_that_were_edited_are_kept_and_those_for_something_else_refused(folder, build, capsys):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / "docs.yaml"
    path.write_text(path.read_text("utf-8") + "seed: 5\n", "utf-8")
    verdict.main(["--folder", "docs"])
    assert load(path)["seed"] == 5
    capsys.readouterr()
    assert verdict.main(["--folder", "docs", "--queries", "questions.txt"]) == 1
    assert (
        'config/docs.yaml: row 1: found # Written by `make verdict` for {"FOLDER": "docs"}' in capsys.readouterr().err
    )
    assert verdict.main(["--folder", "docs", "--queries", "questions.txt", "--name", "other"]) == 1
    assert "split: queries" in (folder / "config" / "other.yaml").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--folder", "absent"], "FOLDER: found absent, expected a folder of documents"),
        (["--folder", "questions.txt"], "FOLDER: found questions.txt, expected a folder of documents"),
        (["--folder", "docs", "--queries", "absent.txt"], "QUERIES: found absent.txt, expected a file"),
        (["--folder", "docs", "--qrels", "judged.tsv"], "QRELS: found judged.tsv, expected QUERIES, too"),
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
        ({"static": LOSS, "fused": WIN, "dense": WIN}, "dense"),
        ({"static": LOSS, "fused": WIN, "dense": NOT_SIGNIFICANT}, "fused"),
        ({"static": LOSS, "fused": NOT_SIGNIFICANT, "dense": NOT_SIGNIFICANT}, "bm25"),
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
    assert verdict.best_of(compared) == best


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


def test_a_deployment_is_filled_in_once(folder, build):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / "docs.yaml"
    verdict.add_deployment(path, "static+bm25")
    verdict.add_deployment(path, "bm25")
    assert load(path)["deploy"]["search"]["system"] == "static+bm25"


def test_the_language_can_be_changed_when_a_deployment_is_filled_in(folder, build):
    verdict.main(["--folder", "docs"])
    path = folder / "config" / "docs.yaml"
    verdict.add_deployment(path, "static+bm25")
    path.write_text(path.read_text("utf-8") + "lexical: {bm25: {language: de}}\n", "utf-8")
    main, synthetic = load(path), load(path.with_name("docs-synthetic.yaml"))
    assert [config["lexical"]["bm25"]["language"] for config in (main, synthetic)] == ["de", "de"]
    words = settings.deployment(main, SimpleNamespace(deployment="search"))
    assert words[words.index("--language") + 1] == "de"
