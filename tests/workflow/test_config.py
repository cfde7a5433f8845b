"""The experiment files, the schema and docs/reference.md say the same, and all examples are right."""

import copy
import json
import re
from collections import defaultdict
from collections.abc import Hashable
from typing import Annotated, Literal, get_args, get_origin

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import Field

from cort.config.fields import NAME, Name
from cort.config.load import ConfigError, complete, load, read
from cort.config.root import Root
from cort.retrieval.indexes import INDEXES
from cort.runtime.sections import (
    FIRST_FITTING,
    INCREASING,
    MEASURE,
    SPEED,
    UNIQUE,
    Maybe,
    Names,
    Section,
    Several,
    Text,
    hint_of,
    is_section,
    keys_of,
)
from scripts.config_reference import render, schema_of
from tests.support import coverage
from tests.support.common import ROOT
from tests.support.configs import GONE, changed, mistakes_in, reversed_keys
from tests.support.forking import run_module

README = ROOT / "config" / "README.md"
REFERENCE = ROOT / "docs" / "reference.md"
EDITOR = ROOT / "config" / "experiment.schema.json"
EXPERIMENTS = sorted((ROOT / "config").glob("*.yaml"))
ABLATIONS = sorted((ROOT / "config" / "ablations").glob("*.yaml"))
MISTAKE = re.compile(r"x: .*found .+; .+")
MATRIX = sorted((ROOT / "config" / "matrix").glob("*.yaml"))
BEIR = sorted((ROOT / "config" / "beir").glob("*.yaml"))

# Sections of named entries.
NAMED = ("splits", "lexical", "expanders", "weighers", "base_models", "encoders", "rerankers", "systems")
# Optional scalars whose absence says something: one of a choice, or a feature that is off.
WITHOUT_DEFAULT = {
    *("extends", "endpoint.model", "encoders.*.endpoint", "rerankers.*.endpoint", "systems.*.label"),
    *(f"collection.{key}" for key in ("passages", "documents", "folder", "ids", "irds", "hf")),
    *("collection.fields.id", "collection.fields.title"),
    *(
        f"splits.*.{key}"
        for key in (
            "irds",
            "hf",
            "queries",
            "qrels",
            "without",
            "sample",
            "hold_out",
            "exclude",
            "measures",
            "labels",
            "group",
        )
    ),
    "endpoint.requests_per_minute",
    *(f"base_models.*.{key}" for key in ("pretrained", "revision")),
    *(f"{models}.*.{key}" for models in ("encoders", "rerankers") for key in ("base_model", "pretrained", "revision")),
    *(f"encoders.*.{kind}_{key}" for kind in ("query", "passage") for key in ("prompt", "prompt_name")),
    "encoders.*.released",
    "submissions.*.run_id",
    *("encoders.*.triples.file", "rerankers.*.pairs.file"),
    *("lexical.*.expand", "lexical.*.weigh", "expanders.*.beams", "weighers.*.revision"),
    *(f"expanders.*.{key}" for key in ("file", "pretrained", "revision")),
    "encoders.*.teacher",
    *("encoders.*.start", "encoders.*.matryoshka"),
    *("systems.*.dimension", "systems.*.storage"),
    *(f"systems.*.{key}" for key in ("retrieve", "interleave", "rerank", "reranker", "depth", "weight", "run")),
    *(f"systems.*.{key}" for key in ("tune", "fuse.tune", "fuse.weights")),
    "lexical.*.tune.folds",
    *(f"systems.*.{kind}.recall" for kind in ("onng", "hnsw", "ivfpq")),
}
MARKS = {MEASURE: "measures", UNIQUE: "unique", INCREASING: "increasing"}
# Keys by what their values are: names of a section, measures, each once, in order.
RULES = {
    "splits": "splits.*.without",
    "measures": """splits.*.measures lexical.*.tune.measure encoders.*.training.best_model_metric
        rerankers.*.training.best_model_metric systems.*.fuse.tune systems.*.fuse.tune.measure
        systems.*.tune systems.*.tune.measure evaluation.measures evaluation.depth_measures""",
    "unique": """splits.*.measures encoders.*.triples.system rerankers.*.pairs.system systems.*.interleave
        systems.*.fuse.systems evaluation.measures evaluation.contrasts evaluation.depth_measures
        latency.systems deploy.*.targets""",
    "expanders": "lexical.*.expand",
    "weighers": "lexical.*.weigh",
    "rerankers": "encoders.*.teacher systems.*.reranker",
    "encoders": "encoders.*.start",
    "systems": """encoders.*.triples.system rerankers.*.pairs.system systems.*.interleave systems.*.fuse.systems
        systems.*.rerank evaluation.baseline evaluation.contrasts
        evaluation.consistency.reference evaluation.consistency.systems submissions.*.system""",
    "increasing": """encoders.*.matryoshka evaluation.depths evaluation.consistency.depths audit.epsilons audit.efs
        audit.probes audit.depths""",
}


