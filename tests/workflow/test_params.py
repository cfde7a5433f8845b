import json
import typing

import pytest
from snakemake.iocontainers import Wildcards
from snakemake.utils import format as snakemake_format

from cort.experiment.experiment import Experiment
from cort.runtime.cli import parser_of
from cort.runtime.keys import keys_of
from cort.runtime.options import words_of
from cort.runtime.reading import mistakes_in, value_of
from cort.settings.config import flat
from tests.support.workflow import RULES, command_of, options_of
from workflow.settings import Words, all_of, among, at, code_of, join

CONFIG = {
    "seed": 42,
    "encoders": {"cort.v1": {"margin": 0.1, "projection": True, "onng": {"outgoing": 10, "edges": 5, "gpus": 2}}},
    "audit": {"efs": [10, 20], "queries": None},
}
EXPERIMENT = Experiment(CONFIG)
NAMES = Wildcards(fromdict={"encoder": "cort.v1"})


def test_words_are_those_of_the_command_line_and_their_repr_is_of_the_config():
    part = join("seed", among("encoders.{encoder}", "margin", "projection"), widths="audit.efs", sample="audit.queries")
    words = part(EXPERIMENT, NAMES)
    assert words == ["--seed=42", "--margin=0.1", "--projection=True", "--widths", "10", "20"]
    kind, _, settings = repr(words).partition(" ")
    expected = {"seed": 42, "encoders.cort.v1.margin": 0.1, "encoders.cort.v1.projection": True}
    expected |= {"audit.efs": [10, 20], "audit.queries": None}
    assert (kind, json.loads(settings)) == ("settings", expected)


def test_a_section_is_given_in_the_order_of_its_names():
    words = all_of("encoders.{encoder}.onng", but=["gpus"])(EXPERIMENT, NAMES)
    assert words == ["--edges=5", "--outgoing=10"]
    assert repr(words) == 'settings {"encoders.cort.v1.onng.edges": 5, "encoders.cort.v1.onng.outgoing": 10}'


def test_words_are_quoted_one_by_one():
    words = Words(["--title=Tiny & whole"], {"title": "Tiny & whole"}) + Words(["--seed=1"], {"seed": 1})
    assert snakemake_format("{words:q}", words=words) == "'--title=Tiny & whole' --seed=1"
    assert repr(words) == 'settings {"title": "Tiny & whole", "seed": 1}'


# Values that look like options, several words, or nothing. Not "--", which argparse of Python 3.11 loses.
AWKWARD = ["-x", "--log", "-1", "-1e-05", "a b", "a=b", "'", "", "%s", "query: ", "None", "True", "@f", "\n"]
AWKWARD += [-1.0e-5, 1.0e-5, -0.5, 1e22, 3, 0, -3, 10**17, -(10**17), True, False]


@pytest.mark.parametrize("command", sorted({command_of(name) for name in RULES}))
def test_a_stage_takes_every_value_that_a_config_admits(command):
    options = options_of(command)
    parser = parser_of(options)
    for action in parser._actions:
        action.required = False
    for name, key in keys_of(options).items():
        many = typing.get_origin(key.hint) is tuple
        hint = typing.get_args(key.hint)[0] if many else key.hint
        admitted = [one for one in AWKWARD if not [*mistakes_in([one] if many else one, key.hint, key.rules)]]
        for value in [*([one] for one in admitted), *([admitted] if admitted else [])] if many else admitted:
            parsed = getattr(parser.parse_args(words_of(name, value)), name)
            assert ([value_of(word, hint) for word in parsed] if many else value_of(parsed, hint)) == value, name


def test_nested_mappings_are_listed_by_path_and_a_path_that_is_not_there_is_a_mistake():
    assert flat({"b": {"y": 1, "x": [1]}, "a": {}}) == {"a": {}, "b.x": [1], "b.y": 1}
    with pytest.raises(KeyError):
        at("encoders.{encoder}.margins")(EXPERIMENT, NAMES)


def test_only_stages_have_code():
    assert "cort/fuse.py" in code_of("fuse")
    assert "cort/retrieval/ivfpq.py" in code_of("index ivfpq")
    assert "cort/retrieval/ivfpq.py" not in code_of("index onng")
    with pytest.raises(ValueError, match=r"found code_of\('encoding'\), expected a stage"):
        code_of("encoding")


def audited(split, **splits):
    config = {"dataset": "d", "lexical": {}, "encoders": {"e": {}}, "splits": splits}
    config["systems"] = {"s": {"retrieve": "e", "hnsw": {"ef": "auto"}}}
    return Experiment(config).systems["s"].audit_on(split)


def test_one_function_chooses_the_audit():
    files = {"queries": "q", "qrels": "r"}
    splits = {"train": files, "test": files, "dev": files, "eval": {"queries": "q"}}
    assert audited("dev", validation=files, **splits) == "results/d/audit/validation/e.hnsw.json"
    assert audited("dev", **splits) == "results/d/audit/dev/e.hnsw.json"
    # Without judgements, or outside of any split.
    assert audited("eval", **splits) == audited("", **splits) == "results/d/audit/test/e.hnsw.json"
