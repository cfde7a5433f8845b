import copy
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake.iocontainers import Wildcards

from cort.config.comparisons import labelled_twice, pairs_of_splits, splits_apart
from cort.config.entries import any_of
from cort.config.experiment import Experiment
from cort.config.learners import Learner
from cort.config.load import ConfigError, complete, load
from cort.config.paths import MEASURES
from cort.config.root import affecting_results
from cort.reporting.results import files_of
from cort.systems.base import System
from tests.support.common import COMMIT
from tests.support.configs import FILES, GONE, adjusted, built, changed, complaints, completed, mistakes_in
from workflow import inputs, params
from workflow.inputs import excluded_queries, explorers, files_per_run, judgements, reported

LINEAR = {"systems": ["bm25", "cort"], "method": "linear"}
TRAINING_FILES = {kind: f"data/{kind}.train.tsv" for kind in ("queries", "qrels")}
# A re-ranker that can retrieve.
LATE = {
    "rerankers late": {"base_model": "small", "kind": "late_interaction", "depth": 20, "max_length": 60},
    "rerankers late pairs": {"first_rank": 1, "last_rank": 20, "minimum_results": 5},
}
MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case["mistake"])
def test_mistake_is_reported_in_one_line_and_no_other(case):
    systems = ", ".join(changed({})["systems"])
    changes = {**case.get("set", {}), **dict.fromkeys(case.get("remove", ()), GONE)}
    assert complaints(changes) == [case["line"].replace("{SYSTEMS}", systems)]
    assert re.fullmatch(r"[^:]+: found .+, expected .+; .+", case["line"])


def places_of(lines):
    return [line.split(": found ")[0] for line in lines]


@pytest.mark.parametrize(
    ("place", "entry", "others"),
    [
        ("lexical bm25", {"tune": {}}, {"k1": 0.9, "b": 0.4}),
        ("expanders own", {"file": "p.txt"}, {"pretrained": "model", "beams": 5, "query_length": 9}),
        ("expanders own", {"pretrained": "model", "beams": 5}, {"top_k": 9}),
        ("encoders own", {"base_model": "small"}, {"revision": COMMIT, "query_prompt": "", "queries": "none"}),
        (
            "encoders own",
            {"base_model": "small", "kind": "sparse"},
            {
                "dimension": 16,
                "pooling": "cls",
                "projection": True,
                "released": "a.ckpt",
                "storage": "fp32",
                "hnsw": {},
            },
        ),
        (
            "encoders own",
            {"base_model": "small", "released": "a.ckpt"},
            {"training": {}, "triples": {}, "recipe": "small", "margin": 0.1, "teacher": "cross", "query_flops": 0.1},
        ),
        (
            "encoders own",
            {"pretrained": "model"},
            {"base_model": "small", "released": "a.ckpt", "projection": True, "query_segment": 0, "checkpoint": "last"},
        ),
        ("encoders own", {"pretrained": "model", "kind": "sparse"}, {"queries": "none", "query_prompt_name": "query"}),
        ("encoders own", {"pretrained": "model", "training": {}}, {"passage_segment": 0, "passage_flops": 0.1}),
        ("rerankers own", {"base_model": "small"}, {"ivfpq": {}, "similarity": "dot", "filters": 8, "dimension": 8}),
        ("rerankers own", {"base_model": "small", "kind": "knrm"}, {"dimension": 64}),
        ("rerankers own", {"base_model": "small", "kind": "late_interaction"}, {"head": "classification"}),
        ("rerankers own", {"base_model": "small", "kind": "conv_knrm"}, {"revision": COMMIT}),
        ("rerankers own", {"pretrained": "model"}, {"head": "linear", "dimension": 64, "pairs": {}, "ivfpq": {}}),
        (
            "rerankers own",
            {"pretrained": "model", "kind": "late_interaction"},
            {"term_weights": True, "loss": "softmax"},
        ),
        ("encoders encoder triples", {"last_rank": 20}, {"limit": 0, "sample": 5, "shuffle": True}),
        ("rerankers cross pairs", {"last_rank": 20}, {"unknown_ids": "drop"}),
        ("collection", {"irds": "antique"}, {"fields": {"id": "sku"}, "ids": "stem"}),
        ("collection", {"passages": "p.tsv"}, {"ids": "stem"}),
        ("splits validation", {"hold_out": 5}, {"qrels": "r.tsv", "sample": 3, "without": "test", "labels": "LLM"}),
        ("splits open", {"queries": "q.tsv"}, {"labels": "LLM"}),
        ("base_models own", {"pretrained": "model"}, {"architecture": {"model_type": "bert"}, "embeddings": "lsa"}),
        ("base_models own", {"architecture": {"model_type": "bert"}}, {"revision": COMMIT}),
        ("systems new fuse", {"systems": ["bm25", "cort"]}, {"k": 60, "tune": "RR@10"}),
        ("systems new fuse", {"systems": ["bm25", "cort"], "method": "rrf"}, {"weights": [0.5, 0.5]}),
        ("submissions own", {"system": "bm25", "split": "test", "form": "msmarco"}, {"run_id": "a"}),
    ],
)
def test_a_key_that_others_alone_have_is_one_mistake_even_if_it_is_the_default(place, entry, others):
    completed({place: entry, "training_depth": 100})
    dotted = place.replace(" ", ".")
    assert places_of(complaints({place: entry | others})) == sorted(f"{dotted}.{key}" for key in others)


