"""YAML files: read safely, and refused where YAML would misread a value.

YAML 1.1 takes 020 for 16, 1:30 for 90 and 2020-01-01 for a date, and the last of repeated keys for the only one.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.files import write_text

# How a number or date without quotes may look.
PLAIN = {
    "int": r"[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?",
    "timestamp": r"(?!)",
}


def read_yaml(path: str | Path, expected: str = "YAML") -> dict[str, Any]:
    """Read a file that is a mapping; an `InputError` has a line per mistake.

    What aliases repeat is copied, so that a change in one place does not reach the others.

    :param expected: description of the file for messages.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise input_error(path, f"no readable file ({error.strerror})", expected, "fix the name") from error
    try:
        loader = yaml.CSafeLoader(data)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            found = "nothing" if node is None else "no keys at its top level"
            raise input_error(path, found, expected, "fix the file, or name another")
        if mistakes := list(_mistakes(path, node, (), set())):
            raise InputError("\n".join(mistakes))
        return dict(separate(loader.construct_document(node)))
    except yaml.MarkedYAMLError as error:
        # At the end of a file, the parser may point past the last row.
        mark, rows = error.problem_mark or error.context_mark, len(data.splitlines()) or 1
        row = min(mark.line + 1, rows) if mark else None
        raise input_error(path, f"no YAML ({error.problem or error.context})", expected, "fix it", row) from error
    except yaml.reader.ReaderError as error:
        row = data.count(b"\n", 0, error.position) + 1
        raise input_error(path, f"no YAML ({error.reason})", expected, "save it as UTF-8", row) from error
    except RecursionError as error:
        raise input_error(path, "an anchor within itself, or too many levels", expected, "fix the file") from error


def write_yaml(path: str | Path, value: dict[str, Any], head: str = "") -> None:
    """Write a mapping atomically, with its keys in order, below comment lines."""
    write_text(path, head + yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120))


def separate(value: Any) -> Any:
    """Copy lists and mappings wherever they are used, so that each can be changed alone."""
    if isinstance(value, dict):
        return {key: separate(part) for key, part in value.items()}
    return [*map(separate, value)] if isinstance(value, list) else value


def _mistakes(path: str | Path, node: yaml.Node, place: tuple[str, ...], seen: set[int]) -> Iterator[str]:
    """Yield a line for each repeated key, and for each value that YAML misreads."""
    if id(node) in seen:
        return
    seen.add(id(node))
    row = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _mistakes(path, value, (*place, str(number)), seen)
    elif isinstance(node, yaml.ScalarNode):
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if not re.fullmatch(PLAIN.get(kind, r"(?s:.*)"), node.value):
            taken = (
                f"{shorten(node.value)}, which YAML takes for {'a date' if kind == 'timestamp' else 'another number'}"
            )
            found = f"{'.'.join(place)}: {taken}" if place else taken
            yield str(input_error(path, found, "a plain number, or text in quotes", "write it so", row))
    elif isinstance(node, yaml.MappingNode):
        rows: dict[str, int] = {}
        for key, value in node.value:
            name, row = str(key.value), key.start_mark.line + 1
            if name in rows:
                found = f"the key {name!r} again (first in row {rows[name]})"
                yield str(input_error(path, found, "each key once", "rename or remove one", row))
            if name.startswith("__"):
                # The key __use_yte__ would make Snakemake run code.
                yield str(input_error(path, f"the key {shorten(name)}", "no _ first", "rename it", row))
            rows.setdefault(name, row)
            yield from _mistakes(path, key, (), seen)
            yield from _mistakes(path, value, (*place, name), seen)
