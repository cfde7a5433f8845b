"""Check values by the rules that their keys declare, and JSON schema does not have (`cort/settings/fields.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cort.evaluation.names import KNOWN, parse_measure
from cort.runtime.errors import check_name
from cort.settings.config import Config, part_of


def check_rules(config: Config, schema: Config) -> Iterator[str]:
    """Yield a line for each mistake in a config of the right shape."""
    return _check_part("", config, schema, config)


def _check_part(place: str, value: Any, schema: Config, config: Config) -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _check_part(f"{place}.{key}".lstrip("."), part, part_of(schema, key), config)
    elif "rules" in schema:
        entries = value if isinstance(value, list) else [value]
        # Entries are texts, numbers, or pairs of texts.
        names = [name for entry in entries for name in (entry if isinstance(entry, list) else [entry])]
        yield from _check_names(place, names, schema, config)
        yield from _check_entries(place, entries, schema["rules"])


def _check_names(place: str, names: list[str], schema: Config, config: Config) -> Iterator[str]:
    rules = schema["rules"]
    for name in names:
        if "names" in rules:
            yield from check_name(place, name, config[rules["names"]])
        if "measures" in rules and parse_measure(name) is None and name != schema.get("default"):
            yield f"{place}: found {name!r}, expected one of {KNOWN}; fix it"


def _check_entries(place: str, entries: list[Any], rules: Config) -> Iterator[str]:
    if "unique" in rules:
        shown = [f"[{', '.join(entry)}]" if isinstance(entry, list) else entry for entry in entries]
        for entry, times in Counter(shown).items():
            if times > 1:
                yield f"{place}: found {entry} {times} times, expected each once; remove one"
    if "increasing" in rules and entries != sorted(set(entries)):
        yield f"{place}: found {entries}, expected increasing numbers; sort them"