@pytest.mark.parametrize(
    ("place", "entry", "origins"),
    [
        ("weighers own", {"scale": 50}, "pretrained"),
        ("encoders own", {"released": "a.ckpt"}, "pretrained or endpoint or base_model of a dense"),
        ("encoders own", {"kind": "sparse"}, "pretrained or base_model of a sparse"),
        ("rerankers own", {}, "pretrained or endpoint or base_model of a cross_encoder"),
        ("rerankers own", {"pretrained": "m", "training": {}, "kind": "conv_knrm"}, "base_model of a conv_knrm"),
    ],
)
def test_an_entry_needs_an_origin_that_its_kind_can_have(place, entry, origins):
    line = f"{place.replace(' ', '.')}: found no key {origins}, expected it to be set; add it"
    assert complaints({place: entry}) == [line]


def test_only_keys_of_a_variant_get_defaults_or_values_of_a_recipe():
    late = {"kind": "late_interaction"}
    changes = {
        "encoders sparse": {"base_model": "small", "kind": "sparse", "recipe": "small"},
        "encoders further": {"pretrained": "model", "training": {}, "recipe": "small"},
        "rerankers late": {"pretrained": "model", **late},
        "rerankers given": {"pretrained": "model", "similarity": "l2", **late},
        "rerankers new": {"base_model": "small", "recipe": "small", **late},
    }
    config = completed(changes)
    sparse, further = (config["encoders"][name] for name in ("sparse", "further"))
    assert {"queries", "query_flops", "passage_flops", "flops_warmup", "passage_length", "loss"} <= sparse.keys()
    assert sparse.keys().isdisjoint({"pooling", "similarity", "dimension", "projection", "storage", "ivfpq"})
    assert {"loss", "storage", "ivfpq"} <= further.keys()
    assert further.keys().isdisjoint({"pooling", "similarity", "dimension", "projection", "query_length", "queries"})
    late, given, new = (config["rerankers"][name] for name in ("late", "given", "new"))
    assert given == late | {"base_model": "reranker.given", "similarity": "l2"}
    assert late.keys() == {"pretrained", "base_model", "kind", "precision", "depth", "ivfpq"}
    assert {"ivfpq", "similarity", "dimension", "term_weights", "fill_queries", "skip_punctuation"} <= new.keys()
    assert new.keys().isdisjoint({"head", "filters"})


def test_all_mistakes_of_the_shape_and_then_all_others_are_reported_at_once():
    shape = {"colour": "red", "seed": -1, "encoders encoder polling": "mean", "encoders encoder margin": "wide"}
    others = {"splits validation": GONE, "systems bm25": {"retrieve": "nobody"}, "evaluation baseline": "c"}
    lines = complaints(shape | others)
    assert places_of(lines) == ["encoders.encoder", "encoders.encoder.margin", "seed", "top level"]
    models = ["splits", "splits"]
    assert places_of(complaints(others)) == ["evaluation.baseline", *models, "systems.bm25.retrieve"]


def test_two_unknown_keys_are_two_lines():
    lines = complaints({"lexical bm25 k1_": 1.0, "lexical bm25 tun": {}})
    assert [line.split("; ")[1] for line in lines] == ["did you mean k1?", "did you mean tune?"]


def test_a_search_keeps_enough_for_all_that_is_learnt_from_it():
    """A model learns from `mixed`, which is made of runs of `narrow` with training_depth results."""
    narrow = {"retrieve": "encoder", "hnsw": {"ef": 50}}
    changes = {"systems narrow": narrow, "systems mixed": {"interleave": ["bm25", "narrow"]}, "training_depth": 60}
    completed(changes)
    changes["rerankers cross pairs system"] = "mixed"
    assert places_of(complaints(changes)) == ["systems.narrow.hnsw.ef"]
    changes["systems narrow"] = {"retrieve": "encoder", "ivfpq": {"candidates": 50}}
    changes["encoders encoder ivfpq"] = {"bytes": 4}
    assert places_of(complaints(changes)) == ["systems.narrow.ivfpq.candidates"]


