"""YAML files, written, and read in bounded time and memory, and refused where YAML would misread a value.

YAML 1.1 takes 020 for 16, 1:30 for 90 and 2020-01-01 for a date. Anchors may expand without end.
"""

import errno
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cort.system.errors import InputError, input_error, shorten
from cort.system.files import write_text

MOST_BYTES, MOST_VALUES, DEEPEST = 1_000_000, 20_000, 32
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
# How a value without quotes may look, by the type that YAML gives it.
PLAIN = {
    "str": r"(?s:.*)",
    "int": r"[-+]?(0|[1-9][0-9]{0,40})",
    "float": r"[-+]?([0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40})([eE][-+]?[0-9]{1,3})?",
    "bool": r"(?i:yes|no|true|false|on|off)",
    "null": r"~|(?i:null)|",
}
KINDS = {"int": "another number", "float": "another number", "timestamp": "a date"}


def read_yaml(path: str | Path, expected: str = "YAML") -> dict[str, Any]:
    """Read a file that is a mapping; an `InputError` has a line per mistake.

    :param expected: description of the file for messages.
    """
    text = _text(path, expected)
    loader = yaml.CSafeLoader(text)
    try:
        _check_size(text, path)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            found = "nothing" if node is None else "no keys at its top level"
            raise input_error(path, found, expected, "fix the file, or name another")
        if mistakes := dict.fromkeys(_Walk(path).mistakes(node)):
            raise InputError("\n".join(mistakes))
        value: dict[str, Any] = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        # At the end of a file, the parser may point past the last row.
        row = min(error.problem_mark.line + 1, len(text.splitlines()) or 1) if error.problem_mark else None
        raise input_error(path, f"no YAML ({error.problem or error.context})", expected, "fix it", row) from error
    except yaml.YAMLError as error:
        raise input_error(path, f"no YAML ({error})", expected, "fix the file") from error
    finally:
        loader.dispose()
    return value


def write_yaml(path: str | Path, value: dict[str, Any], head: str = "") -> None:
    """Write a mapping atomically, with its keys in order, below comment lines."""
    write_text(path, head + yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120))


def _text(path: str | Path, expected: str) -> str:
    try:
        if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
            raise OSError(errno.EINVAL, "a pipe or device")
        with open(path, "rb") as handle:
            data = handle.read(MOST_BYTES + 1)
    except OSError as error:
        found = f"no readable file ({error.strerror})"
        raise input_error(path, found, expected, "fix the name") from error
    if len(data) > MOST_BYTES:
        raise input_error(path, f"more than {MOST_BYTES:,} bytes", expected, "name another file")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:2]:
        raise input_error(path, "UTF-16", f"{expected} in UTF-8", "save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise input_error(path, f"the byte {data[error.start]:#04x}", "UTF-8", "save it as UTF-8", row) from error
    text = text.replace("\r\n", "\n")
    if strange := CONTROL.search(text):
        row = text.count("\n", 0, strange.start()) + 1
        raise input_error(path, f"the control character {strange[0]!r}", "text", "remove it", row)
    return text


def _check_size(text: str, path: str | Path) -> None:
    """Refuse what is too large or deep to be constructed, which is recursive."""
    depth = count = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        count += isinstance(event, yaml.NodeEvent)
        _check_bounds(path, event, depth, count)


def _check_bounds(path: str | Path, where: Any, depth: int, count: int) -> None:
    if depth > DEEPEST or count > MOST_VALUES:
        found = f"more than {DEEPEST} levels" if depth > DEEPEST else f"more than {MOST_VALUES:,} values"
        found += " (anchors count wherever they are used)"
        raise input_error(path, found, "fewer", "write it shorter and flatter", where.start_mark.line + 1)


class _Walk:
    """A walk through all values in a file, including every use of an anchor."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.count = path, 0

    def mistakes(self, node: yaml.Node, *place: str) -> Iterator[str]:
        """Yield a line for each value that YAML misreads, and for each repeated key."""
        self.count += 1
        _check_bounds(self.path, node, len(place), self.count)
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if isinstance(node, yaml.ScalarNode):
            yield from self._scalar(kind, node, ".".join(place))
        elif kind != ("map" if isinstance(node, yaml.MappingNode) else "seq"):
            yield self._line(node, f"{'.'.join(place)} with the tag {shorten(kind)}", "none", "remove the tag")
        elif isinstance(node, yaml.MappingNode):
            rows: dict[str, int] = {}
            for key, value in node.value:
                yield from self._key(key, rows)
                name = key.value if isinstance(key, yaml.ScalarNode) else ""
                yield from self.mistakes(value, *place, name if name.isprintable() else repr(name))
        else:
            for number, value in enumerate(node.value):
                yield from self.mistakes(value, *place, str(number))

    def _scalar(self, kind: str, node: yaml.ScalarNode, place: str) -> Iterator[str]:
        text = node.value
        where = f"{place}: " if place else ""
        if CONTROL.search(text):
            yield self._line(node, f"{where}{shorten(text)}", "no control characters", "remove them")
        elif kind not in PLAIN and kind not in KINDS:
            yield self._line(node, f"{where}{shorten(text)} with the tag {shorten(kind)}", "none", "put it in quotes")
        elif not re.fullmatch(PLAIN.get(kind, "(?!)"), text) or (kind == "float" and not math.isfinite(float(text))):
            taken = f"{where}{shorten(text)}, which YAML takes for {KINDS.get(kind, kind)}"
            yield self._line(node, taken, "a plain number, or text in quotes", "write it so")

    def _key(self, key: yaml.Node, rows: dict[str, int]) -> Iterator[str]:
        name = key.value
        if not isinstance(key, yaml.ScalarNode) or not name.isprintable() or name.startswith("__"):
            # The key __use_yte__ would make Snakemake run templates.
            found = f"the key {shorten(name)}" if isinstance(name, str) else "a key that is not text"
            yield self._line(key, found, "a name in printable characters, no _ first", "rename it")
        elif name in rows:
            found = f"the key {name!r} again (first in row {rows[name]})"
            yield self._line(key, found, "each key once", "rename or remove one")
        elif key.tag != "tag:yaml.org,2002:merge":
            yield from self._scalar(key.tag.removeprefix("tag:yaml.org,2002:"), key, "")
        rows.setdefault(str(name), key.start_mark.line + 1)

    def _line(self, node: yaml.Node, found: str, expected: str, fix: str) -> str:
        return str(input_error(self.path, found, expected, fix, node.start_mark.line + 1))
