"""What the benchmarks share: command lines, stages and programs with their costs, timing in turns, tables."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cort.formats.embeddings import write_shard
from scripts.sandbox import ROOT

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

Result = TypeVar("Result")

#: Rows of the matrices whose product tells whether a device has instructions for a precision.
PROBE = 512
#: Vectors written at once.
BLOCK = 4_096


class Cost(NamedTuple):
    """Wall time in seconds, time of all cores, and peak memory in MB of a process."""

    seconds: float
    cpu: float = 0
    memory: float = 0

    def __str__(self) -> str:
        memory = f", {self.memory:.0f} MB" if self.memory else ""
        return f"{self.seconds:.1f} s, {self.cpu:.1f} s of cores{memory}"


def make_parser(doc: str | None, data: str = "", base_model: bool = False) -> argparse.ArgumentParser:
    """Parser with a module's docstring as help.

    :param data: what the folder of the needed option ``--data`` holds; without, there is no such option.
    :param base_model: whether there is a needed option ``--base-model``.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help=f"with {data}")
    if base_model:
        parser.add_argument("--base-model", type=Path, required=True, metavar="FOLDER")
    return parser


def run(*command: object) -> tuple[Cost, str]:
    """Run a command in the project's folder; what it cost, and its standard output. This program ends if it fails."""
    words = list(map(str, command))
    started = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        said = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            last = errors.read().strip().rpartition("\n")[2]
            sys.exit(f"{' '.join(words)}: status {process.returncode}: {last}")
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), said


def run_stage(name: str, *options: object) -> Cost:
    """Run a stage of this project in a process of its own."""
    return run(sys.executable, "-m", f"cort.{name}", *options)[0]


def write_passages(lines: Iterable[str], folder: Path) -> Path:
    """Make lines ``id TAB text`` into the table of passages, as experiments do."""
    with open(folder / "collection.tsv", "w", encoding="utf-8", newline="\n") as collection:
        collection.writelines(lines)
    run_stage("collection", "--passages", collection.name, "--output", folder / "passages.parquet")
    return folder / "passages.parquet"


def write_split(data: Path, split: str, folder: Path) -> None:
    """Make a folder's collection and the judged queries of a split into tables, as experiments do."""
    passages = folder / "passages.parquet"
    run_stage("collection", "--passages", data / "collection.tsv", "--output", passages)
    files = ("--queries", data / f"queries.{split}.tsv", "--qrels", data / f"qrels.{split}.tsv", "--passages", passages)
    outputs = ("--output-queries", folder / "queries.parquet", "--output-qrels", folder / "qrels.parquet")
    run_stage("split", *files, "--unjudged-queries", "drop", *outputs)


def write_encoder(base_model: Path, length: int, similarity: str, folder: Path) -> Path:
    """Make a base model into an encoder without projection that pools by the mean; its folder."""
    local, output = folder / "lm", folder / "encoder"
    run_stage("base_model", "--pretrained", base_model.resolve(), "--output", local)
    sizes = json.loads((local / "config.json").read_text(encoding="utf-8"))
    length = min(length, sizes.get("max_position_embeddings", length))
    lengths = ("--query-length", length, "--passage-length", length)
    shape = ("--pooling", "mean", "--projection", "False", "--dimension", sizes["hidden_size"], "--query-segment", 0)
    weights = ("--weights", local / "model.safetensors", "--base-model", local)
    run_stage("import_encoder", *weights, *shape, *lengths, "--similarity", similarity, "--output", output)
    return output / "best"


def write_vectors(path: Path, vectors: npt.NDArray[np.float32], name: str) -> Path:
    """Write vectors as `encode` does, with the name and their row as ids."""
    blocks = (
        ([f"{name}{row}" for row in range(at, min(at + BLOCK, len(vectors)))], vectors[at : at + BLOCK])
        for at in range(0, len(vectors), BLOCK)
    )
    write_shard(path, blocks, model="vectors", dimension=vectors.shape[1], count=len(vectors))
    return path


def worthwhile_precisions(device: torch.device) -> list[str]:
    """List the precisions in which a product is not slower than in fp32, as it is without instructions for them."""
    import torch

    times = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        matrix = torch.ones(PROBE, PROBE, device=device, dtype=dtype)
        times[name] = min(timeit.repeat(lambda matrix=matrix: float((matrix @ matrix)[0, 0]), number=1, repeat=5))  # type: ignore[misc]
    return [name for name, taken in times.items() if taken <= times["fp32"]]


def timed(work: Callable[[], object]) -> Cost:
    """Do something in this process; what it cost."""
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - started, time.process_time() - cpu)


def in_turns(rounds: int, work: Mapping[str, Callable[[], Result]], warm_up: bool = False) -> dict[str, list[Result]]:
    """Let each take its turn, so many times; what they gave.

    :param warm_up: one round more, the first, whose results do not count.
    """
    found: dict[str, list[Result]] = {name: [] for name in work}
    for number in range(rounds + warm_up):
        for name, do in work.items():
            result = do()
            if number >= warm_up:
                found[name].append(result)
    return found


def median_cost(costs: Sequence[Cost]) -> Cost:
    """Medians of the times, and the largest memory."""
    seconds, cpu, memory = zip(*costs, strict=True)
    return Cost(statistics.median(seconds), statistics.median(cpu), max(memory))


def median_costs(rounds: int, work: Mapping[str, Callable[[], Cost]]) -> dict[str, Cost]:
    """Let each take its turn, so many times; medians."""
    return {name: median_cost(costs) for name, costs in in_turns(rounds, work).items()}


def ratios(some: Sequence[float], others: Sequence[float]) -> str:
    """Median of the ratios of pairs of one round, and the smallest and largest."""
    found = [one / other for one, other in zip(some, others, strict=True)]
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def print_rows(rows: Iterable[tuple[str, object]]) -> None:
    """Print names and values below each other."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in rows)


def print_table(*rows: Sequence[str]) -> None:
    """Print rows of a Markdown table; the first one, if there are more, is its header."""
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    if len(lines) > 1:
        lines.insert(1, f"| --- |{' ---: |' * (len(rows[0]) - 1)}\n")
    sys.stdout.writelines(lines)
    sys.stdout.flush()
