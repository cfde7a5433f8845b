"""Helpers of the scripts: options, costs of stages and programs, alternating measurements, tables."""

import argparse
import operator
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from scripts.sandbox import ROOT

PYTHON = sys.executable
Result = TypeVar("Result")
Row: TypeAlias = tuple[str, object]


class Cost(NamedTuple):
    """Wall time in seconds, CPU seconds, and peak memory in MB of a process."""

    seconds: float
    cpu: float = 0
    memory: float = 0

    def __str__(self) -> str:
        memory = f", {self.memory:.0f} MB" if self.memory else ""
        return f"{self.seconds:.1f} s, {self.cpu:.1f} CPU s{memory}"


def parse(doc: str | None, **options: Any) -> argparse.Namespace:
    """Read a command line from defaults; a type is a required value, None a path, a list several values."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        flag = f"--{name.replace('_', '-')}"
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
    """Write options as the words of a command line; a list or a tuple is several values."""
    line = []
    for name, value in options.items():
        values = value if isinstance(value, list | tuple) else [value]
        line += [f"--{name.replace('_', '-')}", *map(str, values)]
    return line


def run(*command: object, folder: Path = ROOT) -> tuple[Cost, str]:
    """Run a command in a folder; return its cost and output, or end this program if it fails."""
    line = list(map(str, command))
    started = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        output = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            last = errors.read().strip().rpartition("\n")[2]
            sys.exit(f"{' '.join(line)}: status {process.returncode}: {last}")
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), output


def run_stage(name: str, **options: object) -> Cost:
    """Run a stage, or a command of one ("index hnsw"), in a separate process."""
    return run(PYTHON, "-m", *f"cort.{name}".split(), *words(options))[0]


def write_split(data: Path, split: str, folder: Path) -> None:
    """Write a folder's collection and the judged queries of a split as tables, like an experiment."""
    passages = folder / "passages.parquet"
    run_stage("collection", passages=data / "collection.tsv", output=passages)
    files = {kind: data / f"{kind}.{split}.tsv" for kind in ("queries", "qrels")}
    outputs = {f"output_{kind}": folder / f"{kind}.parquet" for kind in files}
    run_stage("split", **files, passages=passages, unjudged_queries="drop", **outputs)


def worthwhile_precisions(device: str) -> list[str]:
    """List the precisions in which a product is not slower than in fp32 (some processors lack instructions)."""
    import torch

    from cort.models.precision import gain_of_bf16

    return ["fp32", "bf16"] if gain_of_bf16(torch.device(device)) >= 1 else ["fp32"]


def timed(work: Callable[[], object]) -> Cost:
    """Do something in this process; return its cost."""
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - started, time.process_time() - cpu)


def in_turns(rounds: int, sides: Mapping[str, Callable[[], Result]], warm_up: bool = False) -> dict[str, list[Result]]:
    """Alternate between the sides; return their results, without those of a first round if `warm_up`."""
    turns = [{name: do() for name, do in sides.items()} for _ in range(rounds + warm_up)]
    return {name: [turn[name] for turn in turns[warm_up:]] for name in sides}


def compare(task: str, rounds: int, sides: Mapping[str, Callable[[], Cost]]) -> Iterator[Row]:
    """Alternate between the sides; yield their median times and peak memory, and their ratios to the first side."""
    columns = {name: list(zip(*costs, strict=True)) for name, costs in in_turns(rounds, sides).items()}
    for name, (seconds, cpu, memory) in columns.items():
        yield f"{task}: {name}", Cost(statistics.median(seconds), statistics.median(cpu), max(memory))
    first, *others = columns
    for name in others:
        yield f"{task}: {name} / {first}", ratios(columns[name][0], columns[first][0])


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> str:
    """Write the median, smallest and largest ratio per round."""
    quotients = list(map(operator.truediv, numerators, denominators))
    return f"{statistics.median(quotients):.2f} ({min(quotients):.2f} to {max(quotients):.2f})"


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]], rule: str = "---:") -> list[str]:
    """Lines of a Markdown table; `rule` aligns all columns but the first."""
    rules = ["---", *[rule] * (len(header) - 1)]
    return [f"| {' | '.join(map(str, row))} |" for row in (header, rules, *rows)]


def print_table(rows: Iterable[Sequence[object]], header: Sequence[str] = ("", "")) -> None:
    """Print a table in Markdown."""
    sys.stdout.write("\n".join([*markdown(header, rows), ""]))


def between(path: Path, begin: str, end: str, content: str) -> str:
    """Return the text of a document with other content between two lines.

    :raises ValueError: if a line is missing.
    """
    match = re.fullmatch(f"(.*{re.escape(begin)}\n).*({re.escape(end)}.*)", path.read_text("utf-8"), re.DOTALL)
    if match is None:
        raise ValueError(f"{path}: found no marker lines, expected {begin!r} and {end!r}; add them")
    return f"{match[1]}{content}\n{match[2]}"
