"""Settings as params of rules: words of a command line, of which Snakemake records and compares the config's values.

The code of a stage is a param, too, so that Snakemake runs its rules again when it does something else.

A part is a function of the config and a rule's wildcards that gives such words. Paths in the config are written with
dots, as "encoders.{encoder}.margin"; what stands in braces is the value of a wildcard.
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from cort.settings.config import Config
from cort.system.program import CACHE, ROOT, program_of

Wildcards: TypeAlias = Any
Part: TypeAlias = "Callable[[Config, Wildcards], Words]"


#: how the repr of settings begins
SETTINGS = "settings "


class Words(list[str]):
    """Words of a command line; their repr, which is all that Snakemake looks at, are the settings they come from."""

    def __init__(self, words: Iterable[str] = (), settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(words)
        self.settings = dict(settings or {})

    def __repr__(self) -> str:
        return f"{SETTINGS}{json.dumps(self.settings, ensure_ascii=False)}"

    def __add__(self, other: list[str]) -> Words:  # type: ignore[override]
        return Words([*self, *other], {**self.settings, **getattr(other, "settings", {})})


def option(name: str, value: Any) -> list[str]:
    """Write a long option, of a list with all its values; None is none."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [f"--{name.replace('_', '-')}", *map(str, values)] if values else []


def look_up(config: Config, path: str, wildcards: Wildcards) -> tuple[str, Any]:
    """Return a path in the config as it is called, and its value."""
    keys = [key.format(**wildcards) if "{" in key else key for key in path.split(".")]
    value: Any = config
    for key in keys:
        value = value[key]
    return ".".join(keys), value


def at(path: str, name: str | None = None) -> Part:
    """Give the value at a path as the option `name`, else as one of its last key's name."""

    def read(config: Config, wildcards: Wildcards) -> Words:
        place, value = look_up(config, path, wildcards)
        return Words(option(name or path.rpartition(".")[2], value), {place: value})

    return read


def optional(path: str) -> Part:
    """Give the value at a path, if it is there."""
    section, _, key = path.rpartition(".")

    def read(config: Config, wildcards: Wildcards) -> Words:
        return at(path)(config, wildcards) if key in look_up(config, section, wildcards)[1] else Words()

    return read


def among(section: str, *names: str) -> Part:
    """Give the values of some keys of a section, each as the option of its name."""
    return join(*(f"{section}.{name}" for name in names))


def all_of(section: str, but: Iterable[str] = ()) -> Part:
    """Give all values of a section but some, each as the option of its key's name."""
    left_out = frozenset(but)

    def read(config: Config, wildcards: Wildcards) -> Words:
        place, values = look_up(config, section, wildcards)
        names = sorted(values.keys() - left_out)
        words = [word for name in names for word in option(name, values[name])]
        return Words(words, {f"{place}.{name}": values[name] for name in names})

    return read


def join(*parts: str | Part, **renamed: str) -> Part:
    """Put parts together: paths, other parts, and paths whose option has another name than their last key."""
    read_all = [at(part) if isinstance(part, str) else part for part in parts]
    read_all += [at(path, name) for name, path in renamed.items()]

    def read(config: Config, wildcards: Wildcards) -> Words:
        return sum((part(config, wildcards) for part in read_all), Words())

    return read


@functools.cache
def code_of(stage: str) -> dict[str, str]:
    """Hash each file that `stage` (``"fuse"``, or with a command ``"encode tokens"``) imports, by path.

    :raises ValueError: when there is no such stage.
    """
    # Snakemake makes this folder too, but later.
    (ROOT / CACHE).parent.mkdir(exist_ok=True)
    found = program_of(f"cort.{stage}")
    if f"cort/{stage.split()[0]}.py" not in found:
        raise ValueError(f"workflow/rules: found code_of({stage!r}), expected a stage; name a module of cort/")
    return found


def read_code(param: str) -> dict[str, str] | None:
    """Read the code of a stage from the repr of a param; None if it is another param."""
    return dict(ast.literal_eval(param)) if param.startswith("{") and ".py'" in param else None
