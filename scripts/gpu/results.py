"""What checks and figures find: their records, as JSON and as a table. Nothing beyond the standard library."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"
REACHED, MISSED, MEASURED = "reached", "missed", "measured"


class Found(NamedTuple):
    """What a check or a figure finds: a number or words, and what was expected.

    :param passed: None if it could not be tried, or is a figure without a goal.
    """

    measured: float | str
    expected: str
    passed: bool | None
    details: dict[str, Any] | None = None


@dataclass(frozen=True)
class Result:
    """What became of a check, or of a figure."""

    name: str
    kind: str
    status: str
    measured: float | str = ""
    expected: str = ""
    seconds: float = 0.0
    error: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, kind: str, found: Found, seconds: float) -> Result:
        """Judge what was found."""
        verdicts = (PASSED, FAILED, SKIPPED) if kind == "check" else (REACHED, MISSED, MEASURED)
        status = verdicts[2] if found.passed is None else verdicts[0 if found.passed else 1]
        return cls(name, kind, status, found.measured, found.expected, round(seconds, 2), "", found.details or {})

    @classmethod
    def failed(cls, name: str, kind: str, error: str, seconds: float) -> Result:
        """Say what a check or a figure ended with instead of a result."""
        return cls(name, kind, FAILED, seconds=round(seconds, 2), error=error)


def within(measured: float, limit: float) -> Found:
    """Expect a number that is not above a limit; what is no number never passes."""
    return Found(measured, f"at most {limit:g}", math.isfinite(measured) and measured <= limit)


def at_least(measured: float, limit: float, **details: Any) -> Found:
    """Expect a number that is not below a goal."""
    return Found(measured, f"at least {limit:g}", measured >= limit, details)


def same(equal: bool) -> Found:
    """Expect what is the same, bit for bit."""
    return Found("the same" if equal else "different", "the same", equal)


def write(path: Path, machine: dict[str, Any], results: Sequence[Result]) -> None:
    """Write all there is so far, whole or not at all."""
    text = json.dumps({"machine": machine, "results": [asdict(one) for one in results]}, indent=1)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def read(line: str) -> Result:
    """Read a result that a worker wrote."""
    node = json.loads(line)
    return Result(**{one.name: node[one.name] for one in fields(Result)})


def table(results: Sequence[Result]) -> list[str]:
    """Lines of a table, of which the longest cells of a column give the width."""
    rows = [("", "", "measured", "expected", "s"), *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row, one in zip(rows, (None, *results), strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
        if one:
            lines += [f"    {line}" for line in (*_details(one.details), *one.error.splitlines()) if line]
    return lines


def _row(one: Result) -> tuple[str, ...]:
    return one.status, one.name, _number(one.measured), one.expected, f"{one.seconds:.1f}"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _details(details: dict[str, Any]) -> list[str]:
    return [f"{name}: {_number(value)}" for name, value in details.items() if isinstance(value, float | str)]
