"""Write docs/reference.md, the reference of all keys of a config, and the schema for editors.

Usage: python -m scripts.config_reference           rewrites both
       python -m scripts.config_reference --check   exits with status 1 if one differs from cort/config
"""

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import LiteralSchema, ModelSchema

from cort.config.entries import LEARNERS, Config
from cort.config.recipes import keys_of_recipes, load_recipes, value_at, with_recipes
from cort.config.root import Root
from cort.runtime import sections
from cort.runtime.sections import SPEED, Section, keys_of
from cort.systems.registry import CLASSES, AnySystem, Labelled
from scripts.bench.common import ROOT, markdown, parse

Schema: TypeAlias = dict[str, Any]

REFERENCE = ROOT / "docs" / "reference.md"
SCHEMA = ROOT / "config" / "experiment.schema.json"
HEAD = """\
<!-- Written by `python -m scripts.config_reference` from cort/config. -->

# Every key of an experiment

In brackets: the type with its bounds, then the default; a key without a default is unset, unless it is *required*.
Keys marked † change no result and rerun nothing. A key that repeats another part refers to it. Names (`<name>`) have
letters, digits and `_ . -`, those of splits `_ -`, of systems also `+`. Examples: [config](../config/README.md).
"""
TYPES = {"object": "mapping", "array": "list"}
BOUNDS = {"minimum": "", "exclusiveMinimum": ">", "maximum": "", "exclusiveMaximum": "<"}
#: keywords of our own: False for a key that changes no result; which variants have the keys that not all have
AFFECTS_RESULTS, ONLY = "affects_results", "only"


class Described(GenerateJsonSchema):
    """The schema of pydantic without titles, with the meanings of keys and the nouns of classes."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave titles out."""
        return False

    def literal_schema(self, schema: LiteralSchema) -> Schema:
        """List the values, also a single one."""
        return {"enum": schema["expected"]}

    def model_schema(self, schema: ModelSchema) -> Schema:
        """Describe a section; an entry of `systems` has the keys of all classes of systems."""
        section, made = schema["cls"], super().model_schema(schema)
        owners: list[Any] = [Labelled, *(cls.Settings for cls in CLASSES)] if section is AnySystem else [section]
        texts = {name.rstrip("_"): text for owner in owners for name, text in sections.meanings(owner).items()}
        for name, field in keys_of(section).items():
            part = made["properties"][name]
            if name in texts:
                part["description"] = texts[name]
            if SPEED in sections.notes_on(sections.hint_of(field)):
                part[AFFECTS_RESULTS] = False
            if not sections.has_default(field) or isinstance(field.default, Section):
                part.pop("default", None)
        del made["title"]
        noun = sections.noun_of(section)
        return made | {"description": noun.removeprefix("a ").removeprefix("an ")}


def schema_of(section: type[Section]) -> Schema:
    """Write a section as a schema without references, in which the variants of an entry are one object."""
    schema = section.model_json_schema(schema_generator=Described)
    classes = schema.pop("$defs", {})

    def change(part: Schema) -> Schema:
        if "$ref" in part:
            part = changed(classes[part.pop("$ref").rpartition("/")[2]]) | part
        if "patternProperties" in part:
            part["additionalProperties"] = False
        return merged(part.pop("oneOf")) | part if "oneOf" in part else part

    def changed(part: Schema) -> Schema:
        whole: Schema = json.loads(json.dumps(part), object_hook=change)
        return whole

    return changed(schema)


def merged(variants: list[Schema]) -> Schema:
    """Join variants to one object, as editors complete choices badly."""
    keys, nouns = dict[str, Schema](), defaultdict[str, list[str]](list)
    for one in variants:
        for name, part in one["properties"].items():
            known = keys.setdefault(name, part)
            # The first variant that says something about a key decides.
            keys[name] = part | known
            if "enum" in part:
                keys[name]["enum"] = [*dict.fromkeys(known["enum"] + part["enum"])]
            nouns[name].append(one["description"])
    needed = [one.get("required", []) for one in variants]
    # After the keys of all variants come those that tell the variant, which go without saying.
    telling = set[str]().union(*needed)
    only = {name: _only(nouns[name], variants) for name in keys if name not in telling}
    names = sorted(keys, key=lambda name: only.get(name, "-"))
    return {
        "type": "object",
        "properties": {name: keys[name] for name in names},
        "required": [name for name in names if all(name in one for one in needed)],
        "additionalProperties": False,
        ONLY: {name: text for name, text in only.items() if text},
    }


def _only(nouns: list[str], variants: list[Schema]) -> str:
    """Say in the fewest words which variants have a key; nothing if all have it."""
    others = [one["description"] for one in variants if one["description"] not in nouns]
    texts = (f"{word} with: {', '.join(some)}" for word, some in (("Only", nouns), ("Not", others)))
    return min(texts, key=len) if others else ""


