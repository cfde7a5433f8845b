"""The workflow as a whole: its plan, its seam to the stages, and a tiny experiment from raw files to the report."""

import csv
import html
import json
import re
import shlex
import shutil
import subprocess
from urllib.parse import parse_qsl

import numpy as np
import pytest
import yaml

from cort.runtime.command_line import places_of
from tests.support import workflow as support
from tests.support.changes import altered
from tests.support.common import COMMIT
from tests.support.explorer import unpack
from tests.support.forking import run_module, snakemake, succeed
from tests.support.sandbox import TINY, copy_with_tiny, executable
from tests.tiny.generate import DEPTH, HELD_OUT, QUERIES


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project with the tiny experiment in it, in which nothing is built."""
    return copy_with_tiny(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Snakemake's plans of experiments that together have every rule, by config file, in full and with commands."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("plans"))
    for path in (tree / "workflow" / "rules").glob("*.smk"):
        # Snakemake shows either the message of a job, or all there is to know of it.
        path.write_text(re.sub(r" +message:\n.*\n", "", path.read_text("utf-8")), "utf-8")
    outputs = {}
    for configfile, *options in (
        ("tiny/tiny.yaml",),
        ("config/pydocs.yaml",),
        ("config/pydocs-sparse.yaml",),
        *write_experiments(tree),
    ):
        output = succeed(tree, "snakemake", "--dry-run", "--printshellcmds", "--configfile", configfile, *options)
        outputs[" ".join([configfile, *options])] = output
    return outputs


def write_experiments(tree):
    """Write experiments with what the tiny one has not; yield the name of each config file."""
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    model = {"model": "a/model", "revision": COMMIT}
    for name in ("encoder.ckpt", "other.jsonl"):
        (tree / "tiny" / "data" / name).touch()
    public = {"queries": "download:msmarco/queries.dev.small.tsv", "qrels": "download:msmarco/qrels.dev.tsv"}
    # BM25 as it is configured, and a base model of a hub.
    lexical = {name: index for name, index in config["lexical"].items() if name != "bm25"}
    base_model = {"pretrained": "models/small", "revision": COMMIT}
    released, ready = support.released_config(config), support.ready_config(config, **model)
    ready |= {section: released[section] | ready[section] for section in ("encoders", "systems")}
    for name, experiment in {
        "pretrained": config | {"shards": 3, "lexical": lexical, "base_models": {"small": base_model}},
        "public": {
            "dataset": "public",
            "downloads": {"folder": "tiny"},
            "collection": {"passages": "download:msmarco/collection.tsv"},
            "splits": {"test": public},
            "systems": {"bm25": {"retrieve": "bm25"}},
            "latency": {"split": "test", "systems": ["bm25"]},
        },
        "titles": {
            "dataset": "titles",
            "collection": {"folder": "tiny/data"},
            "splits": {"test": {"generate": {"from": "titles"}}},
            "systems": {"bm25": {"retrieve": "bm25"}},
        },
        "endpoint": support.served_config(config) | support.endpoint_config(config["splits"]["test"]),
        "irds": {
            "dataset": "irds",
            "collection": {"irds": "beir/scifact"},
            "splits": {"test": {"irds": "beir/scifact/test"}},
            "systems": {"bm25": {"retrieve": "bm25"}},
        },
        "twice": twice(config),
        "folds": folded(config),
        "ready": released | ready,
        "weighed": support.weighed_config(config, **model),
        "late": support.late_config(config, indexed=True),
    }.items():
        (tree / f"{name}.yaml").write_text(yaml.safe_dump(experiment), "utf-8")
        yield (f"{name}.yaml",)


def twice(config):
    """Judge the queries of the test split twice, and those of another split never."""
    test, unjudged = config["splits"]["test"], {"queries": "tiny/data/queries.train.tsv"}
    return {key: config[key] for key in ("protect", "collection", "depth")} | {
        "dataset": "twice",
        "splits": {"test": test, "other": {**test, "qrels": "tiny/data/other.jsonl", "relevance_level": 2}}
        | {"open": unjudged},
        "lexical": {"long": {"k1": 2.0}},
        "systems": {"bm25": {"retrieve": "bm25"}, "long": {"retrieve": "long"}},
    }


def folded(config):
    """Tune k1 and b, and the weights of a fusion and of a re-ranker, by folds; deploy the fusion."""
    tune = {"measure": "RR@10", "folds": 3}
    systems = {
        "bm25": {"retrieve": "bm25"},
        "cort": config["systems"]["cort"],
        "fused": {"fuse": {"systems": ["cort", "bm25"], "method": "linear", "tune": tune}},
        "cross": {"rerank": "bm25", "reranker": "cross", "tune": tune},
        "folded": {"retrieve": "folded"},
    }
    lexical = config["lexical"] | {"folded": {"tune": {"k1": [0.6, 0.9], "b": [0.4], **tune}}}
    rest = {"evaluation": {}, "audit": {}, "submissions": {}, "papers": []}
    rest |= {"deploy": {"served": {"system": "fused", "targets": ["parquet"]}}}
    return config | {"dataset": "folds", "lexical": lexical, "systems": systems} | rest


def test_tiny_experiment_plans_every_stage_that_needs_no_network(plans):
    assert support.RULES.keys() - support.planned(plans[TINY]).keys() == support.UNUSED


def test_every_job_has_a_log_and_a_benchmark_of_its_own_under_the_name_of_its_rule(plans):
    rules = set()
    for output in plans.values():
        files = []
        for rule, text in re.findall(
            r"^ *(?:local)?rule (?!(?:all|experiment):)(\w+):\n((?: .*\n)+)", output, re.MULTILINE
        ):
            log = re.search(r"^ +log: (\S+)$", text, re.MULTILINE)[1]
            benchmark = re.search(r"^ +benchmark: (\S+)$", text, re.MULTILINE)[1]
            assert re.fullmatch(rf"logs/[\w-]+/{rule}(/.+)?\.log", log)
            assert re.fullmatch(rf"benchmarks/[\w-]+/{rule}/.+\.tsv", benchmark)
            rules.add(rule)
            files += [log, benchmark]
        assert len(set(files)) == len(files)
    assert support.RULES.keys() - rules == {"score_triples"}
    for file in ("encode/encoder.1-of-1", "collection"):
        assert f"log: logs/tiny/{file}.log" in plans[TINY]
    for file in ("encode/encoder.1-of-1", "collection/collection"):
        assert f"benchmark: benchmarks/tiny/{file}.tsv" in plans[TINY]


def test_every_command_is_one_the_stage_takes(plans):
    commands = set(re.findall(r"^ *Shell command: exec (python .*)$", "\n".join(plans.values()), re.MULTILINE))
    modules = set()
    for command in sorted(commands):
        # Memory that follows the size of inputs which are still to be made.
        python, option, module, *arguments = shlex.split(command.replace("'<TBD>'", "1").replace("<TBD>", "1"))
        assert (python, option) == ("python", "-m")
        modules.add(module)
        options = support.parse(module, arguments)
        # What a stage compares with its recorded checksum, or records.
        known = {place.path for place in places_of(options)}
        named = {word.rpartition("=")[2] for word in arguments if not word.startswith("--searches=")}
        assert {word for word in named if word.startswith(("results/", "tiny/"))} <= known, command
    assert modules == {f"cort.{name}" for name in support.stage_modules()}


@pytest.mark.slow
def test_queries_that_train_shares_with_a_measured_split_are_named(tmp_path):
    tree = copy_with_tiny(tmp_path)
    data = tree / "tiny" / "data"
    # The same queries by other names, with their judgements.
    for kind in ("queries", "qrels"):
        text = (data / f"{kind}.test.tsv").read_text("utf-8")
        with (data / f"{kind}.train.tsv").open("a", encoding="utf-8") as file:
            file.write(text.replace("test", "again"))
    found = "results/tiny/collection/inspection.json"
    for changes, warned in (({}, True), ({"splits.train.without": "test"}, False)):
        altered(tree, tree / "shared.yaml", changes)
        succeed(tree, "snakemake", "--cores", 2, "--configfile", "shared.yaml", "--", found)
        texts = [finding["text"] for finding in json.loads((tree / found).read_text("utf-8")) if finding["warns"]]
        assert any("also in train, which systems learn from" in text for text in texts) == warned


def test_an_encoder_can_learn_from_what_its_own_reranker_scores(tree):
    teacher = {"rerank": "bm25", "reranker": "cross"}
    changes = {"systems.teacher": teacher, "encoders.encoder.triples.system": "teacher"}
    altered(tree, tree / "taught.yaml", changes)
    output = succeed(tree, "snakemake", "--dry-run", "--configfile", "taught.yaml")
    # The evaluated split, and both training splits.
    assert support.planned(output)["score"] == 3


def test_mistakes_are_shown_at_once_and_nothing_runs(tree):
    changes = {"evaluation.baseline": "none", "systems.cort+bm25.interleave": ["cort", "bm52"]}
    altered(tree, tree / "wrong.yaml", changes)
    status, output = snakemake(tree, "--dry-run", "--configfile", "wrong.yaml")
    lines = [line for line in output.splitlines() if ": found " in line]
    assert status == 1
    assert [re.sub(r"^.*wrong\.yaml: (.*?): found.*; ", r"\1: ", line) for line in lines] == [
        "evaluation.baseline: add it or fix the name",
        "systems.cort+bm25.interleave: did you mean bm25?",
    ]
    assert "Traceback" not in output
    assert "Job stats" not in output


def test_a_key_given_twice_is_refused(tree):
    text = (tree / "tiny" / "tiny.yaml").read_text("utf-8")
    (tree / "twice.yaml").write_text(f"{text}seed: 1\nseed: 2\n", "utf-8")
    status, output = snakemake(tree, "--dry-run", "--configfile", "twice.yaml")
    assert status == 1
    assert re.search(r"twice\.yaml: row \d+: found the key 'seed' again", output)


def test_nothing_of_the_default_experiment_leaks_into_another(tree):
    (tree / "short.yaml").write_text("systems: {bm25: {retrieve: bm25}}\n", "utf-8")
    status, output = snakemake(tree, "--dry-run", "--configfile", "short.yaml")
    assert status == 1
    for key in ("collection", "dataset", "splits"):
        assert re.search(rf"short\.yaml: top level: found no key {key}, expected it to be set; add it", output)


def test_a_mistake_in_judgements_is_shown_where_the_build_ends(tree):
    rows = (tree / "tiny" / "data" / "qrels.test.tsv").read_text("utf-8").splitlines()
    *pair, grade = rows[3].split()
    rows.insert(4, " ".join([*pair, str(int(grade) + 1)]))
    (tree / "wrong.tsv").write_text("\n".join(rows), "utf-8")
    altered(tree, tree / "wrong.yaml", {"dataset": "wrong", "splits.test.qrels": "wrong.tsv"})
    measured, other = "results/wrong/measures/test/published.json", "results/wrong/collection/passages.parquet"
    status, output = snakemake(tree, "--cores", 2, measured, other, "--configfile", "wrong.yaml")
    assert (status, "Traceback" in output) == (1, False)
    assert (tree / other).is_file()
    found = rf"judgement \(query_id doc_id\) '{pair[0]} {pair[2]}' again, with another grade \(it is already in row 4\)"
    [line] = set(re.findall(rf"wrong\.tsv: row 5: found {found}, expected each.*", output))
    assert line in (tree / "logs" / "wrong" / "split" / "test.log").read_text("utf-8")
    assert "logs/wrong/split/test.log" in output


def run_lines(path):
    """Return query -> [(doc, rank, score), ...] in file order."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        query_id, _, doc_id, rank, score, tag = line.split(" ")
        assert tag == path.stem
        found.setdefault(query_id, []).append((doc_id, int(rank), float(score)))
    return found