def keys(schema, path=""):
    """Yield (path, schema, whether required) of every key; `*` stands for a name."""
    for inner in schema.get("anyOf", ()):
        yield from keys(inner, path)
    for inner in schema.get("patternProperties", {}).values():
        yield from keys(inner, f"{path}.*")
    for key, part in schema.get("properties", {}).items():
        place = f"{path}.{key}".lstrip(".")
        yield place, part, key in schema.get("required", [])
        yield from keys(part, place)


KEYS = {path: (part, required) for path, part, required in keys(schema_of(Root))}


@pytest.mark.parametrize("path", [*EXPERIMENTS, *ABLATIONS, *MATRIX[1:], *BEIR], ids=lambda path: path.stem)
def test_an_experiment_is_valid_and_the_order_of_its_keys_means_nothing(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = complete(written := read(path), path.name).config
    assert path not in EXPERIMENTS or config["dataset"] == path.stem
    # Text, which has an order. The workflow sees nothing else of a config.
    assert json.dumps(complete(reversed_keys(written), "x").config) == json.dumps(config)


def test_the_order_of_entries_stays():
    systems = {name: {"retrieve": "bm25"} for name in ("c", "bm25", "a")}
    config = {"systems": systems, "splits": {"z": {"queries": "q"}, "y": {"queries": "q"}}}
    config |= {"dataset": "x", "collection": {"passages": "p"}}
    found = complete(config, "x").config
    assert ([*found["systems"]], [*found["splits"]]) == (["c", "bm25", "a"], ["z", "y"])
    assert list(found)[:2] == ["dataset", "title"]


def test_every_key_is_described_in_one_sentence():
    assert [path for path, (part, _) in KEYS.items() if not part.get("description", "").strip().endswith(".")] == []


def test_every_optional_value_has_a_default():
    missing = {
        path
        for path, (part, required) in KEYS.items()
        if part.get("type") != "object" and not required and "default" not in part
    }
    assert missing == WITHOUT_DEFAULT


def declared(hint, path=""):
    """Yield the path of every key and each thing that is said about its type; `*` stands for a name."""
    if is_section(hint):
        for name, key in keys_of(hint).items():
            yield from declared(hint_of(key), f"{path}.{name}".lstrip("."))
    elif get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        yield from ((path, note) for note in notes)
        yield from declared(inner, path)
    else:
        for part in get_args(hint):
            yield from declared(part, f"{path}.*" if get_origin(hint) is dict else path)


def test_keys_declare_whose_names_they_take_and_what_lists_are_like():
    found = defaultdict(set)
    for path, note in declared(Root):
        if isinstance(note, Names):
            found[note.section].add(path)
        elif isinstance(note, Hashable) and note in MARKS:
            found[MARKS[note]].add(path)
    assert found == {rule: set(paths.split()) for rule, paths in RULES.items()}


def subschemas(schema):
    """Yield every part of a schema that is a mapping."""
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from subschemas(part)
    if isinstance(schema, dict):
        yield schema


def test_every_number_has_bounds():
    schema, least = schema_of(Root), 50
    numbers = [part for part in subschemas(schema) if part.get("type") in ("integer", "number")]
    assert len(numbers) > least
    assert [
        part
        for part in numbers
        if not ({"minimum", "exclusiveMinimum"} & part.keys() and {"maximum", "exclusiveMaximum"} & part.keys())
    ] == []


def test_no_mapping_takes_unknown_keys():
    # What a transformers configuration may hold is checked by the stage that builds it.
    free = [path for path, (part, _) in KEYS.items() if part.get("type") == "object" and part["additionalProperties"]]
    assert free == ["base_models.*.architecture"]


def places_of(value, path=()):
    """Yield the path to every value in a config."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places_of(inner, (*path, key))


def test_a_value_of_a_wrong_shape_is_no_traceback():
    seen = set()
    # Small ones first: each kind of place is tried in one of them, and large ones take longer to check.
    for file in sorted([*EXPERIMENTS, *ABLATIONS, *MATRIX], key=lambda path: path.stat().st_size):
        written = read(file)
        for path in places_of(written):
            names = (isinstance(key, int) or (at == 1 and path[0] in NAMED) for at, key in enumerate(path))
            kind = tuple("*" if is_name else key for is_name, key in zip(names, path, strict=True))
            for wrong in (["x"], {"x": ["y"]}, 5, None) if kind not in seen else ():
                config = copy.deepcopy(written)
                place = config
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = wrong
                try:
                    complete(config, "x")
                except ConfigError as error:
                    assert [line for line in str(error).split("\n") if not MISTAKE.fullmatch(line)] == []
            seen.add(kind)
    assert len(seen) > 200


@pytest.mark.parametrize("path", ABLATIONS, ids=lambda path: path.name)
def test_ablation_is_valid_shares_what_msmarco_made_and_has_a_published_number(path):
    written, whole = read(path), load(ROOT / "config" / "msmarco.yaml").config
    config = complete(written, path.name).config
    assert written["extends"] == "config/msmarco.yaml"
    shared = ("dataset", "seed", "collection", "lexical", "base_models")
    assert [config[key] for key in shared] == [whole[key] for key in shared]
    # A model of the same name is the same model, so that none is trained twice or used for another.
    for section in ("encoders", "rerankers"):
        assert {name: whole[section].get(name, model) for name, model in config[section].items()} == config[section]
    computed = coverage.Measured(load(path))
    assert any(computed.computes(number) for number in coverage.published())


def test_the_experiments_of_the_matrix_have_the_same_systems_tuned_in_the_same_way():
    base, others = read(MATRIX[0]), {path.stem: read(path) for path in MATRIX[1:]}
    assert MATRIX[0].stem == "base"
    for name, written in others.items():
        assert (written["extends"], written["dataset"]) == ("config/matrix/base.yaml", f"matrix-{name}")
        assert not written.keys() & base.keys()
        systems = complete(written, name).config["systems"]
        tuned = (systems["fused"]["fuse"]["tune"], systems["rrf-cross"]["tune"])
        assert tuned == ({"measure": "nDCG@10", "folds": 5},) * 2


def readme_blocks():
    """Yield each YAML block; one without `dataset` changes the first."""
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", README.read_text("utf-8"), re.DOTALL)]
    return [block if "dataset" in block else blocks[0] | block for block in blocks]


@pytest.mark.parametrize("block", readme_blocks(), ids=lambda block: ",".join(block["systems"]))
def test_readme_example_is_valid(block):
    assert complete(block, "README").systems


def test_readme_has_an_example_of_every_kind_of_system():
    from cort.systems.registry import KEYS

    systems = [system for block in readme_blocks() for system in block["systems"].values()]
    assert {key for system in systems for key in system} >= {*KEYS, *INDEXES, "depth"}


def run_script(*arguments):
    return run_module(ROOT, "scripts.config_reference", *arguments)


def test_reference_is_in_step_with_the_schema():
    assert run_script("--check") == (0, "")


class Common(Section):
    """What all have."""

    size: int = Field(5, ge=1, le=9)
    """Size."""
    hidden: Annotated[bool, SPEED] = False
    """Hidden."""


class Near(Common):
    """A near one."""

    kind: Literal["near"] = "near"
    """Kind."""
    steps: Maybe[int] = Field(None, ge=2, le=4)
    """Steps."""


class Far(Common):
    """A far one."""

    kind: Literal["far"]
    source: Several[Text] = Field(min_length=1)
    """Source."""


class Entries(Section):
    """Entries."""

    things: dict[Name, Annotated[Far | Near, FIRST_FITTING]]
    """Things by name."""


def test_variants_of_an_entry_are_one_mapping_that_says_which_has_what():
    things = schema_of(Entries)["properties"]["things"]
    assert {key: things[key] for key in things if key != "patternProperties"} == {
        "type": "object",
        "additionalProperties": False,
        "description": "Things by name.",
    }
    assert things["patternProperties"] == {
        NAME: {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5, "description": "Size."},
                "hidden": {"type": "boolean", "default": False, "affects_results": False, "description": "Hidden."},
                "kind": {"enum": ["far", "near"], "default": "near", "description": "Kind."},
                "source": {
                    **{"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "\\S"}},
                    "description": "Source.",
                },
                "steps": {"type": "integer", "minimum": 2, "maximum": 4, "description": "Steps."},
            },
            "required": [],
            "only": {"steps": "Not with: far one"},
        }
    }


def test_the_reference_lists_keys_of_variants_below_their_names():
    assert render(schema_of(Entries)).partition("## things.<name>")[2].splitlines()[2:] == [
        "Things by name. Required.",
        "",
        "- `size` (integer 1..9; `5`): Size.",
        "- `hidden` † (boolean; `false`): Hidden.",
        "- `kind` (`far`, `near`; `near`): Kind.",
        "- `source` (list of strings): Source.",
        "- Not with: far one",
        "  - `steps` (integer 2..4): Steps.",
    ]


def test_reference_names_every_key():
    """A key has a line in its section, or in the section of a mapping whose keys it shares."""
    parts = re.split(r"^## (\w+).*$", REFERENCE.read_text("utf-8"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, text in sections.items():
        others = re.findall(r"^ *- (?:The keys|`.*`) of `(\w+)\.", text, re.MULTILINE)
        sections[name] += "".join(sections[other] for other in others if other != name)
    # Sections have a heading; `*` stands for names.
    own = [path for path in KEYS if path not in sections and not path.endswith("*")]
    places = [(path.partition(".")[0] if "." in path else "Top", path.rpartition(".")[2]) for path in own]
    assert [(section, key) for section, key in places if f"`{key}`" not in sections[section]] == []


def test_old_reference_is_refused_and_mended(tmp_path):
    copy, schema = tmp_path / "reference.md", tmp_path / EDITOR.name
    copy.write_text(REFERENCE.read_text("utf-8").replace("; `42`)", "; `43`)"), "utf-8")
    files = ("--reference", copy, "--schema", schema)
    fix = "run `python -m scripts.config_reference`"
    line = f"{copy}: found other keys than in cort/config, expected the same; {fix}\n"
    assert run_script("--check", *files) == (1, line)
    assert run_script(*files) == (0, "")
    assert copy.read_text("utf-8") == REFERENCE.read_text("utf-8")
    assert schema.read_text("utf-8") == EDITOR.read_text("utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"splits a+b": {"queries": "q.tsv"}},
        {"systems a": {"retrieve": "encoder", "dimension": 0}},
        {"systems a": {"retrive": "encoder"}},
        {"systems a": {"interleave": ["bm25"]}},
        {"systems a": {"fuse": {"systems": ["bm25", "cort"], "method": "rff"}}},
        {"encoders encoder query_length": 2},
        {"encoders encoder recipe": None},
        {"evaluation": {"depths": [0]}},
        {"endpoint": {"max_requests": -5}},
        {"title": " "},
        {"dataset": GONE},
    ],
    ids=lambda changes: str(changes).partition("<")[0],
)
def test_editors_complain_of_what_a_config_refuses(changes):
    config = changed(changes)
    assert mistakes_in(config)
    assert list(Draft202012Validator(json.loads(EDITOR.read_text("utf-8"))).iter_errors(config))


@pytest.mark.parametrize("path", [*EXPERIMENTS, *ABLATIONS, *MATRIX[1:], *BEIR], ids=lambda path: path.stem)
def test_editors_find_the_schema_and_nothing_to_complain_of(path):
    first = path.read_text("utf-8").partition("\n")[0]
    pointer = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert (path.parent / pointer[1]).resolve() == EDITOR
    schema = json.loads(EDITOR.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(read(path))] == []