def test_a_typo_is_one_mistake():
    for entry in ({"retrieve": "ee", "ivfpq": {}}, {"retrieve": "bm26", "bm25": {"k1": 1, "b": 0.5}}):
        assert places_of(complaints({"systems own": entry})) == ["systems.own.retrieve"]


def test_keys_that_are_no_text_are_named():
    config = changed({})
    config["splits"][2019] = config["splits"].pop("test")
    assert mistakes_in(config) == ["splits: found the key 2019, no string, expected a name; put it in quotes"]


def test_models_need_training_splits():
    lines = complaints({"splits validation": GONE, "splits train": GONE, "lexical bm25": GONE})
    assert lines == [
        f"splits: found no split {split}, expected it for training {model}; add it"
        for split in ("train", "validation")
        for model in ("encoders.encoder", "rerankers.cross")
    ]


def test_norwegian_is_no_truth_value():
    config = {"dataset": "x", "collection": {"passages": "p.tsv"}, "splits": {"test": FILES}}
    config |= {"systems": {"bm25": {"retrieve": "bm25"}}, "lexical": {"bm25": yaml.safe_load("language: no")}}
    assert complete(config, "x.yaml").lexical["bm25"].language == "no"


def test_tuning_needs_a_split_to_tune_on():
    config = {"dataset": "x", "collection": {"passages": "p.tsv"}, "splits": {"test": FILES}}
    config["systems"] = {"bm25": {"retrieve": "bm25"}, "other": {"retrieve": "bm25", "bm25": {"k1": 1.0, "b": 0.5}}}
    complete(config, "x.yaml")
    (line,) = mistakes_in(config | {"lexical": {"bm25": {"tune": {}}}})
    assert line.startswith("lexical.bm25.tune: found no split train, expected training queries")
    config["systems"]["both"] = {"fuse": {**LINEAR, "systems": ["bm25", "other"], "tune": "RR@10"}}
    fix = "expected validation queries to tune on; add the split"
    assert mistakes_in(config) == [f"systems.both.fuse.tune: found no split validation, {fix}"]
    # By folds, the evaluated split is enough, and one without judgements is not.
    folds = {"measure": "RR@10", "folds": 5}
    config["systems"]["both"]["fuse"]["tune"] = folds
    complete(config, "x.yaml")
    config["splits"]["test"] = {"queries": "q.tsv"}
    config["lexical"] = {"own": {"tune": folds}}
    fix = "expected one to cross-validate on; add qrels"
    places = ("lexical.own.tune", "systems.both.fuse.tune")
    assert mistakes_in(config) == [f"{place}: found no split with judgements, {fix}" for place in places]


FOLDS = {"measure": "RR@10", "folds": 5}
FOLDED = {"systems folded": {"fuse": {"systems": ["bm25", "published"], "method": "linear", "tune": FOLDS}}}


def test_judgements_reach_nothing_else_by_folds():
    # Published runs are as good as others, on the splits that they have.
    completed(FOLDED)
    nested = {"systems outer": {"rerank": "middle", "reranker": "cross", "tune": FOLDS}}
    nested |= {"systems middle": {"interleave": ["folded", "cort"]}}
    twice = "also cross-validated, expected one of them, or labels leak; give it fixed values"
    assert complaints(FOLDED | nested) == [f"systems.outer: found 'folded', {twice}"]
    # What is not tuned may be made of it.
    completed(FOLDED | nested | {"systems outer tune": GONE})
    bm25 = {"lexical own": {"tune": FOLDS}, "systems own": {"retrieve": "own"}}
    inside = bm25 | {"systems folded": {"fuse": {"systems": ["own", "cort"], "method": "linear", "tune": FOLDS}}}
    assert complaints(inside) == [f"systems.folded: found 'own', {twice}"]
    taught = (
        "cross-validated, on whose runs others are trained or tuned, expected evaluated queries to teach nothing else"
    )
    line = f"systems.own: found 'own' {taught}; give it fixed values"
    assert complaints(bm25 | {"encoders encoder triples system": "own"}) == [line]
    learns = {"systems learns": {"fuse": {"systems": ["own", "cort"], "method": "linear", "tune": "RR@10"}}}
    assert complaints(bm25 | learns) == [line]
    # Its own k1 and b are not those of the index.
    completed(bm25 | learns | {"systems own bm25": {"k1": 1, "b": 0.5}})


