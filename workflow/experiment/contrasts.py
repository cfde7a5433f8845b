"""Which systems of an experiment are compared with which, besides the baseline."""

from __future__ import annotations

from collections.abc import Iterator

from workflow.experiment.config import Config, compared, is_trained, parts_of


def pairs(config: Config, split: str) -> dict[str, list[tuple[str, str]]]:
    """List the pairs of systems that are compared on a split: with their parts, with their starts, and contrasts."""
    names = compared(config, split)
    found = {
        "parts": [(name, part) for name in names for part in parts_of(config["systems"][name])],
        "starts": [(name, start) for name in names for start in _starts(config, name)],
        "contrasts": [(first, second) for first, second in config["evaluation"]["contrasts"]],
    }
    return {kind: [pair for pair in listed if {*pair} <= {*names}] for kind, listed in found.items()}


def _starts(config: Config, name: str) -> Iterator[str]:
    """Find systems that search as this one does, but with the encoder that the training of its encoder started from."""
    system = config["systems"][name]
    encoder = config["encoders"].get(system.get("retrieve"))
    if encoder is not None and is_trained(encoder) and "start" in encoder:
        searched = system | {"retrieve": encoder["start"]}
        yield from (other for other, one in config["systems"].items() if one == searched)
