"""The variants of sections and entries of a config, such as a released re-ranker or a split of files, and their keys.

A key that an entry's variant lacks is a mistake, and gets neither a default nor the value of a recipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cort.models.settings import OF_KIND
from cort.retrieval.fusion import FUSIONS
from cort.runtime.keys import keys_of
from cort.settings.collection import Split
from cort.settings.config import LATE_INTERACTION, SPARSE, SPLIT_SOURCES, Config, listed
from cort.settings.evaluation import Submission
from cort.settings.lexical import Expander, LexicalIndex, Weigher
from cort.settings.models import BaseModel, Encoder, Pairs, Reranker, Triples
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES, settings_of


class Variant(NamedTuple):
    """Entries of one origin and type of model, and the keys that they have."""

    noun: str
    #: what tells the origin: keys, or a key with its value
    marks: set[str]
    keys: set[str]
    model_type: str = ""
    #: keys without a default, such as those that a released model's own files define
    unset: frozenset[str] = frozenset()

    @property
    def defaults(self) -> set[str]:
        """Keys that have a default, or the value of a recipe."""
        return self.keys - self.unset


def _all(cls: Any) -> set[str]:
    return set(keys_of(cls))


# Origins of models.
TRAINED, RELEASED, RETRAINED = {"base_model"}, {"pretrained"}, {"pretrained", "training"}
IMPORTED = TRAINED | {"released"}
DEFAULT_TYPES: dict[str, str] = {"encoders.*": Encoder.kind, "rerankers.*": Reranker.kind}
DENSE, CROSS_ENCODER = DEFAULT_TYPES.values()

#: keys that a released model's own files define, unless the config does
DESCRIBED = frozenset({"pooling", "dimension", "similarity", "query_length", "passage_length", "max_length"})
#: keys that say which triples of a file are used
OF_TRIPLES = {"limit", "sample", "shuffle", "unknown_ids"}
HUB = {"pretrained", "revision"}
LEARNING = {"training", "recipe", "checkpoint", "loss"}
# Keys of encoders, trained or not.
SPARSE_KEYS = {"kind", "precision", "query_length", "passage_length"}
DENSE_KEYS = SPARSE_KEYS | {"pooling", "dimension", "similarity", "storage", "onng", "hnsw", "ivfpq"}
DENSE_KEYS |= {"dimensions", "matryoshka"}
NEW_DENSE = DENSE_KEYS | {"base_model", "projection", "query_segment", "passage_segment"}
HUB_DENSE = DENSE_KEYS | HUB | {"query_prompt", "passage_prompt", "query_prompt_name", "passage_prompt_name"}
LEARNT = LEARNING.union({"triples", "teacher", "start"}, settings_of(ENCODER_OBJECTIVES))
LEARNT_SPARSE = LEARNT | {"queries", "query_flops", "passage_flops", "flops_warmup"}
# Keys of re-rankers.
PAIR_KEYS = {"kind", "precision", "depth", "query_length", "max_length"}
HUB_PAIRS = PAIR_KEYS | HUB
HUB_LATE = HUB_PAIRS | {"similarity", "ivfpq"}
LEARNT_PAIRS = LEARNING.union({"pairs"}, settings_of(RERANKER_OBJECTIVES))
NEW_PAIRS = PAIR_KEYS | LEARNT_PAIRS | TRAINED

# Keys of a collection.
DIVIDED = {"passages", "aggregate"}
FILES = DIVIDED | {"fields"}
# Keys of splits: of all, and of those whose queries come from files or a source.
ANY_SPLIT = _all(Split) - {"queries", "qrels", "hold_out", *SPLIT_SOURCES, "labels", "without", "sample"}
WHOLE = ANY_SPLIT | {"without", "sample"}

#: by place, where * is any name; an entry is of the first one whose marks it has
VARIANTS = {
    "collection": [
        Variant("a folder", {"folder"}, FILES | {"folder", "ids"}),
        Variant("a file of documents", {"documents"}, FILES | {"documents"}),
        Variant("a collection of ir_datasets", {"irds"}, DIVIDED | {"irds"}),
        Variant("a collection on Hugging Face", {"hf"}, DIVIDED | {"hf"}),
        Variant("docstrings", {"pydocs"}, {"pydocs", "aggregate"}),
        Variant("a file of passages", {"passages"}, FILES),
    ],
    "splits.*": [
        Variant("a split that is held out", {"hold_out"}, ANY_SPLIT | {"hold_out"}),
        Variant("a generated split", {"generate"}, WHOLE | {"generate"}),
        Variant("a judged split", {"judge"}, WHOLE | {"judge"}),
        Variant("a split of ir_datasets", {"irds"}, WHOLE | {"irds", "labels"}),
        Variant("a split on Hugging Face", {"hf"}, WHOLE | {"hf", "labels"}),
        Variant("queries with judgements", {"queries", "qrels"}, WHOLE | {"queries", "qrels", "labels"}),
        Variant("queries without judgements", {"queries"}, WHOLE | {"queries"}),
        Variant("a split without queries", set(), WHOLE),
    ],
    "base_models.*": [
        Variant("a pretrained model", {"pretrained"}, {"pretrained", "revision", "cleaning"}),
        Variant("an architecture", {"architecture"}, _all(BaseModel) - HUB),
    ],
    "submissions.*": [
        Variant("the form msmarco", {"form: msmarco"}, _all(Submission) - {"run_id"}),
        Variant("the form trec", {"form: trec"}, _all(Submission)),
    ],
    "systems.*.fuse": [
        *(
            Variant(f"the method {name}", {f"method: {name}"}, {"systems", "method", *fusion.settings})
            for name, fusion in FUSIONS.items()
        ),
        Variant("the method interleave", set(), {"systems", "method"}),
    ],
    "lexical.*": [
        Variant("an index with tune", {"tune"}, _all(LexicalIndex) - {"k1", "b"}),
        Variant("an index without tune", set(), _all(LexicalIndex) - {"tune"}),
    ],
    "expanders.*": [
        # How many queries are appended must be said of a file with samples, and only there.
        Variant("an expander from a file", {"file"}, {"file", "queries"}, unset=frozenset({"queries"})),
        Variant("a released expander with beams", RELEASED | {"beams"}, _all(Expander) - {"file", "top_k"}),
        Variant("a released expander", RELEASED, _all(Expander) - {"file", "beams"}),
    ],
    "weighers.*": [
        Variant("a released weigher", RELEASED, _all(Weigher)),
    ],
    "encoders.*": [
        Variant("a released dense encoder with training", RETRAINED, HUB_DENSE | LEARNT, DENSE, DESCRIBED),
        Variant("a released dense encoder", RELEASED, HUB_DENSE, DENSE, DESCRIBED),
        Variant("an imported encoder", IMPORTED, NEW_DENSE | {"released", "checkpoint"}, DENSE),
        Variant("a trained dense encoder", TRAINED, NEW_DENSE | LEARNT, DENSE),
        Variant(
            "a released sparse encoder with training", RETRAINED, SPARSE_KEYS | HUB | LEARNT_SPARSE, SPARSE, DESCRIBED
        ),
        Variant("a released sparse encoder", RELEASED, SPARSE_KEYS | HUB, SPARSE, DESCRIBED),
        Variant("a trained sparse encoder", TRAINED, SPARSE_KEYS | TRAINED | LEARNT_SPARSE, SPARSE),
    ],
    "rerankers.*": [
        Variant(
            "a released cross_encoder with training", RETRAINED, HUB_PAIRS | LEARNT_PAIRS, CROSS_ENCODER, DESCRIBED
        ),
        Variant("a released cross_encoder", RELEASED, HUB_PAIRS, CROSS_ENCODER, DESCRIBED),
        Variant("a released monot5", RELEASED, HUB_PAIRS, "monot5", DESCRIBED),
        Variant("a released rankt5", RELEASED, HUB_PAIRS, "rankt5", DESCRIBED),
        Variant(
            "a released late_interaction with training", RETRAINED, HUB_LATE | LEARNT_PAIRS, LATE_INTERACTION, DESCRIBED
        ),
        Variant("a released late_interaction", RELEASED, HUB_LATE, LATE_INTERACTION, DESCRIBED),
        *(
            Variant(f"a trained {name}", TRAINED, NEW_PAIRS.union(OF_KIND[name]), name)
            for name in (CROSS_ENCODER, LATE_INTERACTION, "knrm", "conv_knrm")
        ),
    ],
    "encoders.*.triples": [
        Variant("triples of a file", {"file"}, _all(Triples)),
        Variant("triples of a system", set(), _all(Triples) - OF_TRIPLES),
    ],
    "rerankers.*.pairs": [
        Variant("pairs of a file", {"file"}, _all(Pairs)),
        Variant("pairs of a system", set(), _all(Pairs) - OF_TRIPLES),
    ],
}


def variant_at(path: tuple[str, ...], entry: Config) -> Variant | None:
    """Find the variant of what is at a path in the config; none if it has no origin that its type can have."""
    place = _place(path)
    model_type, marks = _type_of(place, entry), {*entry, *(f"{key}: {value}" for key, value in entry.items())}
    fitting = (one for one in VARIANTS.get(place, ()) if one.model_type == model_type and one.marks <= marks)
    return next(fitting, None)


def check_variants(config: Config, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a line for each entry that is of no variant, and for each key that an entry's variant does not have."""
    for name, entry in config.items():
        if isinstance(entry, dict):
            inside = (*path, name)
            yield from _check(inside, entry) if _place(inside) in VARIANTS else ()
            yield from check_variants(entry, inside)


def _place(path: tuple[str, ...]) -> str:
    return ".".join([*path[:1], *["*"][: len(path) - 1], *path[2:]])


def _type_of(place: str, entry: Config) -> str:
    model_type: str = entry.get("kind", DEFAULT_TYPES[place]) if place in DEFAULT_TYPES else ""
    return model_type


def _check(path: tuple[str, ...], entry: Config) -> Iterator[str]:
    place, variants = ".".join(path), VARIANTS[_place(path)]
    if (variant := variant_at(path, entry)) is None:
        model_type = _type_of(_place(path), entry)
        origins = [key for one in variants if one.model_type == model_type and len(one.marks) == 1 for key in one.marks]
        found = f"found no key {' or '.join(origins)}{model_type and f' of a {model_type}'}"
        yield f"{place}: {found}, expected it to be set; add it"
        return
    for key in sorted(entry.keys() - variant.keys):
        having = [one for one in variants if key in one.keys]
        alike = [one for one in having if one.model_type == variant.model_type]
        alike = alike or [one for one in having if one.marks >= variant.marks] or having
        nouns = listed(one.noun for one in alike)
        yield f"{place}.{key}: found {key} with {variant.noun}, expected it only with {nouns}; remove it"