@pytest.mark.slow
def test_every_system_has_a_run(built):
    runs = built / "results" / "tiny" / "runs"
    names = {str(path.relative_to(runs)) for path in runs.rglob("*.trec")}
    assert names == {*(f"test/{system}.trec" for system in support.SYSTEMS), "train/bm25.trec", "validation/bm25.trec"}
    counts = {"test": QUERIES["test"], "train": QUERIES["train"] - HELD_OUT, "validation": HELD_OUT}
    for name in sorted(names):
        rankings = run_lines(runs / name)
        assert len(rankings) == counts[name.partition("/")[0]]
        for results in rankings.values():
            docs, ranks, scores = zip(*results, strict=True)
            assert len(set(docs)) == len(docs) <= DEPTH
            assert ranks == tuple(range(1, len(docs) + 1))
            # trec_eval reads single precision.
            assert np.all(np.diff(np.array(scores, dtype=np.float32)) < 0)


@pytest.mark.slow
def test_measures_have_the_promised_form(built):
    folder = built / "results" / "tiny" / "measures" / "test"
    for system in support.SYSTEMS:
        measures = json.loads((folder / f"{system}.json").read_text("utf-8"))
        assert (measures["system"], measures["split"], measures["queries"]) == (system, "test", QUERIES["test"])
        assert list(measures["mean"]) == ["RR@10", "nDCG@20", "R@20", "R@50"]
        assert all(0 <= value <= 1 for value in measures["mean"].values())
        assert (folder / f"{system}.parquet").stat().st_size > 0
    # A query has a word that only its passage has.
    assert json.loads((folder / "bm25.json").read_text("utf-8"))["mean"]["R@20"] == 1


