"""Settings that take more than a path in the config: which ones a job gets is for its wildcards to say.

Each function is given the config and the wildcards, as parts of `workflow/params.py` are.
"""

from __future__ import annotations

import json

from cort.experiment.config import tuned_systems
from cort.experiment.idle import DESCRIBED, OF_TRIPLES
from cort.experiment.splits import compared_splits, pairs_of_splits, splits_apart
from cort.retrieval.graphs import INDEXES
from cort.settings import paths
from cort.settings.config import Config, flat, is_judged
from cort.systems.base import Option
from cort.systems.registry import system_of
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES, Objectives, settings_of
from workflow.params import Part, Wildcards, Words, all_of, among, at, join, option

# What makes an encoder or re-ranker what it is, trained here or elsewhere; of a released one, what its files give.
FRAMING = {
    "encoders": (
        *("pooling", "dimension", "query_length", "passage_length", "similarity", "projection"),
        *("query_segment", "passage_segment"),
    ),
    "rerankers": (
        *("kind", "head", "query_length", "max_length", "dimension", "similarity"),
        *("term_weights", "fill_queries", "skip_punctuation", "word_vectors", "filters"),
    ),
}
# What else a released one can have said.
ORIGIN = ("pretrained", "revision", "query_prompt", "passage_prompt", "query_prompt_name", "passage_prompt_name")
OBJECTIVES: dict[str, Objectives] = {"encoders": ENCODER_OBJECTIVES, "rerankers": RERANKER_OBJECTIVES}
# Parts of a section that are no options of its stage: a system is an input, epochs count where examples are drawn.
NO_OPTIONS = ("epochs", "gpus", "system")


def framing(section: str) -> Part:
    """Give what makes a model what it is; of a `pretrained` one nothing, as its base model is it already."""
    kind = section.removesuffix("s")

    def read(config: Config, wildcards: Wildcards) -> Words:
        pretrained = "pretrained" in config[section][getattr(wildcards, kind)]
        found = among(f"{section}.{{{kind}}}", *FRAMING[section])
        return Words() if pretrained else found(config, wildcards)

    return read


def pretrained(section: str) -> Part:
    """Give where a released encoder or re-ranker is from, and what the config says otherwise than its files."""
    kind = section.removesuffix("s")

    def read(config: Config, wildcards: Wildcards) -> Words:
        model = config[section][getattr(wildcards, kind)]
        keys = [key for key in (*ORIGIN, *FRAMING[section]) if key in model and key in {*ORIGIN, *DESCRIBED}]
        return among(f"{section}.{{{kind}}}", *keys)(config, wildcards)

    return read


def objective(section: str) -> Part:
    """Give what a model is trained for, and the settings of all that it can be trained for."""
    return among(f"{section}.{{{section.removesuffix('s')}}}", "loss", *settings_of(OBJECTIVES[section]))


def training(model: str) -> Part:
    """Give the settings of an optimisation, of the model at a path in the config."""
    return all_of(f"{model}.training", but=NO_OPTIONS)


def examples(model: str, source: str) -> Part:
    """Give the settings of a model's training examples; epochs are those to sample, one for validation."""
    drawn = all_of(f"{model}.{source}", but=(*NO_OPTIONS, "file", *OF_TRIPLES))
    configured = at(f"{model}.training.epochs")

    def read(config: Config, wildcards: Wildcards) -> Words:
        epochs = configured(config, wildcards) if wildcards.split == "train" else Words(option("epochs", 1))
        return drawn(config, wildcards) + epochs

    return read


def released_examples(model: str, source: str) -> Part:
    """Give what is taken of the file of triples that a model is trained on, and how often."""
    return join(among(f"{model}.{source}", *sorted(OF_TRIPLES)), f"{model}.training.epochs")


def depth(config: Config, wildcards: Wildcards) -> Words:
    """Results per query of a split's runs; those that weights are tuned on are like those they are for."""
    for_training = wildcards.split == "train" or (wildcards.split == "validation" and not tuned_systems(config))
    return at("training_depth" if for_training else "depth", "depth")(config, wildcards)


