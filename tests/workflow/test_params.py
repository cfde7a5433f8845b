"""Params of rules: words of options, and the code of a stage."""

import pytest
from pydantic import TypeAdapter
from snakemake.iocontainers import Wildcards
from snakemake.utils import format as snakemake_format

from cort.config.experiment import Experiment
from cort.config.models import Hub, Lengths, Onng, Representation, Sparsity
from cort.runtime.cli import parser_of
from cort.runtime.command_line import form_of, value_of, words_of
from cort.runtime.mistakes import mistakes_in
from cort.runtime.sections import Section, hint_of
from tests.support.configs import GONE, adjusted, built
from tests.support.workflow import RULES, command_of, options_of
from workflow.params import code_of, nested_sizes, options

ENCODER = "encoders.{encoder}"
NAMES = Wildcards(fromdict={"encoder": "encoder", "split": "test"})


def words(*parts, changes=None, **renamed):
    """Options of parts, of the changed tiny experiment."""
    return options(built(changes), *parts, **renamed)(NAMES)


def test_options_are_words_sorted_by_name_whatever_the_order_of_parts_and_keys():
    changes = {"encoders encoder margin": 0.3, "seed": 7, "evaluation measures": ["R@50", "RR@10"]}
    expected = ["--margin=0.3", "--measures=R@50", "--measures=RR@10", "--seed=7"]
    assert words("seed", (ENCODER, "margin"), "evaluation.measures", changes=changes) == expected
    assert words("evaluation.measures", (ENCODER, "margin"), "seed", changes=changes) == expected


def test_a_section_gives_the_keys_that_an_entry_has_and_that_are_set():
    assert words((f"{ENCODER}.onng", Onng)) == ["--edges=10", "--incoming=10", "--outgoing=5"]
    # A path in the config, whose last key is not set or null.
    assert words("splits.{split}.measures", changes={"splits test qrels": GONE, "submissions": GONE}) == []
    assert words(sample="audit.queries", changes={"audit queries": None}) == []
    assert words(sample="audit.queries", changes={"audit queries": 3}) == ["--sample=3"]


def test_a_section_gives_nothing_of_an_entry_of_another_class():
    new = words((ENCODER, Representation, Lengths, Sparsity, Hub))
    assert {"--pooling=mean", "--query-length=24", "--projection=True"} <= {*new}
    assert not [word for word in new if "flops" in word or "pretrained" in word]
    changes = {"encoders encoder base_model": GONE, "encoders encoder pretrained": "models/released"}
    # The files of a released model define how it represents texts.
    released = words((ENCODER, Representation, Hub), changes=changes)
    assert released == ["--pretrained=models/released"]


def test_only_sizes_of_vectors_are_an_option_of_training():
    assert words(nested_sizes) == words(nested_sizes, changes={"encoders encoder matryoshka": True}) == []
    changes = {"encoders encoder matryoshka": [4, 8]}
    assert words(nested_sizes, changes=changes) == ["--matryoshka=4", "--matryoshka=8"]


def test_functions_give_options_by_name():
    assert words(lambda experiment, wildcards: {"title": wildcards.split, "k": None, "a": [1, 2]}) == [
        *("--a=1", "--a=2", "--title=test")
    ]


def test_a_place_that_is_not_there_is_a_mistake():
    with pytest.raises(KeyError):
        words(("encoders.{encoder}.margins", "a"))


def test_words_are_quoted_one_by_one():
    given = options(adjusted(built(), {"title": "Tiny & whole", "seed": 1}), "title", "seed")(NAMES)
    assert snakemake_format("{words:q}", words=given) == "--seed=1 '--title=Tiny & whole'"


# Values that look like options, several words, or nothing. Not "--", which argparse of Python 3.11 loses.
AWKWARD = ["-x", "--log", "-1", "-1e-05", "a b", "a=b", "'", "", "%s", "query: ", "None", "True", "@f", "\n"]
AWKWARD += [-1.0e-5, 1.0e-5, -0.5, 1e22, 3, 0, -3, 10**17, -(10**17), True, False]


@pytest.mark.parametrize("command", sorted({command_of(name) for name in RULES}))
def test_a_stage_takes_every_value_that_a_config_admits(command):
    section = options_of(command)
    parser = parser_of(section)
    for action in parser._actions:
        action.required = False
    for name, field in section.model_fields.items():
        form, hint = form_of(field), hint_of(field)
        values = [(one,) for one in AWKWARD] if form.many else AWKWARD
        admitted = [one for one in values if not mistakes_in(one, hint)]
        for written in [*admitted, *([sum(admitted, ())] if form.many else [])]:
            if mistakes_in(written, hint):
                continue
            # As YAML's `no` is a language.
            value = TypeAdapter(hint, config=Section.model_config).validate_python(written)
            parsed = getattr(parser.parse_args(words_of({name: value})), name)
            read = tuple(value_of(word, form) for word in parsed or ()) if form.many else value_of(parsed, form)
            assert read == value, name


def test_only_stages_have_code():
    assert "cort/fuse.py" in code_of("fuse")
    assert "cort/retrieval/ivfpq.py" in code_of("index ivfpq")
    assert "cort/retrieval/ivfpq.py" not in code_of("index onng")
    with pytest.raises(ValueError, match=r"found code_of\('encoding'\), expected a stage"):
        code_of("encoding")


def audited(split, **splits):
    config = {"dataset": "d", "collection": {"passages": "p"}, "splits": splits}
    config["encoders"] = {"e": {"pretrained": "e"}}
    config["systems"] = {"s": {"retrieve": "e", "hnsw": {"ef": "auto"}}}
    return Experiment.of(config).systems["s"].audit_on(split)


def test_one_function_chooses_the_audit():
    files = {"queries": "q", "qrels": "r"}
    splits = {"train": files, "test": files, "dev": files, "eval": {"queries": "q"}}
    assert audited("dev", validation=files, **splits) == "results/d/audit/validation/e.hnsw.json"
    assert audited("dev", **splits) == "results/d/audit/dev/e.hnsw.json"
    # Without judgements, or outside of any split.
    assert audited("eval", **splits) == audited("", **splits) == "results/d/audit/test/e.hnsw.json"