def test_a_split_takes_what_is_tuned_on_itself_or_on_the_first_with_judgements():
    changes = {"splits dev": FILES, "splits open": {"queries": "q.tsv"}, "lexical own": {"tune": FOLDS}}
    changes |= {
        "systems own": {"retrieve": "own"},
        "systems own-cross": {"rerank": "bm25", "reranker": "cross", "tune": FOLDS},
    }
    changes |= {"systems folded": {"fuse": {"systems": ["bm25", "cort"], "method": "linear", "tune": FOLDS}}}
    experiment = built(changes)
    names = {
        "folded": "weights/{}/folded.json",
        "own": "lexical/own/parameters/{}.json",
        "own-cross": "weights/{}/own-cross.json",
    }
    for name, path in names.items():
        system = experiment.systems[name]
        for split, source in {"test": "test", "dev": "dev", "open": "test", "": "test"}.items():
            file = f"results/tiny/{path.format(source)}"
            given = system.options(split)
            assert system.tuned_files(split) == [file]
            assert given["parameters" if name == "own" else "tuned"] == file
            # Ids of another split must not meet those of the folds.
            assert ("folded" in given) == (split == source)
        assert file in list(system.files())
        assert "tuned for RR@10 by 5-fold cross-validation on its own queries" in system.describe()
    assert experiment.remarks() == [
        f"{name} is tuned for RR@10 by 5-fold cross-validation on its own queries."
        for name in ("own", "own-cross", "folded")
    ]
    tuned = {"folded on test", "folded on dev", "own-cross on test", "own-cross on dev"}
    assert files_of(experiment)["tuned"].keys() == tuned
    # Neither the depth of validation runs nor what splits must not share changes.
    assert params.depth(experiment, Wildcards(fromdict={"split": "validation"})) == {"depth": 30}
    alone = built(NOTHING_LEARNT | {"lexical bm25": {"tune": FOLDS}})
    assert splits_apart(alone) == []


def test_pydocs_makes_its_own_splits():
    splits = {"train": {}, "validation": {"hold_out": 3}, "test": {}, "dev": {}}
    lines = complaints({"collection": {"pydocs": {}}, "splits": splits})
    assert lines == [
        "splits.dev: found the split dev, expected train, validation, test, as pydocs makes them; remove it",
        "splits.validation: found hold_out, expected none, as pydocs makes the split; remove it",
    ]


def circle_of(changes):
    """Return the circle of the one complaint."""
    (line,) = complaints(changes)
    fix = "break it, or copy a re-ranker that several of them share under another name"
    expected = f"expected no system to wait for itself; {fix}"
    match = re.fullmatch(rf"systems\.(\S+): found the circle (.+), {expected}", line)
    names = match[2].split(" -> ")
    assert match[1] == names[0] == names[-1]
    return set(names)


BOTH = {"systems a": {"interleave": ["b", "bm25"]}}
OTHER = {"rerankers other": {"base_model": "small", "pairs": {"last_rank": 20}}}
MIXED = {"systems mixed": {"interleave": ["cort+bm25-cross", "bm25"]}}


@pytest.mark.parametrize(
    ("changes", "circle"),
    [
        ({"systems a": {"interleave": ["a", "bm25"]}}, {"a"}),
        (BOTH | {"systems b": {"interleave": ["bm25", "a"]}}, {"a", "b"}),
        (BOTH | OTHER | {"systems b": {"rerank": "a", "reranker": "other"}}, {"a", "b"}),
        # Through what a model learns from.
        ({"encoders encoder triples system": "cort"}, {"cort"}),
        ({"encoders encoder triples system": "cort+bm25"}, {"cort+bm25", "cort"}),
        ({"rerankers cross pairs system": "cort+bm25-cross"}, {"cort+bm25-cross"}),
        # `twice` waits for the scores of `cross`, which wait for its candidates, made by `cross`.
        (MIXED | {"systems twice": {"rerank": "mixed", "reranker": "cross"}}, {"mixed", "cort+bm25-cross"}),
        # A system that only waits for a circle is not blamed.
        (BOTH | {"systems b": {"interleave": ["b", "bm25"]}}, {"b"}),
    ],
)
def test_systems_that_wait_for_themselves_are_refused(changes, circle):
    assert circle_of(changes) == circle


ASKED = [("bm25", 40), ("bm25", 2), ("cort+bm25", 30), ("cort", 5)]


def test_no_circle_where_an_encoder_learns_from_reranked_bm25():
    teacher = {"rerank": "bm25", "reranker": "cross"}
    experiment = built({"systems teacher": teacher, "encoders encoder triples system": "teacher"})
    assert experiment.negative_sources == ["teacher", "bm25"]
    # On training queries the candidates of `cort+bm25-cross` would wait for the encoder.
    assert experiment.reranked_by("cross", "train") == {"bm25": 20}
    assert experiment.reranked_by("cross", "test") == {"cort+bm25": 10, "bm25": 20}


