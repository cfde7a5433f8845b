"""Check what an experiment's config says about the collection and the splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os.path import normpath

from cort.config.collection import (
    COPIED,
    Docstrings,
    Generated,
    HeldOut,
    HubCollection,
    HubSplit,
    Judged,
    Queries,
    Split,
    Whole,
)
from cort.config.comparisons import splits_apart
from cort.config.entries import SOURCES, SPLIT_SOURCES, TRAINING_SPLITS, listed
from cort.config.experiment import Experiment
from cort.runtime.errors import check_name
from cort.runtime.sections import keys_of

PYDOCS_SPLITS = (*TRAINING_SPLITS, "test")


def check_collection(experiment: Experiment) -> Iterator[str]:
    """Check the sources of passages and queries."""
    collection, splits, divided = experiment.collection, experiment.splits, experiment.collection.division
    if getattr(collection, "passages", None) and bool(divided) != bool(collection.source):
        found = f"a file beside {collection.source}" if collection.source else f"no file and none of {listed(SOURCES)}"
        yield f"collection.passages: found {found}, expected one source; name one file, or how documents are divided"
        return
    if divided and divided.overlap >= divided.words:
        expected = f"fewer than the {divided.words} words of a passage"
        yield f"collection.passages.overlap: found {divided.overlap}, expected {expected}; lower it"
    if not experiment.ranked_splits:
        yield f"splits: found only {listed(splits)}, expected a split to evaluate besides train and validation; add one"
    for name, split in splits.items():
        if split.measures and name not in experiment.evaluated_splits:
            found, expected = "found measures", "expected none, as the split is not evaluated"
            yield f"splits.{name}.measures: {found}, {expected}; remove them"
        yield from _check_source(f"splits.{name}", name, experiment)
    yield from _check_generated(experiment)
    if len(held := experiment.splits_of_class(HeldOut)) > 1:
        yield f"splits: found hold_out in {listed(held)}, expected it in one split; name files for the others"


def _check_generated(experiment: Experiment) -> Iterator[str]:
    """Check that splits are generated from one source; or, with parts of documents, all splits."""
    origins = {
        split.generate.from_ if isinstance(split, Generated) else "files" for split in experiment.splits.values()
    }
    origins -= {"files"} if experiment.copied_from is None else set()
    if len(origins) > 1:
        expected = "one of these in all splits, as text used as a query is removed from the index"
        found = f"queries from {listed(sorted(origins))}"
        yield f"splits: found {found}, expected {expected}; use an experiment for each"
    for name, split in experiment.splits.items():
        asks = isinstance(split, Judged) or (isinstance(split, Generated) and split.generate.from_ == "endpoint")
        if asks and not (experiment.root.endpoint and experiment.root.endpoint.model):
            found, fix = "no endpoint.model", "add `endpoint: {model: NAME}`"
            yield f"splits.{name}: found {found}, expected a model to ask; {fix}"
        if isinstance(split, Generated):
            yield from _check_origin(f"splits.{name}", split, experiment)


def _check_origin(place: str, split: Generated, experiment: Experiment) -> Iterator[str]:
    """Check what the queries of a split are generated from."""
    how = split.generate
    if how.min_words > how.max_words:
        expected = f"at most max_words ({how.max_words})"
        yield f"{place}.generate.min_words: found {how.min_words}, expected {expected}; lower it"
    if how.from_ == "endpoint" and not split.sample:
        yield f"{place}: found no sample beside endpoint, expected the number of passages to ask about; add it"
    known = [*COPIED, "endpoint", *(f"expanders.{expander}" for expander in experiment.root.expanders)]
    yield from check_name(f"{place}.generate.from", how.from_, known)


def _check_source(place: str, name: str, experiment: Experiment) -> Iterator[str]:
    """Check where the queries and judgements of a split come from."""
    splits, split = experiment.splits, experiment.splits[name]
    found = [key for key in ("queries", "hold_out", *SPLIT_SOURCES) if key in keys_of(type(split))]
    if isinstance(experiment.collection, Docstrings):
        if name not in PYDOCS_SPLITS:
            yield f"{place}: found the split {name}, expected {listed(PYDOCS_SPLITS)}, as pydocs makes them; remove it"
        for key in found:
            yield f"{place}: found {key}, expected none, as pydocs makes the split; remove it"
    elif not found:
        yield f"{place}: found no queries, expected files, or one of hold_out, {listed(SPLIT_SOURCES)}; add them"
    elif name in TRAINING_SPLITS and isinstance(split, Queries):
        yield f"{place}: found queries without qrels, expected judgements to learn from; add qrels"
    if isinstance(split, HubSplit) and not isinstance(experiment.collection, HubCollection):
        yield f"{place}.hf: found hf without collection.hf, expected both; name files, or irds"
    if isinstance(split, HeldOut) and (name == "train" or "train" not in splits):
        yield f"{place}: found hold_out, expected a split train to draw from; name files"
    for other in split.left_out:
        if name in _reached(splits, other) or isinstance(splits.get(other), HeldOut):
            yield f"{place}.without: found {other!r}, expected another split made of whole files; name one"


def _reached(splits: Mapping[str, Split], name: str) -> set[str]:
    """Collect a split, those that it leaves out, those that these leave out, and so on."""
    reached, names = set[str](), [name]
    while names:
        if (name := names.pop()) not in reached:
            reached.add(name)
            names += splits[name].left_out if name in splits else []
    return reached


def check_aggregation(experiment: Experiment) -> Iterator[str]:
    """Check that no model is trained if documents are judged, because models learn from passages."""
    how = experiment.collection.aggregate
    trained = [f"{section}.{name}" for section, name in experiment.learners]
    if trained and how != "none":
        found, why = f"{how} with training of {listed(trained)}", "as models learn from judged passages, not documents"
        yield f"collection.aggregate: found {found}, expected none, {why}; judge passages, or name released models"


def check_apart(experiment: Experiment) -> Iterator[str]:
    """Check that no file of judgements is used both to learn from and to measure with."""
    for first, second in splits_apart(experiment):
        learnt, measured = experiment.splits[first], experiment.splits[second]
        files = {normpath(file) for file in learnt.files("qrels")}
        shared = [file for file in measured.files("qrels") if normpath(file) in files]
        apart = second in learnt.left_out or first in measured.left_out
        # Two samples of a file may differ; `split` drops what they share.
        sampled = all(isinstance(one, Whole) and one.sample for one in (learnt, measured))
        if shared and not apart and not sampled:
            yield (
                f"splits.{second}.qrels: found {shared[0]}, which splits.{first} has, too, expected other judgements "
                f"than those that systems learn from; name other files, or add {second} to splits.{first}.without"
            )


def check_judges(experiment: Experiment) -> Iterator[str]:
    """Check which splits are judged by an endpoint, and that nothing that it judges depends on it."""
    known = [name for name in experiment.ranked_splits if name not in experiment.judging]
    for split, how in experiment.judging.items():
        place, judged = f"splits.{split}.judge", how.split
        yield from check_name(f"{place}.split", judged, known)
        if split in TRAINING_SPLITS:
            yield f"{place}: found it in {split}, expected it in a split that is only evaluated; rename the split"
        for name, system in experiment.systems.items():
            tuned = system.folds() or (system.chosen_by_audit() and "validation" not in experiment.splits)
            if tuned and [split] == experiment.evaluated_splits[:1] and judged in experiment.unjudged_splits:
                found = f"{judged}, on which systems.{name} would be tuned by these judgements"
                yield f"{place}.split: found {found}, expected a split with other judgements before; add one"
