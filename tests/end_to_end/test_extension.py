"""What docs/architecture.md says of adding things is enough: a stage, a fusion, an objective, a kind, in a copy."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml

from cort.formats.runs import read_run
from scripts.sandbox import TINY
from tests.support.changes import replace, snakemake
from tests.support.workflow import planned

pytestmark = pytest.mark.slow

STAGE = '''"""Count the queries of a run.

Reads:  run.trec
Writes: a file with the number
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from cort.formats.runs import read_run
from cort.system import cli
from cort.system.options import required


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    run: str = required("TREC")
    output: str = required("FILE")


def stage(options: Options) -> None:
    """Read, count, write."""
    Path(options.output).write_text(f"{len(read_run(options.run))}\\n", "utf-8")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
'''
RULE = """

rule dummy:
    input:
        run=paths.RUN,
    output:
        paths.DUMMY,
    localrule: True
    message:
        "Count the queries of {wildcards.system} on {wildcards.split}"
    shell:
        "python -m cort.dummy --run {input.run:q} --output {output:q} --log {log:q}"
"""
PATH = '\nDUMMY = "results/{dataset}/dummy/{split}.{system}.txt"\n'
REGISTRY = "FUSIONS: Mapping[str, Fusion] = {"
FUSION = '\n    "dummy": Fusion(lambda rankings, depth, _: interleave(_ids(rankings)[::-1], depth), needs_all=False),'

ENTRY = '    "margin_mse": EncoderObjective('
OBJECTIVES = "ENCODER_OBJECTIVES = {"
OBJECTIVE = '''@dataclass(frozen=True)
class Distance:
    """Settings of the distance."""

    power: float = setting(1.0, "of the distance", gt=0, le=10)
    """Power of the distance."""


def distance_loss(batch: Batch, settings: Distance, similarity_of: Similarity) -> Tensor:
    """Distance of each query and its positive."""
    own = similarity_of(batch.queries, batch.positives).diagonal(dim1=-2, dim2=-1)
    return ((1 - own) ** settings.power).mean(-1)


