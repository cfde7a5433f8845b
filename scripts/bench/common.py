"""Helpers of the scripts: options, costs of programs, measurements in turns, tables."""

import argparse
import operator
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cort.runtime.command_line import option_of

ROOT = Path(__file__).parents[2]
Result = TypeVar("Result")


class Cost(NamedTuple):
    """Wall time and CPU time of a process in seconds, and what it printed."""

    seconds: float
    cpu: float
    output: str


def parse(doc: str | None, **options: Any) -> argparse.Namespace:
    """Read a command line from defaults; a type is a required value, None a path, a list several values."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        flag = option_of(name)
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(flag, type=default, required=True)
        elif isinstance(default, list):
            parser.add_argument(flag, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(flag, type=Path if default is None else type(default), default=default)
    return parser.parse_args()


def words(options: Mapping[str, object]) -> list[str]:
    """Write options as the words of a command line."""
    return [word for name, value in options.items() for word in (option_of(name), str(value))]


def run(*command: object, folder: Path = ROOT) -> Cost:
    """Run a command in a folder, or end this program if it fails."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(list(map(str, command)), cwd=folder, stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(map(str, command))}: status {process.returncode}")
        output.seek(0)
        return Cost(seconds, used.ru_utime + used.ru_stime, output.read())


def run_stage(name: str, **options: object) -> None:
    """Run a stage, or a command of one ("index hnsw"), in a separate process."""
    run(sys.executable, "-m", *f"cort.{name}".split(), *words(options))


def seconds_of(work: Callable[[], object]) -> float:
    """Do something in this process; return the wall time."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(rounds: int, sides: Mapping[str, Callable[[], Result]]) -> dict[str, list[Result]]:
    """Alternate between the sides; return the results of each."""
    turns = [{name: do() for name, do in sides.items()} for _ in range(rounds)]
    return {name: [turn[name] for turn in turns] for name in sides}


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> str:
    """Write the median, smallest and largest ratio per round."""
    quotients = list(map(operator.truediv, numerators, denominators))
    return f"{statistics.median(quotients):.2f} ({min(quotients):.2f} to {max(quotients):.2f})"


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]], rule: str = "---:") -> list[str]:
    """Lines of a Markdown table; `rule` aligns all columns but the first."""
    rules = ["---", *[rule] * (len(header) - 1)]
    return [f"| {' | '.join(map(str, row))} |" for row in (header, rules, *rows)]


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    sys.stdout.write("\n".join([*markdown(header, rows), ""]))