def render(schema: Schema) -> str:
    """Write the keys outside sections, then each section."""
    parts = {key: part for key, part in schema["properties"].items() if part.get("type") == "object"}
    alone = {key: part for key, part in schema["properties"].items() if key not in parts}
    seen: dict[str, Schema] = {}
    lines = [HEAD, "## Top level", "", *_lines(schema | {"properties": alone}, "", seen)]
    for key, part in parts.items():
        need = " Required." if key in schema["required"] else ""
        named = [*part.get("patternProperties", {}).values()]
        path = f"{key}.<name>" if named else key
        lines += ["", f"## {path}", "", part["description"] + need, "", *_lines([*named, part][0], path, seen)]
        lines += _recipes(key) if key in LEARNERS else []
    return "\n".join([*lines, ""])


def _lines(schema: Schema, path: str, seen: dict[str, Schema], indent: str = "") -> Iterator[str]:
    """Write a line for each key of a mapping, below it those of its own keys; `seen` are the mappings above."""
    keys, only = schema["properties"], schema.get(ONLY, {})
    for variants, names in itertools.groupby(keys, lambda name: only.get(name, "")):
        group, inner = [*names], indent
        if variants:
            yield f"{indent}- {variants}"
            inner = f"{indent}  "
        shared = {place: [name for name in group if other.get(name) == keys[name]] for place, other in seen.items()}
        place, same = max(shared.items(), key=lambda item: len(item[1]), default=("", []))
        if same:
            listed = "The keys" if len(same) == len(seen[place]) else ", ".join(f"`{name}`" for name in same)
            yield f"{inner}- {listed} of `{place}`."
        for name in (name for name in group if name not in same):
            yield f"{inner}- {_line(name, keys[name], name in schema.get('required', ()))}"
            for choice in [keys[name], *keys[name].get("anyOf", [])]:
                yield from _lines({"properties": {}} | choice, f"{path}.{name}", seen, f"{inner}  ")
    seen[path] = keys


def _line(name: str, key: Schema, is_required: bool) -> str:
    mark = "" if key.get(AFFECTS_RESULTS, True) else " †"
    default = f"; `{_yaml(key['default'])}`" if "default" in key else ""
    values = f"{_type(key)}{'; *required*' if is_required else default}"
    return f"`{name}`{mark} ({values}): {key['description']}"


def _type(key: Schema, plural: str = "") -> str:
    if "anyOf" in key:
        return " or ".join(_type(one, plural) for one in key["anyOf"])
    if "enum" in key:
        return ", ".join(f"`{value}`" for value in key["enum"])
    items = [*key.get("prefixItems", ()), key.get("items")][:1]
    bounds = "..".join(f"{sign}{key[name]}" for name, sign in BOUNDS.items() if name in key)
    words = [
        f"{TYPES.get(key['type'], key['type'])}{plural}",
        *(f"of {_type(one, 's')}" for one in items if one),
        bounds,
    ]
    return " ".join(filter(None, words))


def _yaml(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("...\n").strip()


def _recipes(section: str) -> list[str]:
    """Write a table of the values of each recipe that differ from the defaults."""
    documents = {random: load_recipes(random=random) for random in (False, True)}
    recipes = [(name, random) for random, known in documents.items() for name in known if section in known[name]]
    default, *models = (_of_recipe(section, *recipe) for recipe in [("paper", False), *recipes])
    rows = [
        (f"`{path}`", *(f"`{_yaml(value_at(model, path))}`" for model in models))
        for path in keys_of_recipes(section)
        if any(value_at(model, path) != value_at(default, path) for model in models)
    ]
    heads = ["Recipe", *(f"`{name}`{', random weights' if random else ''}" for name, random in recipes)]
    return ["", *markdown(heads, rows, "---")]


def _of_recipe(section: str, name: str, random: bool) -> Config:
    """Complete a model, pretrained without projection or with random weights, by a recipe and the defaults."""
    model: Config = {"recipe": name, "base_model": "random" if random else "pretrained"}
    model |= {"projection": False} if section == "encoders" else {}
    config = with_recipes({section: {"x": model}, "base_models": {"random": {"architecture": {}}}})
    models: Any = keys_of(Root)[section].annotation
    return sections.plain(TypeAdapter(models).validate_python(config[section])["x"])


def editor_schema() -> str:
    """Write the JSON schema with which editors complete and check experiments (yaml-language-server)."""
    schema = schema_of(Root)
    for part in schema["properties"].values():
        # A list selects from a section of the experiment that this one extends; null removes it.
        if part.get("type") == "object":
            part["type"] = ["object", "array", "null"]
    whole = [{"required": ["extends"]}, {"required": schema.pop("required")}]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "An experiment", "anyOf": whole}
    return json.dumps(head | schema, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Rewrite or check."""
    args = parse(__doc__, check=False, reference=REFERENCE, schema=SCHEMA)
    for path, text in ((args.reference, render(schema_of(Root))), (args.schema, editor_schema())):
        if not args.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            fix = "run `python -m scripts.config_reference`"
            sys.exit(f"{path}: found other keys than in cort/config, expected the same; {fix}")


if __name__ == "__main__":
    main()
