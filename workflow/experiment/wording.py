"""Say in words what a schema found wrong with a value: what was found, what was expected, what to do."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from jsonschema.exceptions import ValidationError

TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
# A setting that is a number, or chosen.
AUTO = "^auto$"
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "minProperties": "at least {} in it",
}


def is_name(error: ValidationError) -> bool:
    """Tell whether an error is one of a name, not of a value."""
    return "propertyNames" in error.absolute_schema_path


def explain(error: ValidationError) -> Iterator[str]:  # noqa: C901  # one case per kind of mistake
    """Yield a line for each mistake in an error."""
    path = [str(part) for part in error.absolute_path]
    place = place_of(path)
    value: Any = error.instance
    rule: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case "additionalProperties":
            known = list(schema.get("properties", {}))
            for key in map(str, value):
                if key not in known:
                    near = difflib.get_close_matches(key, known, 1)
                    fix = f"did you mean {near[0]}?" if near else "remove it"
                    yield f"{place}: found the unknown key {key}, expected one of {', '.join(known)}; {fix}"
        case "required":
            for key in rule:
                if key not in value:
                    yield f"{place}: found no key {key}, expected it to be set; add it"
        case "type":
            words = " or ".join(TYPES[name] for name in ([rule] if isinstance(rule, str) else rule))
            yield f"{place}: found {shorten(value)}, expected {words}; {_fix_of_type(value, rule)}"
        case "enum":
            yield f"{place}: found {shorten(value)}, expected one of {', '.join(map(str, rule))}; choose one"
        case "pattern" if rule == AUTO:
            yield f"{place}: found {shorten(value)}, expected a number or auto; fix the value"
        case "pattern":
            place = place_of([*path, value]) if is_name(error) else place
            yield f"{place}: found the name {shorten(value)}, expected {_letters(rule)}; rename it"
        case validator:
            expected = BOUNDS.get(str(validator), f"{validator} {{}}").format(rule)
            yield f"{place}: found {shorten(value)}, expected {expected}; fix the value"


def place_of(path: Sequence[str]) -> str:
    """Name a place in a config."""
    return ".".join(path) or "top level"


def shorten(value: object) -> str:
    """Write a value for a message."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _letters(pattern: str) -> str:
    match = re.fullmatch(r"\^\[A-Za-z0-9\]\[A-Za-z0-9(.*)\]\*\$", pattern)
    return f"letters, digits and {' '.join(match[1])}, a letter or digit first" if match else f"a match of {pattern}"


def _fix_of_type(value: object, expected: object) -> str:
    if value is None:
        return "write {} or remove the key" if expected == "object" else "give a value or remove the key"
    if expected == "string" and not isinstance(value, dict | list):
        return "put it in quotes"
    if expected == "integer" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    try:
        number = float(value) if isinstance(value, str) and expected in ("integer", "number") else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return "fix the value"
    # YAML takes 2e-5 for text and 2.0e-5 for a number.
    text = str(int(number)) if expected == "integer" and number.is_integer() else repr(number)
    return f"write {text if '.' in text else text.replace('e', '.0e')}, without quotes"
