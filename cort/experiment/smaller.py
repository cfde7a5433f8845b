"""Systems that search smaller forms of an encoder's vectors: fewer numbers (`dimensions`), smaller ones (`storage`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from cort.settings.config import Config, one_or_more

#: keys of a system that make it search a smaller form
KEYS = ("dimension", "storage")


def check_smaller(config: Config) -> Iterator[str]:
    """Yield a line for each name that is taken, and each encoder that would store what is made from stored vectors."""
    for name, encoder in config.get("encoders", {}).items():
        if one_or_more(encoder.get("storage", ""))[:1] == ["int8"]:
            expected = "fp32 or fp16 before it, which is stored"
            yield f"encoders.{name}.storage: found int8, expected {expected}; list both"
    for name, system in config["systems"].items():
        for made in _forms_of(config, name, system).keys() & config["systems"].keys():
            found = f"found the name of {name} with other vectors"
            yield f"systems.{made}: {found}, expected another one; rename it, or shorten the encoder's lists"


def add_smaller(config: Config) -> None:
    """Add the systems, in place, after the one that searches the whole vectors; encoders keep the stored type alone."""
    systems: Config = {}
    for name, system in config["systems"].items():
        systems |= {name: system, **_forms_of(config, name, system)}
    config["systems"] = systems
    for encoder in config.get("encoders", {}).values():
        encoder.pop("dimensions", None)
        if "storage" in encoder:
            encoder["storage"] = one_or_more(encoder["storage"])[0]


def _forms_of(config: Config, name: str, system: Config) -> Config:
    encoder: Config = config.get("encoders", {}).get(system.get("retrieve"), {})
    if system.keys() != {"retrieve"}:
        return {}
    choices = product([None, *encoder.get("dimensions", [])], [None, *one_or_more(encoder.get("storage", []))[1:]])
    forms = [{key: value for key, value in zip(KEYS, one, strict=True) if value is not None} for one in choices]
    return {"-".join([name, *map(str, form.values())]): system | form for form in forms if form}


def whole_of(config: Config, name: str) -> str | None:
    """Name the system that searches the whole vectors of which a system searches a smaller form."""
    system = config["systems"][name]
    whole = {key: value for key, value in system.items() if key not in KEYS}
    others = (other for other, entry in config["systems"].items() if entry == whole)
    return next(others, None) if len(whole) < len(system) else None