def test_candidates_are_scored_down_to_the_greatest_depth_that_is_asked_of_each_run():
    systems = {f"{part}-{depth}": {"rerank": part, "reranker": "cross", "depth": depth} for part, depth in ASKED}
    experiment = built({f"systems {name}": entry for name, entry in systems.items()})
    assert experiment.reranked_by("cross", "test") == {"cort+bm25": 30, "bm25": 40, "cort": 5}
    assert experiment.curve_depths("bm25-2") == [1, 2]
    # The re-ranker's own depth is that of systems that set none, up to the depth of runs.
    default = built({"systems new": {"rerank": "bm25", "reranker": "cross"}, "rerankers cross depth": 1000})
    assert default.systems["new"].candidates() == default.depth == 50
    assert default.reranked_by("cross", "test") == {"cort+bm25": 10, "bm25": 50}


def test_defaults_are_filled_in_and_the_original_is_left_alone():
    original = changed({"systems cort+bm25-cross depth": GONE, "depth": 15})
    before = yaml.safe_dump(original)
    config = complete(original, "tiny.yaml").config
    assert yaml.safe_dump(original) == before
    assert config["seed"] == 42
    assert config["splits"]["test"]["relevance_level"] == 1
    assert config["encoders"]["encoder"]["triples"]["system"] == "bm25"
    assert config["encoders"]["encoder"]["training"]["weight_decay"] == 0.1
    assert config["systems"]["cort+bm25-cross"]["depth"] == min(15, 20)
    assert complete(config, "again").config == config


def test_mappings_of_one_anchor_are_filled_in_apart(tmp_path):
    written = changed({f"{model} recipe": "small" for model in ("encoders encoder", "rerankers cross")})
    shared = {"epochs": 2}
    for section, name in (("encoders", "encoder"), ("rerankers", "cross")):
        written[section][name]["training"] = shared
    path = tmp_path / "anchor.yaml"
    path.write_text(yaml.safe_dump(written), "utf-8")
    assert "training: &" in path.read_text("utf-8")
    apart = copy.deepcopy(written)
    apart["rerankers"]["cross"]["training"] = dict(shared)
    # Also for a config that is given, not read.
    assert load(path).root == complete(written, "given").root == complete(apart, "apart").root


def test_released_triples_are_passed_over_once_unless_the_config_says_more():
    file = {"encoders encoder triples file": "triples.tsv", "rerankers cross pairs file": "triples.tsv"}
    for epochs, changes in ((1, {"encoders encoder training epochs": GONE}), (2, {})):
        config = completed(file | changes)
        assert config["encoders"]["encoder"]["training"]["epochs"] == epochs
        assert config["rerankers"]["cross"]["training"]["epochs"] == 2
        assert complete(config, "again").config == config


def test_a_split_has_measures_of_its_own_or_those_of_all():
    other = {"queries": "queries.tsv", "qrels": "qrels.txt", "measures": ["AP@1000"]}
    splits = completed({"evaluation measures": ["RR@10", "R@50"], "splits other": other})["splits"]
    assert splits["test"]["measures"] == ["RR@10", "R@50"]
    assert splits["other"]["measures"] == ["AP@1000"]
    assert "measures" not in splits["train"]


def test_kinds_and_names():
    experiment = built({"systems c.rt": {"retrieve": "encoder"}})
    kinds = {name: type(system).__name__ for name, system in experiment.systems.items()}
    expected = {"cort": "Dense", "cort-onng": "Graph", "cort-hnsw": "Graph", "cort+bm25": "Interleave"}
    expected |= {"cort+bm25-cross": "Rerank", "published": "Published", "c.rt": "Dense"}
    assert kinds == expected | dict.fromkeys(("bm25", "expanded"), "Bm25")


def test_a_reranker_of_late_interaction_retrieves():
    experiment = built({**LATE, "systems late": {"retrieve": "late"}})
    assert experiment.systems["late"].rule == "retrieve_tokens"
    assert experiment.used_models("rerankers") == ["cross", "late"]
    assert experiment.systems["late"].describe() == "late interaction late, exact search"
    for index, words in (({}, "probes 32"), ({"probes": "auto"}, "recall 0.99 of exact search")):
        experiment = built({**LATE, "systems late": {"retrieve": "late", "ivfpq": index}})
        assert experiment.systems["late"].rule == "retrieve_ivfpq"
        assert experiment.indexes_of("test") == [("encoder", "onng"), ("encoder", "hnsw"), ("late", "ivfpq")]
        assert experiment.systems["late"].describe() == f"late interaction late, IVF-PQ with {words}"


def test_no_names_match_nothing():
    pattern = re.compile(f"^(?P<system>{any_of([])})$")
    assert not any(pattern.match(name) for name in ("", "bm25", "onng", "(?!)"))


