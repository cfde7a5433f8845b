"""Check what an experiment's config says about the collection and the splits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from os.path import normpath

from cort.config.collection import COPIED
from cort.config.entries import (
    SOURCES,
    SPLIT_SOURCES,
    TRAINING_SPLITS,
    Config,
    listed,
    one_or_more,
)
from cort.config.experiment import Experiment
from cort.runtime.errors import check_name

PYDOCS_SPLITS = (*TRAINING_SPLITS, "test")


def check_collection(experiment: Experiment) -> Iterator[str]:
    """Check the sources of passages and queries."""
    collection, splits = experiment.config["collection"], experiment.config["splits"]
    divided, sources = collection.get("passages"), [key for key in SOURCES if key in collection]
    if isinstance(divided, dict) != bool(sources) and divided is not None:
        found = f"a file beside {sources[0]}" if sources else f"no file and none of {listed(SOURCES)}"
        yield f"collection.passages: found {found}, expected one source; name one file, or how documents are divided"
        return
    if isinstance(divided, dict) and divided["overlap"] >= divided["words"]:
        expected = f"fewer than the {divided['words']} words of a passage"
        yield f"collection.passages.overlap: found {divided['overlap']}, expected {expected}; lower it"
    if not experiment.ranked_splits:
        yield f"splits: found only {listed(splits)}, expected a split to evaluate besides train and validation; add one"
    for name, split in splits.items():
        if "measures" in split and name not in experiment.evaluated_splits:
            found, expected = "found measures", "expected none, as the split is not evaluated"
            yield f"splits.{name}.measures: {found}, {expected}; remove them"
        yield from _check_source(f"splits.{name}", name, collection, splits)
    yield from _check_generated(experiment)
    held = [name for name, split in splits.items() if "hold_out" in split]
    if len(held) > 1:
        yield f"splits: found hold_out in {listed(held)}, expected it in one split; name files for the others"


def _check_generated(experiment: Experiment) -> Iterator[str]:
    """Check that splits are generated from one source; or, with parts of documents, all splits."""
    config = experiment.config
    origin_of = {name: split.get("generate", {}).get("from", "files") for name, split in config["splits"].items()}
    origins = {*origin_of.values()} - ({"files"} if experiment.copied_from is None else set())
    if len(origins) > 1:
        expected = "one of these in all splits, as text used as a query is removed from the index"
        found = f"queries from {listed(sorted(origins))}"
        yield f"splits: found {found}, expected {expected}; use an experiment for each"
    for name, origin in origin_of.items():
        place, split = f"splits.{name}", config["splits"][name]
        if origin != "files" and (words := split["generate"])["min_words"] > words["max_words"]:
            expected = f"at most max_words ({words['max_words']})"
            yield f"{place}.generate.min_words: found {words['min_words']}, expected {expected}; lower it"
        if origin == "endpoint" and "sample" not in split:
            yield f"{place}: found no sample beside endpoint, expected the number of passages to ask about; add it"
        if (origin == "endpoint" or "judge" in split) and "endpoint" not in config:
            yield f"{place}: found no section endpoint, expected a model to ask; add `endpoint: {{model: NAME}}`"
        if origin != "files":
            known = [*COPIED, "endpoint", *(f"expanders.{expander}" for expander in config["expanders"])]
            yield from check_name(f"{place}.generate.from", origin, known)


def _check_source(place: str, name: str, collection: Config, splits: Config) -> Iterator[str]:
    """Check where the queries and judgements of a split come from."""
    split = splits[name]
    found = [key for key in ("queries", "hold_out", *SPLIT_SOURCES) if key in split]
    if "pydocs" in collection:
        if name not in PYDOCS_SPLITS:
            yield f"{place}: found the split {name}, expected {listed(PYDOCS_SPLITS)}, as pydocs makes them; remove it"
        for key in found:
            yield f"{place}: found {key}, expected none, as pydocs makes the split; remove it"
    elif not found:
        yield f"{place}: found no queries, expected files, or one of hold_out, {listed(SPLIT_SOURCES)}; add them"
    elif name in TRAINING_SPLITS and found == ["queries"] and "qrels" not in split:
        yield f"{place}: found queries without qrels, expected judgements to learn from; add qrels"
    if "hf" in found and "hf" not in collection:
        yield f"{place}.hf: found hf without collection.hf, expected both; name files, or irds"
    if "hold_out" in found and (name == "train" or "train" not in splits):
        yield f"{place}: found hold_out, expected a split train to draw from; name files"
    for other in one_or_more(split.get("without", [])):
        if name in _reached(splits, other) or "hold_out" in splits.get(other, {}):
            yield f"{place}.without: found {other!r}, expected another split made of whole files; name one"


def _reached(splits: Config, name: str) -> set[str]:
    """Collect a split, those that it leaves out, those that these leave out, and so on."""
    reached, names = set[str](), [name]
    while names:
        if (name := names.pop()) not in reached:
            reached.add(name)
            names += one_or_more(splits.get(name, {}).get("without", []))
    return reached


def learnt_from(experiment: Experiment) -> list[str]:
    """List the splits that systems learn from: `train` trains models and tunes BM25, `validation` chooses."""
    config, systems, trained = experiment.config, experiment.systems.values(), experiment.trainings
    chosen = [
        *(name for section, name in trained if config[section][name]["checkpoint"] == "best"),
        *experiment.tuned_systems,
        *(system for system in systems if system.chosen_by_audit()),
    ]
    tuned = any(system.lexical_index() and system.tune and not system.folds() for system in systems)
    learnt = {"train": bool(trained or tuned), "validation": bool(chosen)}
    return [name for name in TRAINING_SPLITS if name in config["splits"] and learnt[name]]


def splits_apart(experiment: Experiment) -> list[tuple[str, str]]:
    """List pairs of splits that must not share queries: those that systems learn from, and those they are measured on.

    A held-out split is drawn from train and removed from it, so these two are not compared.
    """
    learnt = learnt_from(experiment)
    pairs = [*combinations(learnt, 2), *((first, second) for first in learnt for second in experiment.evaluated_splits)]
    return [
        (first, second)
        for first, second in pairs
        if first != "train" or "hold_out" not in experiment.config["splits"][second]
    ]


def pairs_of_splits(experiment: Experiment) -> list[tuple[str, str]]:
    """List the pairs of a split for training and another split."""
    training = [name for name in TRAINING_SPLITS if name in experiment.config["splits"]]
    return [pair for pair in combinations([*training, *experiment.ranked_splits], 2) if pair[0] in TRAINING_SPLITS]


def labelled_twice(experiment: Experiment) -> list[tuple[str, str]]:
    """List the pairs of evaluated splits whose labels are of other kinds, or which judge the same queries otherwise."""

    def differ(first: str, second: str) -> bool:
        one, other = (experiment.config["splits"][name] for name in (first, second))
        again = one.get("queries", "") == other.get("queries") and one.get("qrels") != other.get("qrels")
        return again or experiment.labels_of(first) != experiment.labels_of(second)

    return [pair for pair in combinations(experiment.evaluated_splits, 2) if differ(*pair)]


def check_aggregation(experiment: Experiment) -> Iterator[str]:
    """Check that no model is trained if documents are judged, because models learn from passages."""
    how = experiment.config["collection"].get("aggregate", "none")
    trained = [f"{section}.{name}" for section, name in experiment.trainings]
    if trained and how != "none":
        found, why = f"{how} with training of {listed(trained)}", "as models learn from judged passages, not documents"
        yield f"collection.aggregate: found {found}, expected none, {why}; judge passages, or name released models"


def check_apart(experiment: Experiment) -> Iterator[str]:
    """Check that no file of judgements is used both to learn from and to measure with."""
    for first, second in splits_apart(experiment):
        learnt, measured = (experiment.config["splits"][name] for name in (first, second))
        files = {normpath(file) for file in one_or_more(learnt.get("qrels", []))}
        shared = [file for file in one_or_more(measured.get("qrels", [])) if normpath(file) in files]
        apart = second in one_or_more(learnt.get("without", [])) or first in one_or_more(measured.get("without", []))
        # Two samples of a file may differ; `split` drops what they share.
        if shared and not apart and not ("sample" in learnt and "sample" in measured):
            yield (
                f"splits.{second}.qrels: found {shared[0]}, which splits.{first} has, too, expected other judgements "
                f"than those that systems learn from; name other files, or add {second} to splits.{first}.without"
            )


def check_judges(experiment: Experiment) -> Iterator[str]:
    """Check which splits are judged by an endpoint, and that nothing that it judges depends on it."""
    config, splits = experiment.config, experiment.splits_with("judge")
    known = [name for name in experiment.ranked_splits if name not in splits]
    for split in splits:
        place, judged = f"splits.{split}.judge", config["splits"][split]["judge"]["split"]
        yield from check_name(f"{place}.split", judged, known)
        if split in TRAINING_SPLITS:
            yield f"{place}: found it in {split}, expected it in a split that is only evaluated; rename the split"
        for name, system in experiment.systems.items():
            tuned = system.folds() or (system.chosen_by_audit() and "validation" not in config["splits"])
            if tuned and [split] == experiment.evaluated_splits[:1] and judged in experiment.unjudged_splits:
                found = f"{judged}, on which systems.{name} would be tuned by these judgements"
                yield f"{place}.split: found {found}, expected a split with other judgements before; add one"
