"""Check every path on a GPU against the CPU, then measure: a table, and JSON with `--output`.

Needs Python 3.11 or newer and, of this project's packages, torch, transformers, accelerate, numpy, pyarrow,
safetensors, tokenizers, filelock, psutil, threadpoolctl and tqdm; no network, no data, no models. Each check stands
alone: one that fails, hangs or ends its process ends no other, and what was found is in the JSON file as soon as it is
known. Exit status 1 if a check failed, or if no time was left for it.

Usage: python -m scripts.gpu_check [--output gpu.json] [--only NAME...]
       python -m scripts.gpu_check --device cpu --size small     tries the checks themselves, on any machine
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.gpu.results import FAILED, Result, read, table, write  # noqa: E402 - also called by its path

#: imported by what is checked
NEEDED = (
    *("torch", "transformers", "accelerate", "numpy", "pyarrow", "safetensors"),
    *("tokenizers", "filelock", "psutil", "threadpoolctl", "tqdm"),
)
#: seconds until a worker has imported its libraries and made what it works on
PREPARATION = 180.0
MISSING = "missing: {}; install what requirements.lock names, or these with `python -m pip install {}`"


@dataclass
class Run:
    """What workers have found so far."""

    machine: dict[str, Any]
    output: Path | None
    deadline: float
    results: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """Show and keep a result."""
        self.results.append(result)
        sys.stderr.write(f"{result.status} {result.name} ({result.seconds:.1f} s)\n")
        self.keep()

    def keep(self) -> None:
        """Write what there is."""
        if self.output:
            write(self.output, self.machine, self.results)


@dataclass(frozen=True)
class Item:
    """What a worker is to do: its name, whether it is a check, and the seconds it may take."""

    name: str
    kind: str
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Check, measure, show; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--output", type=Path, help="gets the results as JSON")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="those whose name begins so")
    parser.add_argument(
        "--seconds", type=float, default=520.0, help="for all of it; what is left out then counts as failed"
    )
    args = parser.parse_args(argv)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        sys.stdout.write(MISSING.format(", ".join(missing), " ".join(missing)) + "\n")
        return 1
    # So that workers, and what they wrote, do not outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="cort-gpu-") as folder:
        command = [sys.executable, "-m", "scripts.gpu.worker", "--folder", folder]
        command += ["--device", args.device, "--size", args.size]
        run = Run(about(args.device), args.output, time.monotonic() + args.seconds)
        work(run, command, args.only)
    sys.stdout.write(
        "\n".join([*(f"{name}: {value}" for name, value in run.machine.items()), "", *table(run.results), ""])
    )
    failed = [one.name for one in run.results if one.kind == "check" and one.status == FAILED]
    sys.stdout.write(f"{len(failed)} of {sum(one.kind == 'check' for one in run.results)} checks failed\n")
    return 1 if failed or not run.results else 0


def about(device: str) -> dict[str, Any]:
    """Say what is known of the machine before any library is imported."""
    found: dict[str, Any] = {"Python": platform.python_version(), "checked": device, "cores": os.cpu_count()}
    found["free disk, GB"] = round(shutil.disk_usage(tempfile.gettempdir()).free / 2**30, 1)
    if program := shutil.which("nvidia-smi"):
        query = [program, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        found["nvidia-smi"] = answer.stdout.strip() or answer.stderr.strip()
    return found


def work(run: Run, command: Sequence[str], only: Sequence[str]) -> None:
    """Let workers do all there is to do: another one goes on where one died, or took too long."""
    left = _work(run, [*command, "--only", *only], None)
    while left and time.monotonic() < run.deadline:
        left = _work(run, [*command, "--left", *left], left)
    for one in left.values():
        run.add(Result.failed(one.name, one.kind, "no time was left", 0))


def _work(run: Run, command: Sequence[str], known: dict[str, Item] | None) -> dict[str, Item]:
    """Start a worker; the items that are left when it has ended.

    :param known: what it is to do; None of the first one, which says what there is.
    """
    left, current, begun = dict(known or {}), "", time.monotonic()

    def patience() -> float:
        limit = left[current].seconds if current in left else PREPARATION
        return min(begun + limit, run.deadline) - time.monotonic()

    worker = Worker(command)
    for said in worker.lines(patience):
        run.machine |= said.get("machine", {})
        if "items" in said and known is None:
            known = left = {one[0]: Item(*one) for one in said["items"]}
        if "missing" in said:
            run.add(Result.failed("the program", "check", said["missing"], 0))
            return {}
        if "result" in said:
            run.add(read(json.dumps(said["result"])))
            del left[run.results[-1].name]
        current, begun = said.get("start", ""), time.monotonic()
    if known is None:
        run.add(Result.failed("the program", "check", worker.ending(), time.monotonic() - begun))
    elif left and (worker.code or current in left):
        # It died in one, or before it began.
        one = left.pop(current if current in left else next(iter(left)))
        run.add(Result.failed(one.name, one.kind, worker.ending(), time.monotonic() - begun))
    return left


class Worker:
    """A process that writes lines of JSON; killed when it takes too long for the next one."""

    def __init__(self, command: Sequence[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.code: int | None = None
        self._late = self._whole = False

    def lines(self, patience: Callable[[], float]) -> Iterator[dict[str, Any]]:
        """Yield what it says, `patience()` seconds being the most to wait for the next line."""
        said: queue.Queue[str] = queue.Queue()
        stdout: IO[str] = self._process.stdout  # type: ignore[assignment]
        threading.Thread(target=_read, args=(stdout, said), daemon=True).start()
        try:
            while line := said.get(timeout=max(patience(), 0.1)):
                yield json.loads(line)
            self._whole = True
        except queue.Empty:
            self._late = True
        finally:
            self._end()

    def ending(self) -> str:
        """Say how it ended."""
        return "took too long, and was killed" if self._late else f"ended its process with status {self.code}"

    def _end(self) -> None:
        """Wait for its end, or bring it about, and that of all it started."""
        with suppress(subprocess.TimeoutExpired):
            self.code = self._process.wait(20 if self._whole else 0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.code = self._process.wait()


def _read(lines: IO[str], said: queue.Queue[str]) -> None:
    for line in lines:
        said.put(line)
    said.put("")


if __name__ == "__main__":
    sys.exit(main())