def test_splits_of_published_runs_and_what_is_made_from_them():
    changes = {"splits dev": FILES, "splits dl19": FILES, "systems mixed": {"interleave": ["published", "bm25"]}}
    changes |= {"systems mixed-cross": {"rerank": "mixed", "reranker": "cross"}}
    experiment = built(changes | {"systems published run": {"dl19": "a.trec", "test": "b.trec"}})
    assert experiment.evaluated_splits == ["test", "dev", "dl19"]
    assert experiment.splits_of("bm25") == ["test", "dev", "dl19"]
    for name in ("published", "mixed", "mixed-cross"):
        assert experiment.splits_of(name) == ["test", "dl19"]
    assert [*experiment.reranked_by("cross", "test")] == ["cort+bm25", "mixed"]
    assert [*experiment.reranked_by("cross", "dev")] == ["cort+bm25"]
    assert experiment.reranked_by("cross", "train") == {}


NOTHING_LEARNT = {key: GONE for key in ("encoders", "rerankers", "evaluation", "papers", "submissions")}
FUSED = {"systems fused": {"fuse": {"systems": ["bm25", "expanded"], "method": "linear", "tune": "RR@10"}}}
FUSED |= {"systems expanded": {"retrieve": "expanded"}}
BOTH_APART = ["train=test", "validation=test"]
NOTHING_LEARNT |= {"lexical bm25": GONE, "systems": {"bm25": {"retrieve": "bm25"}}}


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({}, BOTH_APART),
        ({f"{model} checkpoint": "last" for model in ("encoders encoder", "rerankers cross")}, BOTH_APART),
        (NOTHING_LEARNT, []),
        (NOTHING_LEARNT | {"lexical bm25": {"tune": {}}}, ["train=test"]),
        (NOTHING_LEARNT | FUSED, ["validation=test"]),
        # Nobody measures what has no judgements, nor what is drawn apart.
        ({"splits other": {"queries": "q.tsv"}}, BOTH_APART),
        ({"splits train": GONE, "splits validation": GONE} | NOTHING_LEARNT, []),
        # It may not be sure that two samples share a query.
        (
            {"splits train sample": 9, "splits dev": {**TRAINING_FILES, "sample": 9}},
            ["train=test", "train=dev", "validation=test", "validation=dev"],
        ),
        ({"splits validation": {**TRAINING_FILES, "without": "train"}}, ["train=validation", *BOTH_APART]),
    ],
)
def test_splits_that_may_share_no_query(changes, apart):
    experiment = built(changes)
    assert [f"{first}={second}" for first, second in splits_apart(experiment)] == apart
    # The inspection names queries that a measured split shares with what is held out of train, too.
    assert params.inspection(experiment, None)["apart"] == apart
    assert {*apart} <= {f"{first}={second}" for first, second in pairs_of_splits(experiment)}


def test_splits_do_not_leave_out_each_other_but_may_leave_out_several_others():
    assert complaints({"splits test without": ["train"], "splits train without": "test"}) == [
        f"splits.{name}.without: found {other!r}, expected another split made of whole files; name one"
        for name, other in (("test", "train"), ("train", "test"))
    ]
    experiment = built({"splits dev": {**FILES, "without": "test"}, "splits train without": ["test", "dev"]})
    for split in ("train", "validation"):
        found = excluded_queries(experiment, SimpleNamespace(split=split))
        assert found == [f"results/tiny/collection/queries.{name}.parquet" for name in ("test", "dev")]


def test_splits_that_judge_the_same_queries_otherwise_are_compared():
    one = {"queries": "q.tsv", "qrels": "one.tsv"}
    added = {"splits one": one, "splits same": one, "splits two": one | {"qrels": "two.jsonl"}}
    experiment = built(added | {"splits unjudged": {"queries": "q.tsv"}, "splits apart": one | {"queries": "r.tsv"}})
    assert labelled_twice(experiment) == [("one", "two"), ("same", "two")]
    # Labels of another kind may be of the same queries from another file.
    experiment = adjusted(experiment, {"splits apart labels": "LLM"})
    others = [(name, "apart") for name in ("test", "one", "same", "two")]
    assert sorted(labelled_twice(experiment)) == sorted([("one", "two"), ("same", "two"), *others])


def test_an_experiment_without_judgements_has_runs_and_pages():
    experiment = built({"splits test": {"queries": "q.tsv"}, "systems cort-hnsw hnsw": {"ef": "auto"}})
    assert (
        experiment.evaluated_splits == reported(experiment, "comparisons") == files_per_run(experiment, MEASURES) == []
    )
    assert explorers(experiment) == ["results/tiny/report/explore/test/index.html"]
    assert reported(experiment, "overlaps") == ["results/tiny/overlap/test.json"]
    experiment = adjusted(experiment, {"splits validation": GONE})
    wildcards = Wildcards(fromdict={"split": "test", "encoder": "encoder", "index": "hnsw"})
    assert experiment.systems["cort-hnsw"].audit_on("") == "results/tiny/audit/test/encoder.hnsw.json"
    assert judgements(experiment, wildcards) == []
    assert "measures" not in params.audit(experiment, wildcards)


