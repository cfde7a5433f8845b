"""Which systems are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.entries import Config, is_trained
from cort.config.experiment import Experiment

#: keys of a system that make it search a smaller form of the vectors
KEYS_OF_SMALLER = ("dimension", "storage")


def pairs(experiment: Experiment, split: str) -> dict[str, list[tuple[str, str]]]:
    """List the pairs of systems compared on a split: with their parts, their starts, contrasts and whole vectors."""
    names = experiment.compared(split)
    by_relation = {
        "parts": [(name, part) for name in names for part in experiment.systems[name].parts()],
        "starts": [(name, start) for name in names for start in _starts(experiment.config, name)],
        "contrasts": [(first, second) for first, second in experiment.config["evaluation"]["contrasts"]]
        + [(name, whole) for name in names if (whole := whole_of(experiment.config, name))],
    }
    return {relation: [pair for pair in listed if {*pair} <= {*names}] for relation, listed in by_relation.items()}


def _starts(config: Config, name: str) -> Iterator[str]:
    """Find systems that search like this one, but with the encoder that its encoder was trained from."""
    system, encoders = config["systems"][name], config["encoders"]
    encoder = encoders.get(system.get("retrieve"))
    if encoder is None or not is_trained(encoder):
        return
    starts = {encoder.get("start"), *(other for other in encoders if _is_untrained(encoders[other], encoder))}
    for other, entry in config["systems"].items():
        if entry.get("retrieve") in starts - {None} and entry == system | {"retrieve": entry["retrieve"]}:
            yield other


def _is_untrained(other: Config, encoder: Config) -> bool:
    """Tell whether an encoder is the released one that another was trained from."""
    same = all(other.get(key) == encoder.get(key) for key in ("pretrained", "revision"))
    return "pretrained" in encoder and not is_trained(other) and same


def whole_of(config: Config, name: str) -> str | None:
    """Name the system that searches the whole vectors of which a system searches a smaller form."""
    system = config["systems"][name]
    whole = {key: value for key, value in system.items() if key not in KEYS_OF_SMALLER}
    others = (other for other, entry in config["systems"].items() if entry == whole)
    return next(others, None) if len(whole) < len(system) else None
