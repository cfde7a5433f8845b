"""Settings as params of rules: words of a command line whose repr, which Snakemake compares, is the config's values.

The code of a stage is a param, too, so that a change of the code reruns its rules.

A part is a function of the config and a job's wildcards that returns such words. Paths in the config have dots, and
wildcards in braces: "encoders.{encoder}.margin".
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


#: beginning of the repr of settings
SETTINGS = "settings "


class Words(list[str]):
    """Words of a command line; their repr, which Snakemake compares, is the settings they come from."""

    def __init__(self, words: Iterable[str] = (), settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(words)
        self.settings = dict(settings or {})

    def __repr__(self) -> str:
        return f"{SETTINGS}{json.dumps(self.settings, ensure_ascii=False)}"

    def __add__(self, other: list[str]) -> Words:  # type: ignore[override]
        return Words([*self, *other], {**self.settings, **getattr(other, "settings", {})})


def option(name: str, value: Any) -> list[str]:
    """Write a long option with its value or list of values; nothing for None or an empty list."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [f"--{name.replace('_', '-')}", *map(str, values)] if values else []


def look_up(config: Config, path: str, wildcards: Wildcards) -> tuple[str, Any]:
    """Return a path in the config with its wildcards filled in, and its value."""
    keys = [key.format(**wildcards) if "{" in key else key for key in path.split(".")]
    value: Any = config
    for key in keys:
        value = value[key]
    return ".".join(keys), value


def entry_of(config: Config, section: str, wildcards: Wildcards) -> Config:
    """Return the entry of a section such as "encoders" that a job's wildcard names."""
    entry: Config = config[section][getattr(wildcards, section.removesuffix("s"))]
    return entry


def at(path: str, name: str | None = None) -> Part:
    """Give the value at a path as the option `name`, by default the path's last key."""

    def read(config: Config, wildcards: Wildcards) -> Words:
        place, value = look_up(config, path, wildcards)
        return Words(option(name or path.rpartition(".")[2], value), {place: value})

    return read


def optional(path: str) -> Part:
    """Give the value at a path, if it is set."""
    section, _, key = path.rpartition(".")

    def read(config: Config, wildcards: Wildcards) -> Words:
        return at(path)(config, wildcards) if key in look_up(config, section, wildcards)[1] else Words()

    return read


def among(section: str, *names: str) -> Part:
    """Give the values of some keys of a section as options of these names."""
    return join(*(f"{section}.{name}" for name in names))


def all_of(section: str, but: Iterable[str] = ()) -> Part:
    """Give all values of a section, except those of some keys, as options."""
    left_out = frozenset(but)

    def read(config: Config, wildcards: Wildcards) -> Words:
        place, values = look_up(config, section, wildcards)
        names = sorted(values.keys() - left_out)
        words = [word for name in names for word in option(name, values[name])]
        return Words(words, {f"{place}.{name}": values[name] for name in names})

    return read


def join(*parts: str | Part, **renamed: str) -> Part:
    """Join parts: paths, other parts, and paths of options with other names."""
    read_all = [at(part) if isinstance(part, str) else part for part in parts]
    read_all += [at(path, name) for name, path in renamed.items()]

    def read(config: Config, wildcards: Wildcards) -> Words:
        return sum((part(config, wildcards) for part in read_all), Words())

    return read


@functools.cache
def code_of(stage: str) -> dict[str, str]:
    """Hash each file that `stage` (``"fuse"``, or with a command ``"encode tokens"``) imports, by path.

    :raises ValueError: if there is no such stage.
    """
    # Snakemake creates this folder later.
    (ROOT / CACHE).parent.mkdir(exist_ok=True)
    code = program_of(f"cort.{stage}")
    if f"cort/{stage.split()[0]}.py" not in code:
        raise ValueError(f"workflow/rules: found code_of({stage!r}), expected a stage; name a module of cort/")
    return code


def read_code(param: str) -> dict[str, str] | None:
    """Read the code of a stage from the repr of a param; None for other params."""
    return dict(ast.literal_eval(param)) if param.startswith("{") and ".py'" in param else None
