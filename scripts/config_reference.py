"""Write docs/reference.md, the reference of all keys of a config, and the schema for editors.

Usage: python -m scripts.config_reference           rewrites both
       python -m scripts.config_reference --check   exits with status 1 if one differs from cort/settings
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

from cort.experiment.checks import with_defaults
from cort.experiment.keys import Encoder, Experiment, Reranker
from cort.experiment.recipes import keys_of_recipes, load_recipes, value_at, with_recipes
from cort.settings.config import LEARNERS, Config
from scripts.bench.common import ROOT, markdown, parse
from scripts.json_schema import schema_of

Schema: TypeAlias = dict[str, Any]

REFERENCE = ROOT / "docs" / "reference.md"
SCHEMA = ROOT / "config" / "experiment.schema.json"
HEAD = """\
<!-- Written by `python -m scripts.config_reference` from cort/settings. -->

# Every key of an experiment

In brackets: the type with its bounds, then the default; a key without a default is unset, unless it is *required*.
Keys marked † change no result, so changing them reruns nothing. A key that repeats another part of the reference
refers to it. Names (`<name>`) have letters, digits and `_ . -`, those of splits `_ -`, those of systems also `+`.
Examples: [config](../config/README.md).
"""
MODELS = {"encoders": Encoder, "rerankers": Reranker}
TYPES = {"object": "mapping", "array": "list"}
# Mappings that share at least so many keys with an earlier one refer to it.
SHARED = 3


def render(schema: Schema) -> str:
    """Write the keys outside sections, then each section."""
    alone = {key: part for key, part in schema["properties"].items() if part.get("type") != "object"}
    seen: dict[str, Schema] = {}
    parts = [HEAD, "\n".join(["## Top level", "", *_lines(schema | {"properties": alone}, "", seen), ""])]
    for key, part in schema["properties"].items():
        if key not in alone:
            need = " Required." if key in schema["required"] else ""
            pattern = part.get("propertyNames", {}).get("pattern")
            entries = part["additionalProperties"] if pattern else part
            path = f"{key}.<name>" if pattern else key
            lines = [f"## {path}", "", f"{part['description']}{need}", "", *_lines(entries, path, seen)]
            recipes = _recipes(key) if key in LEARNERS else []
            parts.append("\n".join([*lines, *recipes, ""]))
    return "\n".join(parts)


def _recipes(section: str) -> list[str]:
    """Write a table of the values of each recipe that differ from the defaults."""
    chosen = [name for name in load_recipes() if section in load_recipes()[name] and load_recipes()[name][section]]
    columns = [(name, False) for name in chosen]
    columns += [(name, True) for name in load_recipes(random=True) if section in load_recipes(random=True)[name]]
    default = _of_recipe(section, "paper", random=False)
    values = [_of_recipe(section, name, random=random) for name, random in columns]
    rows = [
        (f"`{path}`", *(f"`{_json(value_at(model, path))}`" for model in values))
        for path in keys_of_recipes(section)
        if any(value_at(model, path) != value_at(default, path) for model in values)
    ]
    heads = ["Recipe", *(f"`{name}`{', random weights' if random else ''}" for name, random in columns)]
    return ["", *markdown(heads, rows, "---")]


def _of_recipe(section: str, name: str, *, random: bool) -> Config:
    """Complete a model, pretrained without projection or with random weights, by a recipe and the defaults."""
    model = {"recipe": name, "base_model": "x"} if random else {"recipe": name, "base_model": "y", "projection": False}
    config = {section: {"x": model}, "base_models": {"x": {"architecture": {}}}}
    return with_defaults(with_recipes(config)[section]["x"], MODELS[section])


def _lines(schema: Schema, path: str, seen: dict[str, Schema], indent: str = "") -> Iterator[str]:
    """Write a line for each key of a mapping, below it those of its own keys."""
    for key, part in schema.get("properties", {}).items():
        place = f"{path}.{key}".lstrip(".")
        mark = "" if part.get("affects_results", True) else " †"
        values = "; ".join(filter(None, [_type(part), _default(key, part, schema)]))
        yield f"{indent}- `{key}`{mark} ({values}): {part['description']}"
        inner = part.get("properties", {})
        other, same = _shared(inner, seen)
        if inner:
            seen[place] = inner
        if same:
            names = ", ".join(f"`{name}`" for name in same) if same.keys() != seen[other].keys() else "The keys"
            yield f"{indent}  - {names} of `{other}`."
        rest = {name: one for name, one in inner.items() if name not in same}
        yield from _lines(part | {"properties": rest}, place, seen, f"{indent}  ")


def _shared(inner: Schema, seen: dict[str, Schema]) -> tuple[str, Schema]:
    """Find the mapping above that has the most keys of this one, unchanged: all of them, or several."""
    found: tuple[str, Schema] = "", {}
    for place, other in seen.items():
        same = {name: part for name, part in inner.items() if other.get(name) == part}
        if len(same) > len(found[1]) and (len(same) >= SHARED or same.keys() == inner.keys()):
            found = place, same
    return found


def _type(part: Schema, plural: str = "") -> str:
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    items = f"of {_type(part['items'], plural='s')}" if "items" in part else ""
    names = [part["type"]] if isinstance(part["type"], str) else part["type"]
    kind = " or ".join(TYPES.get(name, name) for name in names)
    bounds = _range(part) or (f"of {_letters(part['pattern'])}" if "pattern" in part else "")
    return " ".join(filter(None, [f"{kind}{plural}", items, bounds]))


def _default(key: str, part: Schema, schema: Schema) -> str:
    if key in schema.get("required", []):
        return "*required*"
    return "" if part.get("default", {}) == {} else f"`{_json(part['default'])}`"


def _json(value: object) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    # YAML reads 2e-05 as text.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def _range(part: Schema) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    low = f">{part['exclusiveMinimum']}" if "exclusiveMinimum" in part else low
    high = f"<{part['exclusiveMaximum']}" if "exclusiveMaximum" in part else high
    return "" if low is high is None else f"{'' if low is None else low}..{'' if high is None else high}"


def _letters(pattern: str) -> str:
    match = re.fullmatch(r"\^\[A-Za-z0-9\]\[A-Za-z0-9(.*)\]\*\$", pattern)
    return f"letters, digits and `{' '.join(match[1])}`" if match else f"`{pattern}`"


def editor_schema() -> str:
    """Write the JSON schema with which editors complete and check experiments (yaml-language-server)."""
    schema = _standard(schema_of(Experiment))
    for part in schema["properties"].values():
        # A list selects from a section of the experiment that this one extends; null removes it.
        if part.get("type") == "object":
            part["type"] = ["object", "array", "null"]
    whole = [{"required": ["extends"]}, {"required": schema.pop("required")}]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "An experiment", "anyOf": whole}
    return json.dumps(head | schema, indent=1, ensure_ascii=False) + "\n"


def _standard(schema: Schema) -> Schema:
    """Remove this project's own keywords from a schema."""
    kept = {key: value for key, value in schema.items() if key != "affects_results"}
    return {key: _standard(value) if isinstance(value, dict) else value for key, value in kept.items()}


def main() -> None:
    """Rewrite or check."""
    args = parse(__doc__, check=False, reference=REFERENCE, schema=SCHEMA)
    for path, text in ((args.reference, render(schema_of(Experiment))), (args.schema, editor_schema())):
        if not args.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            fix = "run `python -m scripts.config_reference`"
            sys.exit(f"{path}: found other keys than in cort/settings, expected the same; {fix}")


if __name__ == "__main__":
    main()
