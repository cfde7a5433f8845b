"""Write the reference of all config keys between the marker lines of config/README.md, and the schema for editors.

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

README = ROOT / "config" / "README.md"
SCHEMA = "experiment.schema.json"
BEGIN = "<!-- reference: written by scripts/config_reference.py from cort/settings -->"
END = "<!-- end of the reference -->"
MODELS = {"encoders": Encoder, "rerankers": Reranker}
TYPES = {"object": "mapping", "array": "list", "string": "text", "integer": "whole number", "boolean": "truth value"}


def render(schema: Schema) -> str:
    """Write a table for the keys outside sections, then one for each section."""
    alone = {key: part for key, part in schema["properties"].items() if part.get("type") != "object"}
    parts = [f"### Top level\n\n{_table(_rows(schema | {'properties': alone}, ''))}"]
    for key, part in schema["properties"].items():
        if key not in alone:
            need = " Required." if key in schema["required"] else ""
            pattern = part.get("propertyNames", {}).get("pattern")
            names = f" Names have {_letters(pattern)}." if pattern else ""
            recipes = _recipes(key) if key in LEARNERS else ""
            parts.append(f"### `{key}`\n\n{part['description']}{need}{names}\n\n{_table(_rows(part, key))}{recipes}")
    return "\n".join(parts)


def _recipes(section: str) -> str:
    """Write a table of the values of each recipe."""
    columns = [(name, False) for name in load_recipes()] + [(name, True) for name in load_recipes(random=True)]
    values = [_of_recipe(section, name, random=random) for name, random in columns]
    rows = [
        (f"`{path}`", *(f"`{_json(value_at(model, path))}`" for model in values)) for path in keys_of_recipes(section)
    ]
    heads = ["Key", *(f"`recipe: {name}`{', random weights' if random else ''}" for name, random in columns)]
    return "\n".join(["", *markdown(heads, rows, "---"), ""])


def _of_recipe(section: str, name: str, *, random: bool) -> Config:
    """Complete a model, pretrained without projection or with random weights, by a recipe and the defaults."""
    model = {"recipe": name, "base_model": "x"} if random else {"recipe": name, "base_model": "y", "projection": False}
    config = {section: {"x": model}, "base_models": {"x": {"architecture": {}}}}
    return with_defaults(with_recipes(config)[section]["x"], MODELS[section])


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, ...]]:
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict) and rest.get("type") == "object":
        yield from _rows(rest, f"{path}.<name>")
    for key, part in schema.get("properties", {}).items():
        place = f"{path}.{key}".lstrip(".")
        note = " Changes no result and makes nothing run again." if part.get("affects_results") is False else ""
        yield f"`{place}`", _type(part), _default(key, part, schema), _allowed(part), f"{part['description']}{note}"
        yield from _rows(part, place)


def _type(part: Schema) -> str:
    if "enum" in part:
        return "choice"
    names = [part["type"]] if isinstance(part["type"], str) else part["type"]
    words = " or ".join(TYPES.get(name, name) for name in names)
    if "items" not in part:
        return words
    items = _type(part["items"])
    return f"{words} of {items}" if items == "text" else f"{words} of {items}s"


def _default(key: str, part: Schema, schema: Schema) -> str:
    if key in schema.get("required", []):
        return "required"
    if "default" not in part:
        return "not set"
    return "" if part["default"] == {} else f"`{_json(part['default'])}`"


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # YAML reads 2e-05 as text.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def _allowed(part: Schema) -> str:
    items = part.get("items", {})
    bounds = [
        ", ".join(f"`{value}`" for value in part.get("enum", [])),
        _letters(part["pattern"]) if "pattern" in part else "",
        _range(part),
        _range(items) and f"each {_range(items)}",
        f"at least {part['minItems']}" if "minItems" in part else "",
        f"at most {part['maxItems']}" if "maxItems" in part else "",
    ]
    return ", ".join(bound for bound in bounds if bound)


def _range(part: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign} {part[key]}" for key, sign in signs.items() if key in part)


def _letters(pattern: str) -> str:
    match = re.fullmatch(r"\^\[A-Za-z0-9\]\[A-Za-z0-9(.*)\]\*\$", pattern)
    return f"letters, digits and `{' '.join(match[1])}`" if match else f"`{pattern}`"


def _table(rows: Iterator[tuple[str, ...]]) -> str:
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join([*markdown(["Key", "Type", "Default", "Allowed", "Meaning"], escaped, "---"), ""])


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
    args = parse(__doc__, check=False, readme=README)
    before, _, rest = args.readme.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    reference = f"{before}{BEGIN}\n\n{render(schema_of(Experiment))}\n{END}{after}"
    for path, text in ((args.readme, reference), (args.readme.with_name(SCHEMA), editor_schema())):
        if not args.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            fix = "run `python -m scripts.config_reference`"
            sys.exit(f"{path}: found other keys than in cort/settings, expected the same; {fix}")


if __name__ == "__main__":
    main()
