"""Which systems, and which splits, are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from cort.config.collection import HeldOut
from cort.config.entries import TRAINING_SPLITS, Config
from cort.config.experiment import Experiment
from cort.config.learners import Encoder
from cort.config.models import Hub, Learning

#: keys of a system that make it search a smaller form of the vectors
KEYS_OF_SMALLER = ("dimension", "storage")


def pairs(experiment: Experiment, split: str) -> dict[str, list[tuple[str, str]]]:
    """List the pairs of systems compared on a split: with their parts, their starts, contrasts and whole vectors."""
    names = experiment.compared(split)
    by_relation = {
        "parts": [(name, part) for name in names for part in experiment.systems[name].parts()],
        "starts": [(name, start) for name in names for start in _starts(experiment, name)],
        "contrasts": [*experiment.evaluation.contrasts]
        + [(name, whole) for name in names if (whole := whole_of(experiment, name))],
    }
    return {relation: [pair for pair in listed if {*pair} <= {*names}] for relation, listed in by_relation.items()}


def _starts(experiment: Experiment, name: str) -> Iterator[str]:
    """Find systems that search like this one, but with the encoder that its encoder was trained from."""
    entries: Config = experiment.config["systems"]
    encoders, system = experiment.encoders, entries[name]
    encoder = encoders.get(system.get("retrieve"))
    if not isinstance(encoder, Learning):
        return
    starts = {encoder.start, *(other for other in encoders if _is_untrained(encoders[other], encoder))}
    for other, entry in entries.items():
        if entry.get("retrieve") in starts - {None} and entry == system | {"retrieve": entry["retrieve"]}:
            yield other


def _is_untrained(other: Encoder, encoder: Encoder) -> bool:
    """Tell whether an encoder is the released one that another was trained from."""
    if not isinstance(other, Hub) or not isinstance(encoder, Hub) or isinstance(other, Learning):
        return False
    return (other.pretrained, other.revision) == (encoder.pretrained, encoder.revision)


def whole_of(experiment: Experiment, name: str) -> str | None:
    """Name the system that searches the whole vectors of which a system searches a smaller form."""
    entries: Config = experiment.config["systems"]
    whole = {key: value for key, value in entries[name].items() if key not in KEYS_OF_SMALLER}
    others = (other for other, entry in entries.items() if entry == whole)
    return next(others, None) if len(whole) < len(entries[name]) else None


def learnt_from(experiment: Experiment) -> list[str]:
    """List the splits that systems learn from: `train` trains models and tunes BM25, `validation` chooses."""
    systems, learners = experiment.systems.values(), experiment.learners.values()
    chooses = any(model.checkpoint == "best" for model in learners) or any(one.chosen_by_audit() for one in systems)
    tunes = any(system.lexical_index() and system.tune and not system.folds() for system in systems)
    learnt = {"train": bool(learners) or tunes, "validation": chooses or bool(experiment.tuned_systems)}
    return [name for name in TRAINING_SPLITS if name in experiment.splits and learnt[name]]


def splits_apart(experiment: Experiment) -> list[tuple[str, str]]:
    """List pairs of splits that must not share queries: those that systems learn from, and those they are measured on.

    A held-out split is drawn from train and removed from it, so these two are not compared.
    """
    learnt = learnt_from(experiment)
    pairs = [*combinations(learnt, 2), *((first, second) for first in learnt for second in experiment.evaluated_splits)]
    return [
        (first, second)
        for first, second in pairs
        if first != "train" or not isinstance(experiment.splits[second], HeldOut)
    ]


def pairs_of_splits(experiment: Experiment) -> list[tuple[str, str]]:
    """List the pairs of a split for training and another split."""
    training = [name for name in TRAINING_SPLITS if name in experiment.splits]
    return [pair for pair in combinations([*training, *experiment.ranked_splits], 2) if pair[0] in TRAINING_SPLITS]


def labelled_twice(experiment: Experiment) -> list[tuple[str, str]]:
    """List the pairs of evaluated splits whose labels are of other kinds, or which judge the same queries otherwise."""

    def differ(first: str, second: str) -> bool:
        one, other = (experiment.splits[name] for name in (first, second))
        again = one.files("queries") == other.files("queries") != [] and one.files("qrels") != other.files("qrels")
        return again or experiment.labels_of(first) != experiment.labels_of(second)

    return [pair for pair in combinations(experiment.evaluated_splits, 2) if differ(*pair)]