def test_each_system_is_made_once(monkeypatch):
    made, make = Counter(), System.__init__
    monkeypatch.setattr(System, "__init__", lambda self, *of: (made.update([of[1]]), make(self, *of))[1])
    experiment = Experiment(built().root)
    made.clear()
    reported(experiment)
    inputs.targets(experiment)
    for name in experiment.systems:
        params.run(experiment, Wildcards(fromdict={"system": name, "split": "test"}))
    assert made == dict.fromkeys(experiment.systems, 1)


def test_used_models():
    experiment = built({"encoders unused": {"base_model": "small", "triples": {"last_rank": 20}}})
    assert experiment.used_models("encoders") == ["encoder"]
    assert experiment.used_models("rerankers") == ["cross"]


def released(**changes):
    """An experiment whose only encoder is released, with nothing to train."""
    encoder = {"base_model": "small", "released": "a.ckpt", "dimension": 16}
    systems = {"bm25": {"retrieve": "bm25"}, "cort": {"retrieve": "encoder"}}
    systems["onng"] = {"retrieve": "encoder", "onng": {}}
    changes = {"encoders encoder": encoder, "rerankers": {}, "systems": systems, **changes}
    gone = {"splits train": GONE, "splits validation": GONE, "lexical bm25": GONE, "submissions": {}, "evaluation": {}}
    return built(changes | gone)


def test_a_released_encoder_needs_no_training_queries_and_no_teacher():
    experiment = released()
    assert experiment.used_models("encoders") == ["encoder"]
    assert not experiment.learners
    assert not experiment.negative_sources


def test_a_released_model_is_a_base_model_of_its_own_name():
    ready = {"pretrained": "model", "query_length": 20}
    tuned = {"pretrained": "owner/name", "revision": COMMIT, "training": {}}
    changes = {"encoders ready": ready, "encoders tuned": tuned, "rerankers again": {"pretrained": "other"}}
    changes["rerankers exact"] = {"pretrained": "other", "precision": "fp32"}
    experiment = built({**changes, "training_depth": 100})
    config = experiment.config
    expected = {"pretrained": "model", "cleaning": "raw"}
    assert config["base_models"]["encoder.ready"] == expected
    assert config["base_models"]["encoder.tuned"]["revision"] == COMMIT
    encoders = config["encoders"]
    known = {"kind", "base_model", "pretrained", "query_length", "precision", "storage", "onng", "hnsw", "ivfpq"}
    assert encoders["ready"].keys() == known
    # Only the results of models that are not trained here may depend on what is fast.
    assert [encoders[name]["precision"] for name in ("ready", "tuned", "encoder")] == ["auto", "fp32", "fp32"]
    trained = [isinstance(experiment.encoders[name], Learner) for name in ("ready", "tuned", "encoder")]
    assert trained == [False, True, True]
    assert not isinstance(experiment.rerankers["again"], Learner)
    assert [config["rerankers"][name]["precision"] for name in ("again", "exact")] == ["auto", "fp32"]
    folders = [experiment.weights("encoders", name).split("/")[2:4] for name in ("ready", "tuned")]
    assert folders == [["base_models", "encoder.ready"], ["encoders", "tuned"]]


@pytest.mark.parametrize("name", ["encoder", "expanded"])
def test_indexes_encoders_and_rerankers_have_names_of_their_own(name):
    changes = {f"rerankers {name}": changed({})["rerankers"]["cross"]}
    assert places_of(complaints(changes)) == [f"rerankers.{name}"]


def test_a_released_weigher_and_a_base_model_may_have_one_name():
    config = completed({"weighers deepct": {"pretrained": "a"}, "base_models deepct": {"pretrained": "b"}})
    assert [config["base_models"][name]["pretrained"] for name in ("deepct", "weigher.deepct")] == ["b", "a"]


def test_a_released_encoder_may_be_part_of_what_another_learns_from():
    trained = {"base_model": "small", "triples": {"system": "cort", "last_rank": 20}}
    systems = {"cort": {"retrieve": "encoder"}, "second": {"retrieve": "other"}, "bm25": {"retrieve": "bm25"}}
    encoders = {"encoder": {"base_model": "small", "released": "a.ckpt"}, "other": trained}
    changes = {"encoders": encoders, "rerankers": {}, "systems": systems, "submissions": {}}
    experiment = built(changes | {"evaluation": {}, "splits train": FILES})
    assert [*experiment.learners] == [("encoders", "other")]
    assert experiment.negative_sources == ["cort"]


