"""What the keys of several sections share: types, patterns of names, and keys that are also options of stages."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias

from cort.runtime.keys import section, setting

Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "fp16"]
PrecisionOrAuto: TypeAlias = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
Cleaning: TypeAlias = Literal["raw", "fixed", "cort"]

#: patterns of names: of files and folders; of splits, which are part of patterns of paths; of systems
NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
SPLIT_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]*$"
SYSTEM_NAME = "^[A-Za-z0-9][A-Za-z0-9+_.-]*$"

# Stands for the default of a key.
OF_KEY = object()


def as_key(
    owner: type[Any], name: str, help: str = "", metavar: str | None = None, default: Any = OF_KEY, **rules: Any
) -> Any:
    """Declare an option that is also a key of a section, `owner`: with its rules and, unless given, default and help.

    Stages that have options for all keys of a section inherit it instead. The option may have another name.
    """
    field = owner.__dataclass_fields__[name]
    own: dict[str, Any] = {"help": "", "metavar": None, "rules": {}, **field.metadata}
    given = {"help": help or own["help"], "metavar": metavar or own["metavar"], "rules": {**own["rules"], **rules}}
    default = field.default if default is OF_KEY else default
    return dataclasses.field(default=default, metadata={"key": (owner, name), **given})


@section
class General:
    """Top-level keys that are also options of stages."""

    seed: int = setting(42, metavar="N", ge=0, le=4_294_967_295)
    depth: int = setting(1000, "results per query", "N", ge=1, le=100_000)


@section
class Released:
    """Keys of all models that may come from a hub."""

    revision: str | None = setting(None, "commit of the hub repository; required for a hub name")
    """Commit of the hub repository, all 40 digits; required with a hub name."""