def selection(config: Config, wildcards: Wildcards) -> Words:
    """Which of its queries a split has, and which ones are held out of train."""
    split, splits = config["splits"][wildcards.split], config["splits"]
    held = [name for name, other in splits.items() if "hold_out" in other]
    found = ["splits.{split}.unjudged_queries"] if is_judged(config, wildcards.split) else []
    found += ["splits.{split}.sample"] if "sample" in split else []
    part = []
    if held and wildcards.split in (*held, "train"):
        found.append(f"splits.{held[0]}.hold_out")
        part = ["--part", "held-out" if wildcards.split in held else "rest"]
    found += ["seed"] if part or "sample" in split else []
    return join(*found)(config, wildcards) + Words(part)


def leakage(config: Config, wildcards: Wildcards) -> Words:
    """Name the splits whose queries are compared, and which of them may share none."""
    names, found = compared_splits(config), {"pairs": pairs_of_splits(config), "apart": splits_apart(config)}
    words = [word for name, pairs in found.items() for word in option(name, [f"{a}={b}" for a, b in pairs])]
    return Words([*option("splits", names), *words], {"splits": {"names": names, "apart": found["apart"]}})


def part_of_passages(_: Config, wildcards: Wildcards) -> Words:
    """Name the part of the passages that a job searches."""
    return Words(option("part", wildcards.scatteritem))


def base_model(config: Config, wildcards: Wildcards) -> Words:
    """Where a base model comes from: a pretrained one, or an architecture and the passages."""
    model = config["base_models"][wildcards.base_model]
    place = "base_models.{base_model}"
    if "pretrained" in model:
        return among(place, *(key for key in ("pretrained", "revision") if key in model))(config, wildcards)
    found = among(place, "vocabulary_size", "cleaning")(config, wildcards)
    words = option("architecture", json.dumps(model["architecture"], sort_keys=True))
    words += option("passages", paths.at(paths.PASSAGES, config))
    return found + Words(words, flat(model["architecture"], f"{place.format(**wildcards)}.architecture"))


def filtering(config: Config, wildcards: Wildcards) -> Words:
    """How predicted queries are brought to the re-ranker that filters them."""
    name = config["expanders"][wildcards.expander]["filter"]["reranker"]
    names = {"reranker": name, "base_model": config["rerankers"][name]["base_model"]}
    return join("rerankers.{reranker}.precision", "base_models.{base_model}.cleaning")(config, names)


def of_system(config: Config, wildcards: Wildcards) -> Words:
    """How a system's run is made, as its class says."""
    return _words(system_of(config, wildcards.system).options(wildcards.split))


def weight(config: Config, wildcards: Wildcards) -> Words:
    """Weight of a re-ranker: the config's own, or the one that was tuned."""
    options = system_of(config, wildcards.system).options(wildcards.split)
    return _words([option for option in options if option.name in ("weight", "tuned")])


def tuning(config: Config, wildcards: Wildcards) -> Words:
    """Say what a system's weights are tuned for, and whose they are."""
    return _words(system_of(config, wildcards.system).tuning())


def _words(options: list[Option]) -> Words:
    words = [word for name, value, _ in options if name for word in option(name, value)]
    return Words(words, {place: value for _, value, place in options if place})


def audit(config: Config, wildcards: Wildcards) -> Words:
    """Return what an audit measures, on which queries."""
    depths = sorted({config["depth"], *(value for value in config["audit"]["depths"] if value < config["depth"])})
    measures = "splits.{split}.measures" if "measures" in config["splits"][wildcards.split] else "evaluation.measures"
    found = join(
        *([measures] if is_judged(config, wildcards.split) else []),
        "splits.{split}.relevance_level",
        "seed",
        widths=f"audit.{INDEXES[wildcards.index].audited}",
        sample="audit.queries",
    )(config, wildcards)
    return found + Words(option("depths", depths), {"audit.depths": depths})
