"""What the keys of several sections share: types, patterns of names, and keys that are also options of stages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from cort.runtime.sections import Maybe, Section, Text

Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "fp16"]
PrecisionOrAuto: TypeAlias = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
Cleaning: TypeAlias = Literal["raw", "fixed", "cort"]
#: types of the numbers of a vector
Storage: TypeAlias = Literal["fp32", "fp16", "int8"]

#: patterns of names: of files and folders; of splits, which are part of patterns of paths; of systems
NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
SPLIT_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]*$"
SYSTEM_NAME = "^[A-Za-z0-9][A-Za-z0-9+_.-]*$"
Name: TypeAlias = Annotated[str, Field(pattern=NAME)]
SplitName: TypeAlias = Annotated[str, Field(pattern=SPLIT_NAME)]
SystemName: TypeAlias = Annotated[str, Field(pattern=SYSTEM_NAME)]

#: one or more texts, such as names of files
Listed: TypeAlias = Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
#: a depth at which something is measured
Cutoff: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]


def one_or_more(named: str | Iterable[str]) -> list[str]:
    """Return a list of names, where the config has a single name or a list."""
    return [named] if isinstance(named, str) else list(named)


class Seed(Section):
    """The seed."""

    seed: int = Field(42, ge=0, le=4_294_967_295)
    """Seed of every random choice (splits, initial weights, sampling, dropout)."""


class Depth(Section):
    """The depth of runs."""

    depth: int = Field(1000, ge=1, le=100_000)
    """Results per query."""


class Revision(Section):
    """A fixed version of a model on a hub."""

    revision: Maybe[Text] = None
    """Commit of the hub repository, all 40 digits, or `refs/pr/N@COMMIT`, a pull request and the beginning of its
    commit. Required with a hub name."""
