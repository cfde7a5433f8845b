"""What several test files read and compare in one way."""

import csv


def logged(caplog, level="INFO"):
    """Messages of one level since the last call."""
    messages = [record.getMessage() for record in caplog.records if record.levelname == level]
    caplog.clear()
    return messages


def read_curve(path):
    with open(path, newline="", encoding="utf-8") as handle:
        return [{name: float(cell) if cell else None for name, cell in row.items()} for row in csv.DictReader(handle)]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def command_line(named, changes):
    """Options of a stage by name; `changes` are keyword arguments that replace or add some."""
    named = named | {name.replace("_", "-"): value for name, value in changes.items()}
    return [str(part) for name, value in named.items() for part in (f"--{name}", value)]