@pytest.mark.slow
def test_report_tables_and_figures_are_there(built):
    report = built / "results" / "tiny" / "report"
    page = (report / "index.html").read_text("utf-8")
    assert "Tiny &amp; whole" in page
    assert all(system in page for system in support.SYSTEMS)
    names = ("systems", "comparisons", "lists", "costs", "judged", "audits", "stages")
    tables = {f"tables/{name}.{ending}" for name in names for ending in ("csv", "tex")}
    figures = {f"figures/{name}.svg" for name in ("recall", "costs", "depths", "audits", "training")}
    found = {str(path.relative_to(report)) for path in report.rglob("[!.]*") if path.is_file()}
    others = {name for name in found if name.startswith(("reproduction/", "explore/"))}
    assert found - others == {"index.html", *tables, *figures}
    with open(report / "tables" / "systems.csv", encoding="utf-8", newline="") as handle:
        assert [row[1] for row in csv.reader(handle)][1:] == list(support.SYSTEMS)
    for name in figures:
        assert "<svg" in (report / name).read_text("utf-8")[:2_000]


@pytest.mark.slow
def test_links_lead_to_what_the_explorer_has(built):
    results = built / "results" / "tiny"
    report, comparisons = results / "report", results / "comparisons"
    index = unpack(report / "explore" / "test" / "data" / "index.js")[1]
    assert tuple(index["systems"]) == support.SYSTEMS
    page = html.unescape((report / "index.html").read_text("utf-8"))
    links = [(report, link) for link in re.findall(r'href="(explore/[^"]+)"', page)]
    with open(comparisons / "test.queries.csv", encoding="utf-8", newline="") as handle:
        links += [(comparisons, row["explorer"]) for row in csv.DictReader(handle)]
    assert len(links) > 10
    for folder, link in links:
        path, _, shown = link.partition("#")
        assert (folder / path).is_file()
        names = dict(parse_qsl(shown))
        assert {names.get("a", "bm25"), names.get("b", "bm25")} <= {*support.SYSTEMS}
        assert names.get("measure", "RR@10") in index["measures"]
        assert names.get("q", index["ids"][0]) in index["ids"]


