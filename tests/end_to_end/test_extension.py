"""The examples of docs/contributing.md work as they are in a copy, and so does what else it says of adding things."""

import json
import math
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from cort.formats.runs import read_run
from tests.support.changes import replace
from tests.support.common import ROOT
from tests.support.forking import snakemake, succeed
from tests.support.sandbox import TINY, copy_with_tiny, executable
from tests.support.workflow import planned

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "contributing.md"
# A file, and its text or a change of it.
CODE = re.compile(r"(?:In|New,) `([^`]+)`:\n\n```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

STAGE_WALK = "A stage with a setting and a table in the report"
REVERSE = '''"""Turn a run around."""

import sys

from cort.formats.runs import read_run, write_run
from cort.runtime import cli
from cort.runtime.sections import Section, TrecFile


class Options(Section):
    """Options of this stage."""

    run: TrecFile
    depth: int
    tag: str
    output: TrecFile


def stage(options: Options) -> None:
    """Turn the rankings around."""
    rankings = (one._replace(doc_ids=one.doc_ids[::-1]) for one in read_run(options.run))
    write_run(options.output, rankings, options.tag)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
'''
KIND = '''"""Systems that turn the ranking of another one around."""

from __future__ import annotations

from cort.runtime.sections import Section, Text
from cort.systems.base import System


class Reverse(System):
    """The ranking of another system, the last result first."""

    rule = "reverse"
    needs_all = True

    class Settings(Section):
        """Keys of this kind."""

        reverse: Text
        """System whose ranking is turned around."""

    entry: Settings

    def parts(self) -> list[str]:
        """Name the system."""
        return [self.entry.reverse]

    def check(self):
        """Check its name."""
        return self.check_name_of("reverse", self.results.root.systems)

    def describe(self) -> str:
        """Name the system."""
        return f"{self.entry.reverse} turned around"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name its run."""
        return {"run": self.results.run(split, self.entry.reverse)}

    def combine(self, batch, parts, depth):
        """Turn the rankings around."""
        return [ranking._replace(doc_ids=ranking.doc_ids[::-1]) for ranking in parts[0]]
'''
REVERSE_RULE = """

rule reverse:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/reverse/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/reverse/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("reverse"),
    params:
        code=code_of("reverse"),
        options=options(params.run),
    shell:
        "exec python -m cort.reverse --run {input.run:q} {params.options:q} --tag {wildcards.system:q}"
        " --output {output:q} --log {log:q}"
"""


@pytest.fixture
def tree(built, tmp_path):
    """A copy of the project in which the tiny experiment is built."""
    return shutil.copytree(built, tmp_path / "tree", symlinks=True)


def edit(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    replace(path, text.replace(old, new, 1).encode())


def append(path, text):
    replace(path, (path.read_text("utf-8") + text).encode())


def example(heading):
    """The code blocks of a section of the page, and its experiment."""
    section = re.search(rf"^## {heading}\n(.*?)^## ", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[1]
    (experiment,) = re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    blocks = CODE.findall(section)
    # No block is left out.
    assert len(blocks) + 1 == section.count("```") // 2
    return blocks, yaml.safe_load(experiment)


def add(tree, heading):
    """Apply an example of the page; return the files that it changes, and the tiny experiment with its entries."""
    blocks, experiment = example(heading)
    for path, language, code in blocks:
        if language == "python":
            assert not (tree / path).exists()
            (tree / path).write_text(code, "utf-8")
        else:
            lines = code.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
            assert (tree / path).read_text("utf-8").count(old) == 1
            edit(tree / path, old, new)
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    for section, entries in experiment.items():
        config[section] = config.get(section, {}) | entries
    return {path for path, _, _ in blocks}, config


def write_config(tree, name, config):
    (tree / name).write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")


def build(tree, target, configfile=TINY, *words):
    """Build one file; the jobs that ran."""
    output = succeed(tree, "snakemake", "--cores", 2, "--configfile", configfile, *words, "--", target)
    return {} if "Nothing to be done" in output else planned(output)


def would_run(tree, target, configfile):
    """Jobs that would run for one file."""
    return build(tree, target, configfile, "--dry-run")


def check_answers(tree, run):
    """A searcher describes the system, answers with the results of the run, and explains them by the part."""
    build(tree, "results/tiny/experiment.yaml", "reversed.yaml")
    ask = """
import json
from contextlib import closing
from cort.config.stored import read_experiment
from cort.formats import tables
from cort.online.searcher import open_searcher
from cort.online.why import explain
queries = tables.read_table("results/tiny/collection/queries.test.parquet", tables.QUERIES).to_pylist()
with closing(open_searcher(read_experiment("results/tiny/experiment.yaml"), ["worst"])) as searcher:
    assert searcher.opened["worst"].describe() == "bm25 turned around"
    for query in queries:
        results = searcher.search("worst", query["text"], 2).results
        why = explain(searcher, "worst", query["text"], results[0].doc_id)
        parts = [(part.system, part.rank) for part in why.parts]
        print(json.dumps([query["query_id"], [result.doc_id for result in results], why.kind, why.rank, parts]))
"""
    done = subprocess.run([sys.executable, "-c", ask], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    answers = {query_id: more for query_id, *more in map(json.loads, done.stdout.splitlines())}
    for ranking in run:
        doc_ids, kind, rank, parts = answers[ranking.query_id]
        assert (doc_ids, kind, rank) == (ranking.doc_ids[:2], "reverse", 1)
        assert parts == [["bm25", len(ranking.doc_ids)]]


def test_a_stage_with_a_setting_and_a_table_is_five_files(tree):
    files, config = add(tree, STAGE_WALK)
    stages, report = (
        {"cort/variety.py", "workflow/rules/evaluation.smk"},
        {"cort/reporting/results.py", "cort/reporting/registry.py"},
    )
    assert files == stages | report | {"cort/config/evaluation.py"}
    depth = config["evaluation"]["variety_depth"]
    write_config(tree, "varied.yaml", config)
    runs = {path.stem: path for path in (tree / "results/tiny/runs/test").glob("*.trec")}
    name = "results/tiny/variety/test/{}.json"
    page = "results/tiny/report/index.html"
    ran = build(tree, page, "varied.yaml")
    assert ran["variety"] == len(runs)
    for system, path in runs.items():
        tops = [doc_id for ranking in read_run(path) for doc_id in ranking.doc_ids[:depth]]
        shown = json.loads((tree / name.format(system)).read_text("utf-8"))
        assert shown == {"variety": len(set(tops)) / len(tops)}
    assert "Share of distinct passages." in (tree / page).read_text("utf-8")
    # The key reruns this stage, and with it what shows all settings.
    write_config(tree, "changed.yaml", config | {"evaluation": config["evaluation"] | {"variety_depth": depth + 1}})
    again = {"resolve": 1, "variety": len(runs), "provenance": 1, "report": 1, "total": len(runs) + 3}
    assert would_run(tree, page, "changed.yaml") == again
    # A comment reruns nothing, another command does.
    edit(tree / "cort" / "variety.py", "Count, divide and write.", "Count all, divide, and write.")
    assert would_run(tree, page, "varied.yaml") == {}
    edit(tree / "cort" / "variety.py", "max(len(found), 1)", "len(found)")
    assert build(tree, name.format("bm25"), "varied.yaml") == {"variety": 1, "total": 1}


# mypy reads the whole project, and others run the examples.
TYPES = pytest.param(("mypy", "--cache-dir", ROOT / ".mypy_cache"), id="mypy", marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("linter", [("ruff", "check"), ("ruff", "format", "--check"), TYPES])
def test_the_examples_obey_the_linters_and_have_types(tmp_path, linter):
    tree = copy_with_tiny(tmp_path)
    headings = (
        "A fusion method",
        "An encoder loss",
        "A first-stage retriever",
        "A stage with a setting and a table in the report",
    )
    files = set.union(*(add(tree, heading)[0] for heading in headings))
    program, *words = linter
    command = [executable(program), *words, *sorted(name for name in files if name.endswith(".py"))]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fusion_is_a_function_and_its_entry_in_one_file(tree):
    files, config = add(tree, "A fusion method")
    assert files == {"cort/retrieval/fusion.py"}
    write_config(tree, "fused.yaml", config)
    target = "results/tiny/runs/test/mnz.trec"
    assert build(tree, target, "fused.yaml") == {"fuse": 1, "total": 1}
    parts = [read_run(tree / target.replace("mnz", name)).by_query() for name in ("cort", "bm25")]
    depth = config["depth"]
    for ranking in read_run(tree / target):
        expected = {}
        for run in parts:
            part = run.ranking(ranking.query_id)
            # BM25's rankings are complete here.
            low, high = 0 if run is parts[1] else min(part.scores), max(part.scores)
            for doc_id, score in zip(part.doc_ids, part.scores, strict=True):
                expected.setdefault(doc_id, []).append((score - low) / (high - low))
        scores = {doc_id: sum(scores) * len(scores) for doc_id, scores in expected.items()}
        best = sorted(scores.values(), reverse=True)[:depth]
        # Fusion counts documents as tied whose scores differ by the least step of run files.
        assert [scores[doc_id] for doc_id in ranking.doc_ids] == pytest.approx(best, abs=1e-4)


def test_an_objective_is_one_function_and_its_settings_in_one_file(tree):
    files, config = add(tree, "An encoder loss")
    assert files == {"cort/training/losses.py"}
    new = config["encoders"]["logistic"]
    config["encoders"]["logistic"] = {
        **config["encoders"]["encoder"],
        "loss": new["loss"],
        "sharpness": new["sharpness"],
    }
    write_config(tree, "loss.yaml", config)
    target = "results/tiny/encoders/logistic/curve.csv"
    status, output = snakemake(tree, "--dry-run", "--printshellcmds", "--configfile", "loss.yaml", "--", target)
    assert (status, "--loss=ranknet " in output, "--sharpness=10.0 " in output) == (0, True, True), output[-3_000:]
    assert build(tree, target, "loss.yaml")["train"] == 1
    check_loss(tree)
    config["encoders"]["logistic"]["sharpness"] = 1001
    write_config(tree, "loss.yaml", config)
    status, output = snakemake(tree, "--dry-run", "--configfile", "loss.yaml")
    assert (status, "encoders.logistic.sharpness: found 1001" in output) == (1, True), output[-3_000:]


def check_loss(tree):
    """One triple whose positive is more similar by .5 has the loss log(1 + exp(-10 * .5))."""
    ask = """
import torch
from cort.training.losses import Batch, RankNet, inner_product, ranknet_loss
vectors = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.75, 1.0], [0.25, 2.0]]])
batch = Batch(*vectors, relevant=None, others=None, scores=None)
print(ranknet_loss(batch, RankNet(sharpness=10), inner_product).tolist())
"""
    done = subprocess.run([sys.executable, "-c", ask], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout) == pytest.approx([math.log1p(math.exp(-5))])


def test_a_retriever_is_a_class_a_stage_and_an_entry_in_the_registry(tree):
    files, config = add(tree, "A first-stage retriever")
    new = {"cort/likelihood.py", "cort/systems/likelihood.py"}
    assert files == new | {"cort/systems/registry.py", "workflow/rules/runs.smk"}
    write_config(tree, "likelihood.yaml", config)
    target = "results/tiny/runs/test/likelihood.trec"
    both = target.replace("likelihood", "both")
    assert build(tree, both, "likelihood.yaml") == {"likelihood": 1, "fuse": 1, "total": 2}
    runs = {name: read_run(tree / target.replace("likelihood", name)) for name in ("likelihood", "bm25")}
    # Both find the passages with any term of the query, and score them otherwise.
    found = {name: {one.query_id: one.doc_ids for one in run} for name, run in runs.items()}
    assert {name: set(doc_ids) for name, doc_ids in found["likelihood"].items()} == {
        name: set(doc_ids) for name, doc_ids in found["bm25"].items()
    }
    assert found["likelihood"] != found["bm25"]
    config["systems"]["likelihood"]["mu"] = 50
    write_config(tree, "likelihood.yaml", config)
    assert build(tree, target, "likelihood.yaml") == {"likelihood": 1, "total": 1}
    config["systems"]["likelihood"]["likelihood"] = "bm52"
    write_config(tree, "likelihood.yaml", config)
    status, output = snakemake(tree, "--dry-run", "--configfile", "likelihood.yaml")
    assert (status, "systems.likelihood.likelihood: found 'bm52'" in output) == (1, True), output[-3_000:]


def test_a_kind_of_system_that_changes_another_answers_live_queries(tree):
    (tree / "cort" / "systems" / "reverse.py").write_text(KIND, "utf-8")
    (tree / "cort" / "reverse.py").write_text(REVERSE, "utf-8")
    registry = tree / "cort" / "systems" / "registry.py"
    edit(registry, "    Published,\n)", "    Published,\n    Reverse,\n)")
    append(tree / "workflow" / "rules" / "runs.smk", REVERSE_RULE)
    edit(registry, "from cort.systems.rerank", "from cort.systems.reverse import Reverse\nfrom cort.systems.rerank")
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    config["systems"] |= {"worst": {"reverse": "bm25"}, "mixed": {"interleave": ["worst", "cort"]}}
    write_config(tree, "reversed.yaml", config)
    target = "results/tiny/runs/test/mixed.trec"
    assert build(tree, target, "reversed.yaml") == {"reverse": 1, "fuse": 1, "total": 2}
    runs = {name: read_run(tree / "results/tiny/runs/test" / f"{name}.trec") for name in ("bm25", "worst")}
    assert [one.doc_ids[::-1] for one in runs["worst"]] == [one.doc_ids for one in runs["bm25"]]
    check_answers(tree, runs["worst"])
