"""Check what an experiment's config says about the collection and the splits."""

from __future__ import annotations

from collections.abc import Iterator

from cort.formats.schemas import check_name
from workflow.experiment.config import TRAINING_SPLITS, Config, entries, evaluated_splits, listed, ranked_splits
from workflow.experiment.systems import check_measures

PYDOCS_SPLITS = (*TRAINING_SPLITS, "test")


def check_collection(config: Config) -> Iterator[str]:
    """Check where passages and queries come from."""
    collection, splits = config["collection"], config["splits"]
    if len(collection.keys() & {"passages", "pydocs"}) != 1:
        yield f"collection: found {listed(collection)}, expected exactly one of passages and pydocs; keep one"
        return
    if not ranked_splits(config):
        yield f"splits: found only {listed(splits)}, expected a split to evaluate besides train and validation; add one"
    elif not evaluated_splits(config):
        yield f"splits: found no qrels of {listed(ranked_splits(config))}, expected those of one at least; name them"
    for name, split in entries(config, "splits"):
        files = sorted(split.keys() & {"queries", "qrels", "hold_out"})
        check = _check_pydocs_split if "pydocs" in collection else _check_files
        yield from check(f"splits.{name}", name, files, splits)
    held = [name for name, split in entries(config, "splits") if "hold_out" in split]
    if len(held) > 1:
        yield f"splits: found hold_out in {listed(held)}, expected it in one split; name files for the others"


def _check_pydocs_split(place: str, name: str, files: list[str], _: Config) -> Iterator[str]:
    if name not in PYDOCS_SPLITS:
        yield f"{place}: found the split {name}, expected {listed(PYDOCS_SPLITS)}, as pydocs makes them; remove it"
    for key in files:
        yield f"{place}: found {key}, expected none, as pydocs makes the split; remove it"


def _check_files(place: str, name: str, files: list[str], splits: Config) -> Iterator[str]:
    unjudged = files == ["queries"] and name not in TRAINING_SPLITS
    if files not in (["hold_out"], ["qrels", "queries"]) and not unjudged:
        expected = "queries and qrels, queries alone (ranked, not measured), or hold_out alone"
        if name in TRAINING_SPLITS:
            expected = "queries and qrels, or hold_out alone"
        yield f"{place}: found {listed(files)}, expected {expected}; fix the split"
    if "hold_out" in files and (name == "train" or "train" not in splits):
        yield f"{place}: found hold_out, expected a split train beside it to draw from; name files"
    split = splits[name]
    for key in split.keys() & {"without", "sample"}:
        if "queries" not in files:
            yield f"{place}.{key}: found {key}, expected it with files of queries; remove it"
    if "without" in split:
        other = split["without"]
        yield from check_name(f"{place}.without", other, splits)
        named = splits.get(other) or {}
        if other == name or "without" in named or "hold_out" in named:
            yield f"{place}.without: found {other!r}, expected another split made of whole files; name one"


def check_measures_of_splits(config: Config) -> Iterator[str]:
    """Check what splits are measured by."""
    for name, split in entries(config, "splits"):
        place = f"splits.{name}.measures"
        if "measures" in split and name not in evaluated_splits(config):
            yield f"{place}: found measures, expected none, as the split is not evaluated; remove them"
        yield from check_measures(place, split.get("measures", []))
