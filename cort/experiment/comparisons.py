"""Which systems are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator

from cort.experiment.config import compared
from cort.settings.config import Config, is_trained
from cort.systems.registry import system_of


def pairs(config: Config, split: str) -> dict[str, list[tuple[str, str]]]:
    """List the pairs of systems that are compared on a split: with their parts, with their starts, and contrasts."""
    names = compared(config, split)
    pairs_by_kind = {
        "parts": [(name, part) for name in names for part in system_of(config, name).parts()],
        "starts": [(name, start) for name in names for start in _starts(config, name)],
        "contrasts": [(first, second) for first, second in config["evaluation"]["contrasts"]],
    }
    return {kind: [pair for pair in listed if {*pair} <= {*names}] for kind, listed in pairs_by_kind.items()}


def _starts(config: Config, name: str) -> Iterator[str]:
    """Find systems that search as this one does, but with the encoder that the training of its encoder started from."""
    system, encoders = config["systems"][name], config["encoders"]
    encoder = encoders.get(system.get("retrieve"))
    if encoder is None or not is_trained(encoder):
        return
    starts = {encoder.get("start"), *(other for other in encoders if _is_untrained(encoders[other], encoder))}
    for other, one in config["systems"].items():
        if one.get("retrieve") in starts - {None} and one == system | {"retrieve": one["retrieve"]}:
            yield other


def _is_untrained(other: Config, encoder: Config) -> bool:
    """Tell whether an encoder is the released one that another was trained from."""
    origins = [[one.get(key) for key in ("pretrained", "revision")] for one in (other, encoder)]
    return "pretrained" in encoder and not is_trained(other) and origins[0] == origins[1]