@pytest.mark.slow
def test_nothing_half_made_is_left(built):
    assert [path for path in (built / "results").rglob("*") if path.name.endswith(".tmp")] == []


@pytest.mark.slow
def test_second_call_has_nothing_to_do(built):
    status, output = snakemake(built, "--cores", 2, "--configfile", "tiny/tiny.yaml")
    assert (status, "Nothing to be done" in output) == (0, True), output


@pytest.mark.slow
def test_snakemake_writes_its_own_report(built, tmp_path):
    succeed(built, "snakemake", "--configfile", "tiny/tiny.yaml", "--report", tmp_path / "report.zip")
    assert shutil.unpack_archive(tmp_path / "report.zip", tmp_path) is None
    assert list(tmp_path.rglob("*.svg"))


@pytest.mark.slow
def test_build_in_other_shards_gives_the_same_bytes(built, tmp_path):
    folder = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    names = [f"results/tiny/runs/test/{system}.trec" for system in support.SYSTEMS]
    altered(folder, folder / "sharded.yaml", {"shards": 3})
    output = succeed(folder, "snakemake", *names, "--cores", 2, "--configfile", "sharded.yaml")
    jobs = support.planned(output)
    assert (jobs["encode"], jobs["retrieve"], jobs["onng"], jobs["hnsw"]) == (3, 1, 1, 1)
    different = [name for name in names if (folder / name).read_bytes() != (built / name).read_bytes()]
    assert different == []