ENCODER_OBJECTIVES = {'''


KIND = '''"""Systems that turn the ranking of another one around."""

from __future__ import annotations

from dataclasses import dataclass

from cort.systems.base import System


class Reverse(System):
    """The ranking of another system, the last result first."""

    rules = ("reverse",)
    needs_all = True

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Keys of this kind."""

        reverse: str
        """System whose ranking is turned around."""

    def parts(self) -> list[str]:
        """Name the system."""
        return [self.entry["reverse"]]

    def check(self):
        """Check its name."""
        return self.check_name_of("reverse", self.config["systems"])

    def describe(self) -> str:
        """Name the system."""
        return f"{self.entry['reverse']} turned around"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name its run."""
        return {"run": self.results.run(split, self.entry["reverse"])}

    def combine(self, batch, parts, depth):
        """Turn the rankings around."""
        return [ranking._replace(doc_ids=ranking.doc_ids[::-1]) for ranking in parts[0]]
'''
KIND_RULE = """

rule reverse:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "reverse"),
    localrule: True
    message:
        "Turn the run of {wildcards.system} around"
    shell:
        "python -m cort.reverse --run {input.run:q} --tag {wildcards.system:q} --output {output:q} --log {log:q}"
"""
REVERSE = STAGE.replace("Count the queries of a run", "Turn a run around").replace(
    'output: str = required("FILE")', 'tag: str = required("NAME")\n    output: str = required("TREC")'
)
REVERSE = REVERSE.replace("from cort.formats.runs import read_run", "from cort.formats.runs import read_run, write_run")
REVERSE = REVERSE.replace(
    'Path(options.output).write_text(f"{len(read_run(options.run))}\\n", "utf-8")',
    "rankings = (one._replace(doc_ids=one.doc_ids[::-1]) for one in read_run(options.run))\n"
    "    write_run(options.output, rankings, options.tag)",
)


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


def build(tree, target, configfile=TINY):
    """Build one file; the jobs that ran."""
    status, output = snakemake(tree, "--cores", 2, "--configfile", configfile, "--", target)
    assert status == 0, output[-5_000:]
    return {} if "Nothing to be done" in output else planned(output)


def check_answers(tree, run):
    """A searcher describes the system, answers with the results of the run, and explains them by the part."""
    build(tree, "results/tiny/experiment.yaml", "reversed.yaml")
    ask = """
import json
from contextlib import closing
from cort.experiment.stored import read_experiment
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


def test_a_stage_is_a_module_a_rule_and_a_path(tree):
    (tree / "cort" / "dummy.py").write_text(STAGE, "utf-8")
    append(tree / "workflow" / "rules" / "evaluation.smk", RULE)
    append(tree / "cort" / "settings" / "paths.py", PATH)
    target = "results/tiny/dummy/test.bm25.txt"
    assert build(tree, target) == {"dummy": 1, "total": 1}
    assert int((tree / target).read_text("utf-8")) > 0
    edit(tree / "cort" / "dummy.py", "Count the queries", "Count all queries")
    assert build(tree, target) == {}
    edit(tree / "cort" / "dummy.py", "{len(", "queries: {len(")
    assert build(tree, target) == {"dummy": 1, "total": 1}
    # The whole experiment is as it was.
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY)
    assert (status, "Nothing to be done" in output) == (0, True), output


def test_a_fusion_is_an_entry_in_the_registry(tree):
    edit(tree / "cort" / "retrieval" / "fusion.py", REGISTRY, REGISTRY + FUSION)
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    config["systems"]["dummy"] = {"fuse": {"systems": ["bm25", "cort"], "method": "dummy"}}
    (tree / "fused.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    target = "results/tiny/runs/test/dummy.trec"
    assert build(tree, target, "fused.yaml") == {"fuse": 1, "total": 1}
    lines = (tree / target).read_text("utf-8")
    # The last first is the first first of these two the other way round.
    assert lines.replace(" dummy\n", " cort+bm25\n") == (tree / target).with_name("cort+bm25.trec").read_text("utf-8")


def test_an_objective_is_one_function_and_its_settings_in_one_file(tree):
    losses = tree / "cort" / "training" / "losses.py"
    edit(losses, OBJECTIVES, OBJECTIVE)
    edit(losses, ENTRY, f'    "distance": EncoderObjective(distance_loss, Distance),\n{ENTRY}')
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    config["encoders"]["near"] = {**config["encoders"]["encoder"], "loss": "distance", "power": 2}
    config["systems"]["near"] = {"retrieve": "near"}
    (tree / "near.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    target = "results/tiny/encoders/near/curve.csv"
    status, output = snakemake(tree, "--dry-run", "--printshellcmds", "--configfile", "near.yaml", "--", target)
    assert (status, "--loss distance " in output, "--power 2 " in output) == (0, True, True), output[-3_000:]
    assert build(tree, target, "near.yaml")["train"] == 1
    config["encoders"]["near"]["power"] = 11
    (tree / "near.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    status, output = snakemake(tree, "--dry-run", "--configfile", "near.yaml")
    assert (status, "encoders.near.power: found 11" in output) == (1, True), output[-3_000:]


def test_a_kind_of_system_is_a_class_a_rule_and_an_entry_in_the_registry(tree):
    (tree / "cort" / "systems" / "reverse.py").write_text(KIND, "utf-8")
    (tree / "cort" / "reverse.py").write_text(REVERSE, "utf-8")
    append(tree / "workflow" / "rules" / "retrieval.smk", KIND_RULE)
    registry = tree / "cort" / "systems" / "registry.py"
    edit(registry, "    Published,\n)", "    Published,\n    Reverse,\n)")
    edit(registry, "from cort.systems.rerank", "from cort.systems.reverse import Reverse\nfrom cort.systems.rerank")
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    config["systems"] |= {"worst": {"reverse": "bm25"}, "mixed": {"interleave": ["worst", "cort"]}}
    (tree / "reversed.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    target = "results/tiny/runs/test/mixed.trec"
    assert build(tree, target, "reversed.yaml") == {"reverse": 1, "fuse": 1, "total": 2}
    runs = {name: read_run(tree / "results/tiny/runs/test" / f"{name}.trec") for name in ("bm25", "worst")}
    assert [one.doc_ids[::-1] for one in runs["worst"]] == [one.doc_ids for one in runs["bm25"]]
    check_answers(tree, runs["worst"])
    config["systems"]["worst"]["reverse"] = "bm52"
    (tree / "reversed.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    status, output = snakemake(tree, "--dry-run", "--configfile", "reversed.yaml")
    assert (status, "systems.worst.reverse: found 'bm52'" in output) == (1, True), output[-3_000:]
