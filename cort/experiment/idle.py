"""Find settings that have no effect beside others. This needs the config as written, without defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cort.experiment.models import MODELS, released_name
from cort.experiment.recipes import PAPER, recipes_for
from cort.models.settings import OF_KIND
from cort.settings.config import LEARNERS, SPARSE, Config, listed
from cort.systems.registry import check_void
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES, settings_of

CROSS_ENCODER = "cross_encoder"
# Kinds of re-rankers that are not trained here.
RELEASED_ONLY = ("monot5", "rankt5")
# Keys of an encoder or re-ranker that mean nothing if its weights are released ones.
OF_TRAINING = {"recipe", "loss", "teacher", "start", "triples", "pairs", "training"}
OF_TRAINING |= {"queries", "query_flops", "passage_flops", "flops_warmup"}
OF_TRAINING |= {*settings_of(ENCODER_OBJECTIVES), *settings_of(RERANKER_OBJECTIVES)}
# Keys that a released model's own files define, and which have no default with `pretrained`.
LENGTHS = {"query_length", "passage_length", "max_length"}
DESCRIBED = {"pooling", "dimension", "similarity", *LENGTHS}
# Others, which cannot be changed, and keys that only released models have.
FIXED = {"projection", "query_segment", "passage_segment", "head"}
PROMPTS = {"query_prompt", "passage_prompt", "query_prompt_name", "passage_prompt_name"}
# Keys that only encoders of a kind have.
OF_ENCODERS = {
    "dense": {
        *("pooling", "dimension", "similarity", "projection", "query_segment", "passage_segment"),
        *("released", "relative_margin", "storage", "onng", "hnsw", "ivfpq", *PROMPTS),
    },
    SPARSE: {"queries", "query_flops", "passage_flops", "flops_warmup"},
}
# Where predicted queries or term weights come from, and further keys with a file of them.
ORIGINS = ("file", "pretrained")
OF_FILE = {"queries", "filter"}
# Which triples of a file are used.
OF_TRIPLES = {"limit", "sample", "shuffle", "unknown_ids"}
CHANGING = {"expanders": "queries", "weighers": "weights"}


def idle_settings(config: Config, schema: Config) -> Iterator[str]:
    """Yield a line for each setting that has no effect."""
    yield from _of_lexical(config)
    for name in config.get("systems", {}):
        yield from check_void(config, name)
    for section, source in LEARNERS.items():
        keys = schema["properties"][section]["additionalProperties"]["properties"][source]["properties"]
        for name, model in config.get(section, {}).items():
            if (recipe := model.get("recipe", PAPER)) not in (known := recipes_for(section)):
                expected = f"one of {listed(known)}"
                yield f"{section}.{name}.recipe: found {recipe}, which is for others, expected {expected}; choose one"
            yield from _of_model(f"{section}.{name}", model)
            yield from _of_examples(f"{section}.{name}.{source}", model.get(source, {}), keys)
    for section in MODELS:
        for name, model in config.get(section, {}).items():
            if "pretrained" in model and (taken := released_name(section, name)) in config.get("base_models", {}):
                found = f"found pretrained and the base model {taken}, whose name it needs"
                yield f"{section}.{name}: {found}, expected no such base model; rename that one"
    yield from _of_kinds(config.get("rerankers", {}), schema)
    keys = schema["properties"]["encoders"]["additionalProperties"]["properties"]
    for name, model in config.get("encoders", {}).items():
        yield from _of_encoder(f"encoders.{name}", model, keys)


def _of_kinds(rerankers: dict[str, Config], schema: Config) -> Iterator[str]:
    """Find settings of re-rankers that their kind, word vectors or loss do not use."""
    keys = schema["properties"]["rerankers"]["additionalProperties"]["properties"]
    for name, reranker in rerankers.items():
        place = f"rerankers.{name}"
        changed = {key for key in reranker if not _is_default(reranker[key], keys.get(key, {}))}
        own = OF_KIND.get(reranker.get("kind", CROSS_ENCODER), changed)
        for key in sorted(changed.difference(own)):
            kinds = " or ".join(f"`kind: {kind}`" for kind, names in OF_KIND.items() if key in names)
            if kinds:
                yield f"{place}.{key}: found {key}, expected it only with {kinds}; remove it"
        if "dimension" in changed.intersection(own) and reranker.get("word_vectors", "new") == "base_model":
            found = "found dimension with the word vectors of the base model"
            yield f"{place}.dimension: {found}, expected it with `word_vectors: new`; remove it"
        if "pos_weight" in changed and reranker.get("loss") == "softmax":
            yield f"{place}.pos_weight: found pos_weight with the loss softmax, expected it with pointwise; remove it"


def _of_encoder(place: str, model: Config, keys: Config) -> Iterator[str]:
    """Find settings of an encoder that only those of another kind have."""
    own = model.get("kind", "dense")
    changed = {key for key in model if not _is_default(model[key], keys.get(key, {}))}
    for kind, names in OF_ENCODERS.items() if own in OF_ENCODERS else ():
        for key in sorted(changed & names) if kind != own else ():
            yield f"{place}.{key}: found {key} with a {own} encoder, expected it only with `kind: {kind}`; remove it"


def _is_default(value: Any, schema: Config) -> bool:
    """Tell whether a value, or all values of a section, are the schema's defaults."""
    if isinstance(value, dict) and "properties" in schema:
        return all(_is_default(inner, schema["properties"].get(key, {})) for key, inner in value.items())
    return bool(value == schema.get("default"))


