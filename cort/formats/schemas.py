"""Checks of YAML files by a JSON schema: every mistake at once, on a line each."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from cort.runtime.errors import shorten, suggest

TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "empty": "''",
}
# A setting that is a number, or chosen automatically.
AUTO = "^auto$"
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "minProperties": "at least {} in it",
}


def shape_mistakes(value: object, schema: dict[str, Any]) -> list[str]:
    """List a line for each violation of a schema."""
    names = list(strange_keys(value))
    return names or [line for error in Validator(schema).iter_errors(value) for line in explain(error)]


def _whole_match(validator: Any, pattern: str, value: object, _: object) -> Iterator[ValidationError]:
    """Match a pattern with the whole text; after `$`, Python would allow a newline."""
    if isinstance(value, str) and not re.fullmatch(pattern, value):
        yield ValidationError(f"{value!r} is no match of {pattern}")


# JSON Schema accepts 6.0 as an integer, options of stages do not. An empty text was forgotten rather than meant.
CHECKS = {
    "string": lambda _, value: isinstance(value, str) and value.strip() != "",
    "empty": lambda _, value: value == "",
    "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda _, value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
}
Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    validators={"pattern": _whole_match},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(CHECKS),
)


def strange_keys(value: object, path: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each key that is not text, as YAML reads `2019`, `yes` and `null`."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                yield f"{place_of(path)}: found the key {key!r}, which is not text, expected a name; put it in quotes"
            yield from strange_keys(part, (*path, str(key)))


def is_name(error: ValidationError) -> bool:
    """Whether an error is about a key instead of its value."""
    return "propertyNames" in error.absolute_schema_path


def explain(error: ValidationError) -> Iterator[str]:  # noqa: C901  # one case per kind of mistake
    """Yield a line for each mistake in an error of the validator."""
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
                    fix = suggest(key, known, "remove it")
                    yield f"{place}: found the unknown key {key}, expected one of {', '.join(known)}; {fix}"
        case "required":
            for key in rule:
                if key not in value:
                    yield f"{place}: found no key {key}, expected it to be set; add it"
        case "type":
            words = " or ".join(TYPES[name] for name in ([rule] if isinstance(rule, str) else rule))
            yield f"{place}: found {shorten(value)}, expected {words}; {_fix_of_type(value, schema)}"
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
    """Format the path to a value in a YAML file."""
    return ".".join(path) or "top level"


def _letters(pattern: str) -> str:
    match = re.fullmatch(r"\^\[A-Za-z0-9\]\[A-Za-z0-9(.*)\]\*\$", pattern)
    return f"letters, digits and {' '.join(match[1])}, a letter or digit first" if match else f"a match of {pattern}"


def _fix_of_type(value: object, schema: dict[str, Any]) -> str:
    expected = schema["type"]
    if value is None and schema.get("minProperties"):
        return "add an entry"
    if value is None:
        return "write {} or remove the key" if expected == "object" else "give a value or remove the key"
    if isinstance(value, str) and not value.strip():
        return "give a value or remove the key"
    if expected == "string" and not isinstance(value, dict | list):
        return "put it in quotes"
    if expected == "integer" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    number = math.nan
    if isinstance(value, str) and expected in ("integer", "number"):
        with suppress(ValueError):
            number = float(value)
    if not math.isfinite(number):
        return "fix the value"
    # YAML takes 2e-5 for text and 2.0e-5 for a number.
    text = str(int(number)) if expected == "integer" and number.is_integer() else repr(number)
    return f"write {text if '.' in text else text.replace('e', '.0e')}, without quotes"