def test_descriptions():
    assert [system.describe() for system in built().systems.values()] == [
        *("BM25, Anserini", "encoder encoder, exact search", "encoder encoder, ONNG with epsilon 0.2"),
        *("encoder encoder, HNSW with recall 0.9 of exact search", "cort and bm25 interleaved"),
        *("top 10 of cort+bm25 re-ranked by cross", "published run", "BM25, Anserini, passages expanded by doc2query"),
    ]


def test_settings_that_affect_only_speed_or_safety_are_left_out():
    config = completed()
    kept = affecting_results(config)
    assert "protect" not in kept
    assert "gpus" in config["encoders"]["encoder"]["training"]
    assert "gpus" not in kept["encoders"]["encoder"]["training"]
    assert kept["seed"] == config["seed"]
    assert kept["systems"] == config["systems"]
    assert "protect" in config


def test_a_merge_keeps_the_settings_of_its_method_and_is_described_by_them():
    systems = {
        "turns": {"fuse": {"systems": ["bm25", "cort"]}},
        "ranks": {"fuse": {"systems": ["bm25", "cort"], "method": "rrf", "k": 10}},
        "equal": {"fuse": LINEAR},
        "given": {"fuse": {**LINEAR, "normalization": "z-score", "weights": [0.25, 0.75]}},
        "tuned": {"fuse": {**LINEAR, "tune": "nDCG@10"}},
        "light": {"rerank": "bm25", "reranker": "cross", "weight": 0.65},
        "chosen": {"rerank": "tuned", "reranker": "cross", "tune": "RR@10"},
    }
    experiment = built({f"systems {name}": system for name, system in systems.items()})
    config = experiment.config
    kept = {name: config["systems"][name]["fuse"] for name in systems if "fuse" in systems[name]}
    assert kept["turns"] == {"systems": ["bm25", "cort"], "method": "interleave"}
    assert kept["ranks"] == systems["ranks"]["fuse"]
    assert kept["equal"] == {**LINEAR, "normalization": "min-max"}
    assert kept["tuned"] == {**LINEAR, "normalization": "min-max", "tune": "nDCG@10"}
    assert config["systems"]["cort+bm25-cross"]["weight"] == 1
    assert {name: experiment.systems[name].describe() for name in systems} == {
        "turns": "bm25 and cort merged by interleave",
        "ranks": "bm25 and cort merged by rrf, k = 10",
        "equal": "bm25 and cort merged by linear combination of min-max scores, equal weights",
        "given": "bm25 and cort merged by linear combination of z-score scores, weights 0.25, 0.75",
        "tuned": "bm25 and cort merged by linear combination of min-max scores, weights tuned for nDCG@10 on "
        "validation",
        "light": "top 20 of bm25 re-ranked by cross, its weight 0.65",
        "chosen": "top 20 of tuned re-ranked by cross, its weight tuned for RR@10 on validation",
    }
    # What is tuned waits for the re-ranker's scores of validation candidates; who only re-ranks does not.
    assert [*experiment.reranked_by("cross", "validation")] == ["tuned"]
    assert experiment.reranked_by("cross", "train") == {}


def test_validation_runs_are_as_deep_as_those_that_weights_are_for():
    def depth_of(split, changes):
        return params.depth(built(changes), Wildcards(fromdict={"split": split}))["depth"]

    tuned = {"systems new": {"fuse": {**LINEAR, "tune": "RR@10"}}}
    assert depth_of("validation", {}) == depth_of("train", tuned) == 30
    assert depth_of("validation", tuned) == depth_of("test", {}) == 50


def test_an_experiment_takes_whole_sections_from_the_one_it_extends(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump(changed({"latency": {"split": "test", "systems": ["bm25"]}})), "utf-8")
    own = {"extends": str(base), "depth": 40, "latency": None, "submissions": {}}
    expected = changed({"depth": 40, "submissions": {}})
    assert complete(own, "own.yaml").root == complete(expected, "own.yaml").root


def test_a_key_without_a_value_that_leaves_nothing_out_is_refused(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(changed({})), "utf-8")
    (line,) = mistakes_in({"extends": str(tmp_path / "base.yaml"), "latncy": None})
    assert re.match(r"found the key latncy without a value, expected one of .*; fix the", line)


def test_a_mistake_about_the_experiment_that_is_extended_is_one_line(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: other.yaml\n")
    expected = {
        str(tmp_path / "none.yaml"): "none.yaml: found no readable file",
        str(tmp_path / "base.yaml"): "which extends another, expected a whole one; name that",
        3: "own.yaml: extends: found 3, expected the path of an experiment; name one file",
        "": "own.yaml: extends: found '', expected the path of an experiment; name one file",
    }
    for path, line in expected.items():
        with pytest.raises(ConfigError) as caught:
            complete({"extends": path}, "own.yaml")
        assert line in str(caught.value)
        assert "\n" not in str(caught.value)