@pytest.mark.slow
def test_protected_models_are_not_trained_again_unasked(built, tmp_path, real_starts):
    folder = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    config = yaml.safe_load((folder / TINY).read_text("utf-8"))
    model = folder / "results" / "tiny" / "encoders" / "encoder" / "best" / "README.md"
    model.unlink()

    def call(**changes):
        config.update(changes)
        (folder / TINY).write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
        # Nothing is protected from root, unless it forgoes these rights.
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", "--bounding-set", rights, "--inh-caps", rights, executable("snakemake")]
        command += ["--cores", "2", "--configfile", TINY, "--", str(model.relative_to(folder))]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    status, output = call(protect=True)
    assert status == 0, output[-5_000:]
    assert not model.stat().st_mode & 0o222
    before = model.read_bytes()
    config["encoders"]["encoder"]["training"]["learning_rate"] = 0.5
    status, output = call()
    assert status == 1
    assert "ProtectedOutputException" in output
    assert model.read_bytes() == before


@pytest.mark.slow
def test_queries_without_judgements_are_ranked_and_shown_and_not_measured(tmp_path):
    tree = copy_with_tiny(tmp_path)
    tiny = yaml.safe_load((tree / TINY).read_text("utf-8"))
    config, test = support.unjudged_config(tiny), tiny["splits"]["test"]
    page = _build(tree, config)
    assert "No split has judgements, so there are no measures." in page
    assert "Mean share of the" in page
    assert not re.search("RR@10|systems.csv|>bm25 reaches", page)
    results = tree / "results" / "unjudged"
    names = {f"{system}.trec" for system in config["systems"]}
    assert {path.name for path in (results / "runs" / "test").glob("[!.]*")} == names
    assert not (results / "measures").exists()
    overlap = json.loads((results / "overlap" / "test.json").read_text())
    assert (overlap["queries"], len(overlap["pairs"])) == (QUERIES["test"], 3)
    explorer = results / "report" / "explore" / "test" / "data"
    index = unpack(explorer / "index.js")[1]
    assert (len(index["ids"]), index["measures"], index["overlap"]) == (QUERIES["test"], [], 10)
    assert 'href="explore/test/index.html"' in page
    status, said = run_module(tree, "workflow.summary", "--configfile", "unjudged.yaml")
    assert (status, said.count("index.html")) == (0, 2)
    assert "test: no judgements; the report shows the overlap of the systems" in said

    # Some of its queries are judged.
    judged = (tree / test["qrels"]).read_text("utf-8").splitlines(keepends=True)[::2]
    (tree / "some.tsv").write_text("".join(judged), "utf-8")
    test = {"queries": test["queries"], "qrels": "some.tsv", "unjudged_queries": "keep"}
    page = _build(tree, config | {"splits": {"test": test}})
    assert f"test: {len(judged)} queries; " in page
    index, values = (unpack(explorer / f"{name}.js")[1] for name in ("index", "values-0"))
    assert (len(index["ids"]), index["judged"]) == (QUERIES["test"], len(judged))
    known = [value is not None for value in values["measures"][0]]
    assert known == [True] * len(judged) + [False] * (QUERIES["test"] - len(judged))


def _build(tree, config):
    (tree / "unjudged.yaml").write_text(yaml.safe_dump(config), "utf-8")
    succeed(tree, "snakemake", "--configfile", "unjudged.yaml", "--cores", "2")
    return (tree / "results" / config["dataset"] / "report" / "index.html").read_text("utf-8")