def _of_lexical(config: Config) -> Iterator[str]:
    """Find settings of indexes, expanders and weighers that have no effect beside others."""
    for name, index in config.get("lexical", {}).items():
        for key in index.keys() & {"k1", "b"} if "tune" in index else ():
            found = f"found {key} beside tune"
            yield f"lexical.{name}.{key}: {found}, expected one of them, as tune chooses k1 and b; remove one"
    for section, contents in CHANGING.items():
        for name, model in config.get(section, {}).items():
            place = f"{section}.{name}"
            for key in sorted(model.keys() - {*ORIGINS, *OF_FILE}) if "file" in model else ():
                found = f"found {key} with file"
                yield f"{place}.{key}: {found}, expected none, as the file has the {contents}; remove it"
            if {"beams", "top_k"} <= model.keys():
                found = "found top_k beside beams"
                yield f"{place}.top_k: {found}, expected one of them, as beam search does not sample; remove one"


def _of_model(place: str, model: Config) -> Iterator[str]:
    """Find settings of a model that have no effect with its origin."""
    for key in model.keys() & OF_TRAINING if "released" in model else ():
        yield f"{place}.{key}: found {key} with released, expected none, as nothing is trained; remove it"
    if "pretrained" in model:
        yield from _of_pretrained(place, model)
        return
    if (kind := model.get("kind")) in RELEASED_ONLY:
        yield f"{place}.kind: found {kind} without pretrained, expected both, as it is not trained here; name a model"
    if not model.keys() & {"base_model", "language_model"}:
        yield f"{place}: found no key base_model, expected it or pretrained to be set; add one"
    for key in model.keys() & {*PROMPTS, "revision"}:
        yield f"{place}.{key}: found {key} without pretrained, expected both or none; remove it"


def _of_examples(place: str, examples: Config, keys: Config) -> Iterator[str]:
    """Find settings for a file of triples without such a file."""
    for key in sorted(examples.keys() & OF_TRIPLES) if "file" not in examples else ():
        if examples[key] == keys[key]["default"]:
            continue
        yield f"{place}.{key}: found {key} without file, expected both or none; name a file of triples or remove it"


def _of_pretrained(place: str, model: Config) -> Iterator[str]:
    """Find settings of a pretrained model that its own files define, or that have no effect."""
    for key in model.keys() & {"base_model", "released"}:
        yield f"{place}: found pretrained and {key}, expected one of them; remove one"
    if (kind := model.get("kind", CROSS_ENCODER)) in ("knrm", "conv_knrm"):
        yield f"{place}.kind: found {kind} with pretrained, expected another kind, as none is released; remove one"
    if kind in RELEASED_ONLY and "training" in model:
        yield f"{place}.training: found training of a {kind}, expected none, as it is only released; remove it"
    fixed = FIXED | ({"dimension"} if place.startswith("rerankers.") else set())
    for key in model.keys() & fixed:
        yield f"{place}.{key}: found {key} with pretrained, expected none, as its own files define it; remove it"
    for key in model.keys() & OF_TRAINING if "training" not in model else ():
        yield f"{place}.{key}: found {key} without training, expected both or none; add `training: {{}}` or remove it"
    for kind in ("query", "passage"):
        if len(model.keys() & {f"{kind}_prompt", f"{kind}_prompt_name"}) == 2:
            yield f"{place}: found {kind}_prompt and {kind}_prompt_name, expected one of them; remove one"
