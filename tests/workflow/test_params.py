"""Settings as params: their words, what Snakemake records of them, and what it runs again."""

import ast
import json
import re

import pytest
import yaml
from snakemake.iocontainers import Wildcards
from snakemake.utils import format as snakemake_format

from cort.settings.config import flat
from cort.systems.registry import system_of
from scripts.sandbox import TINY, copy_with_tiny, mark_as_built, snakemake
from workflow.params import Words, all_of, among, at, code_of, join

CONFIG = {
    "seed": 42,
    "encoders": {"cort.v1": {"margin": 0.1, "projection": True, "onng": {"outgoing": 10, "edges": 5, "gpus": 2}}},
    "audit": {"efs": [10, 20], "queries": None},
}
NAMES = Wildcards(fromdict={"encoder": "cort.v1"})


def test_words_are_those_of_the_command_line_and_their_repr_is_of_the_config():
    part = join("seed", among("encoders.{encoder}", "margin", "projection"), widths="audit.efs", sample="audit.queries")
    words = part(CONFIG, NAMES)
    assert words == ["--seed", "42", "--margin", "0.1", "--projection", "True", "--widths", "10", "20"]
    kind, _, settings = repr(words).partition(" ")
    assert (kind, json.loads(settings)) == (
        "settings",
        {
            "seed": 42,
            "encoders.cort.v1.margin": 0.1,
            "encoders.cort.v1.projection": True,
            "audit.efs": [10, 20],
            "audit.queries": None,
        },
    )


def test_a_section_is_given_in_the_order_of_its_names():
    words = all_of("encoders.{encoder}.onng", but=["gpus"])(CONFIG, NAMES)
    assert words == ["--edges", "5", "--outgoing", "10"]
    assert repr(words) == 'settings {"encoders.cort.v1.onng.edges": 5, "encoders.cort.v1.onng.outgoing": 10}'


def test_words_are_quoted_one_by_one():
    words = Words(["--title", "Tiny & whole"], {"title": "Tiny & whole"}) + Words(["--seed", "1"], {"seed": 1})
    assert snakemake_format("{words:q}", words=words) == "--title 'Tiny & whole' --seed 1"
    assert repr(words) == 'settings {"title": "Tiny & whole", "seed": 1}'


def test_a_path_that_is_not_there_is_a_mistake():
    with pytest.raises(KeyError):
        at("encoders.{encoder}.margins")(CONFIG, NAMES)


def test_nested_mappings_are_listed_by_path():
    assert flat({"b": {"y": 1, "x": [1]}, "a": {}}) == {"a": {}, "b.x": [1], "b.y": 1}


def test_only_stages_have_code():
    assert "cort/fuse.py" in code_of("fuse")
    assert "cort/retrieval/ivfpq.py" in code_of("index ivfpq")
    assert "cort/retrieval/ivfpq.py" not in code_of("index onng")
    with pytest.raises(ValueError, match=r"found code_of\('encoding'\), expected a stage"):
        code_of("encoding")


def audited(split, **splits):
    config = {
        "dataset": "d",
        "lexical": {},
        "encoders": {"e": {}},
        "systems": {"s": {"retrieve": "e", "hnsw": {"ef": "auto"}}},
        "splits": splits,
    }
    return system_of(config, "s").audit_on(split)


def test_one_function_chooses_the_audit():
    files = {"queries": "q", "qrels": "r"}
    splits = {"train": files, "test": files, "dev": files, "eval": {"queries": "q"}}
    assert audited("dev", validation=files, **splits) == "results/d/audit/validation/e.hnsw.json"
    assert audited("dev", **splits) == "results/d/audit/dev/e.hnsw.json"
    # Without judgements, or outside of any split.
    assert audited("eval", **splits) == audited("", **splits) == "results/d/audit/test/e.hnsw.json"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project in which the tiny experiment is marked as built."""
    folder = copy_with_tiny(tmp_path_factory.mktemp("params"))
    mark_as_built(folder, folder / TINY)
    return folder


def planned(folder, config=TINY):
    status, said = snakemake(folder, "--dry-run", "--configfile", config)
    assert status == 0, said[-3_000:]
    return set(re.findall(r"^    (\w+): |^Job \d+: (.*)$|^rule (\w+):$", said, re.MULTILINE)), said


def stages(said):
    table = said[said.index("Job stats:") :] if "Job stats:" in said else ""
    return {row.split()[0] for row in table.splitlines()[3:] if len(row.split()) == 2} - {"total", "all"}


@pytest.mark.slow
def test_the_settings_are_what_is_recorded_and_compared(tree):
    assert "Nothing to be done" in planned(tree)[1]
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    config["encoders"]["encoder"]["margin"] = 0.25
    (tree / "changed.yaml").write_text(yaml.safe_dump(config), "utf-8")
    said = planned(tree, "changed.yaml")[1]
    assert '"encoders.encoder.margin": 0.1,' in said
    assert '"encoders.encoder.margin": 0.25,' in said
    assert {"train", "encode", "report"} <= stages(said)
    assert not {"triples", "train_reranker"} & stages(said)
    records = [json.loads(path.read_text()) for path in (tree / ".snakemake" / "metadata").rglob("*") if path.is_file()]
    params = next(record["params"] for record in records if record["rule"] == "train")
    assert any(param.startswith('settings {"encoders.encoder.pooling": ') for param in params)
    code = next(ast.literal_eval(param) for param in params if param.startswith("{"))
    assert code == code_of("train")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "reruns"),
    [
        ("cort/training/losses.py", "# A comment.", set()),
        ("cort/system/files.py", "ANOTHER = 1", set()),
        ("cort/training/losses.py", "ANOTHER = 1", {"train", "train_reranker", "encode", "evaluate", "report"}),
    ],
)
def test_what_an_edit_reruns(tree, path, line, reruns):
    before = (tree / path).read_text("utf-8")
    (tree / path).write_text(f"{before}\n{line}\n", "utf-8")
    found = stages(planned(tree)[1])
    (tree / path).write_text(before, "utf-8")
    assert found >= reruns
    assert bool(found) == bool(reruns)
    assert not {"triples", "pairs", "bm25", "tokenize"} & found
