"""Compare the GPU with the CPU (tests/gpu), then measure speeds relative to bounds: a table, and JSON.

Each part runs in its own process, so a failure or hang does not affect the others, and the JSON file is complete up to
the last part. Needs pytest, torch, transformers, accelerate, numpy, pyarrow, safetensors, tokenizers, filelock, psutil,
threadpoolctl and tqdm; no network, no data, no models. The exit status is 1 if a check failed. Bounds are measured in
the same run: large products in bf16, and a copy of memory. Arithmetic is counted without padding.

Usage: python -m scripts.gpu_check [--output gpu.json] [--only encode search]
       python -m scripts.gpu_check --device cpu     tries it without a GPU, on little data
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from cort.encode import BLOCK, encode_block
from cort.formats.shards import Tokens, open_shards, write_shard, write_tokens
from cort.models.encoder import Encoder, Texts, new_encoder, texts_of
from cort.models.settings import EncoderSettings
from cort.retrieval.exact import ExactIndex
from cort.training.loop import Task, fit, make_deterministic
from cort.training.losses import Triplet
from cort.training.selection import Validation
from cort.training.settings import TrainingSettings
from cort.training.triples import TripleTexts, make_objective

ROOT = Path(__file__).resolve().parents[1]
Finding = dict[str, Any]

# Tokens of MS MARCO's passages and queries: median, standard deviation of the logarithm, maximum.
PASSAGE, QUERY = (68, 0.42, 300), (6, 0.4, 60)
LENGTHS = 32, 180
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
Size = namedtuple("Size", ("texts", "vectors", "accumulation", "budget", "matrix", "model"))
SIZES = {"cpu": Size(60, 20_000, 2, 1_024, 256, SMALL), "cuda": Size(65_536, 8_841_823, 100, 65_536, 8_192, {})}
MINI_BATCH, DIMENSION, DEPTH = 6, 128, 1_000


def seconds_of(work: Callable[[], object], device: str, rounds: int) -> float:
    """Median time of some rounds, after a warm-up."""
    times = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def peak(device: str) -> float:
    """Measure the operations per second of large products."""
    size = SIZES[device].matrix
    left, right = torch.randn(2, size, size, device=device).bfloat16()
    return float(2 * size**3 / seconds_of(lambda: torch.mm(left, right), device, 10))


def bandwidth(device: str) -> float:
    """Measure the bytes per second of a copy."""
    memory = torch.randn(SIZES[device].vectors, DIMENSION, device=device)
    copied = torch.empty_like(memory)
    return 2 * memory.nbytes / seconds_of(lambda: copied.copy_(memory), device, 10)


def operations_of(config: Any, counts: npt.NDArray[np.integer]) -> float:
    """Count the operations of a forward pass over texts with these numbers of tokens.

    Two per weight and token, with 4 h^2 weights of attention and 2 h i of the feed-forward network per layer; and 4 h
    per layer and pair of tokens, for queries times keys and attention times values.
    """
    hidden, tokens = config.hidden_size, counts.astype(float)
    weights = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    return float(config.num_hidden_layers * (2 * weights * tokens.sum() + 4 * hidden * (tokens**2).sum()))


def world(device: str, folder: Path, count: int) -> tuple[Encoder, Texts, Texts]:
    """Make a random encoder of BERT-base's size, and passages and queries as long as MS MARCO's."""
    base = write_base_model(folder / "base", SIZES[device].model)
    encoder = new_encoder(base, EncoderSettings("cls", DIMENSION, *LENGTHS), 1)
    texts, generator = list[Texts](), np.random.default_rng(1)
    for kind, (median, spread, most) in (("passage", PASSAGE), ("query", QUERY)):
        counts = generator.lognormal(np.log(median), spread, count).round().clip(2, most).astype(int)
        ids = pa.array(map(str, range(count)), pa.string())
        write_tokens(folder / kind, [(ids, [generator.integers(1_000, 30_000, n) for n in counts])], "drawn")
        texts.append(texts_of(Tokens(folder / kind), encoder, kind))
    passages, queries = texts
    return encoder, passages, queries


def write_base_model(folder: Path, sizes: dict[str, int]) -> Path:
    """Save a random BERT with a tokenizer of as many tokens."""
    from tokenizers import Tokenizer, models, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    config = BertConfig(**sizes)
    special = {0: "[PAD]", 101: "[CLS]", 102: "[SEP]"}
    words = {special.get(number, f"t{number}"): number for number in range(config.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t1"))  # noqa: S106 - no password
    tokens = [("[CLS]", 101), ("[SEP]", 102)]
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", pair, tokens)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)  # noqa: S106
    BertModel(config).save_pretrained(folder)
    return folder


def encode(device: str, folder: Path) -> Finding:
    """Encode passages in the stage's own blocks in bf16: share of the peak."""
    count = SIZES[device].texts
    encoder, passages, _ = world(device, folder, count)
    encoder.eval().place(torch.device(device), "bf16")

    def work() -> None:
        for start in range(0, count, BLOCK):
            rows = start, min(start + BLOCK, count)
            encode_block(rows, encoder, passages, torch.device(device), "bf16", "fp32")

    seconds = seconds_of(work, device, 2)
    share = operations_of(encoder.transformer.config, passages.lengths(np.arange(count))) / seconds / peak(device)
    return {"share of the peak": share, "goal": 0.5, "passages/s": count / seconds}


def train(device: str, folder: Path) -> Finding:
    """Train as in CoRT's paper, but in bf16: share of the peak, at three times the arithmetic of a forward pass."""
    size = SIZES[device]
    count = 4 * MINI_BATCH * size.accumulation
    encoder, passages, queries = world(device, folder, count)
    rows = np.random.default_rng(1).integers(0, count, (3, count))
    texts = TripleTexts(rows, queries, passages, make_objective("triplet", Triplet(), "angular"))
    nothing: Any = lambda *_: Validation(1.0)  # noqa: E731
    task = Task(encoder, count, count, texts.split, texts.losses, nothing, nothing)
    make_deterministic(1, torch.get_num_threads())
    settings = TrainingSettings(
        precision="bf16", tokens_at_once=size.budget, gradient_accumulation=size.accumulation, warmup_updates=0
    )
    curve, _ = fit(task, settings)
    # The first update is slower.
    speed = statistics.median(point.examples_per_second for point in curve[2:] if point.examples_per_second)
    parts = ((queries, rows[0]), (passages, rows[1]), (passages, rows[2]))
    forward = sum(operations_of(encoder.transformer.config, part.lengths(numbers)) for part, numbers in parts)
    return {"share of the peak": 3 * forward / count * speed / peak(device), "goal": 0.4, "triples/s": speed}


def search(device: str, folder: Path) -> Finding:
    """Search random unit vectors: time to read all of them once, relative to one query."""
    count = SIZES[device].vectors
    unit = torch.nn.functional.normalize(torch.randn(count + 256, DIMENSION, device=device)).cpu().numpy()
    vectors, queries = unit[256:], unit[:256]
    ids = pa.array(np.arange(count)).cast(pa.string())
    write_shard(folder / "vectors", [(ids, vectors)], model="drawn", dimension=DIMENSION, count=count)
    [shard] = open_shards([folder / "vectors"])
    reading = 4 * count * DIMENSION / bandwidth(device)
    times, rankings = dict[str, Any](), []
    for name, coded in (("codes", True), ("fp32", False)):
        index = ExactIndex([shard], [device], os.cpu_count() or 1, 5 * count * DIMENSION >> 20, coded=coded)
        for batch in (1, 32, 256):
            seconds = seconds_of(partial(index.search, queries[:batch], DEPTH), device, 10 if batch == 1 else 3)
            times[f"{name}, {batch} queries, ms"] = 1e3 * seconds
        rankings.append(np.stack([places for _, places in index.search(queries[:32], DEPTH)]))
    share, same = 1e3 * reading / times["fp32, 1 queries, ms"], np.array_equal(rankings[0], rankings[1])
    return {"share of reading the vectors": share, "goal": 1 / 1.5, "same": same, **times}


FIGURES: dict[str, Callable[[str, Path], Finding]] = {"encode": encode, "train": train, "search": search}


class Recorder:
    """A plugin of pytest that records the outcome of each test."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record the outcome of a test, or of a set-up that failed or skipped it."""
        if report.when == "call" or report.outcome != "passed":
            record(name=report.nodeid, status=report.outcome, error=report.longreprtext, seconds=report.duration)


def record(**fields: Any) -> None:
    """Append a finding to the file that the parent process reads."""
    with open(os.environ["CHECK_LINES"], "a", encoding="utf-8") as lines:
        lines.write(json.dumps(fields) + "\n")


def work(part: str, device: str) -> int:
    """Run a file of tests, or measure a figure, in this process."""
    if part.endswith(".py"):
        import pytest

        return int(pytest.main(["-q", "-p", "no:cacheprovider", str(ROOT / part)], plugins=[Recorder()]))
    with tempfile.TemporaryDirectory() as folder:
        finding = FIGURES[part](device, Path(folder))
    goal, (label, value) = finding.pop("goal"), next(iter(finding.items()))
    status = "reached" if value >= goal and finding.get("same", True) else "missed"
    record(name=part, status=status, what=label, value=value, goal=goal, details=finding)
    return 0


def run(part: str, device: str, seconds: float) -> list[Finding]:
    """Run a part in a separate process; return its findings, with a failure if it ended badly."""
    with tempfile.TemporaryDirectory(prefix="cort-gpu-") as folder:
        lines, ending = Path(folder, "lines"), ""
        own = {"CHECK_LINES": str(lines), "CHECK_DEVICE": device, "HF_HUB_OFFLINE": "1", "TMPDIR": folder}
        command = [sys.executable, "-m", "scripts.gpu_check", "--part", part, "--device", device]
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | own, stdout=2, start_new_session=True)
        try:
            if status := process.wait(seconds):
                ending = f"ended with status {status}"
        except subprocess.TimeoutExpired:
            ending = f"took more than {seconds:.0f} s, and was killed"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        findings = [json.loads(line) for line in lines.read_text("utf-8").splitlines()] if lines.exists() else []
        if ending and not any(finding["status"] == "failed" for finding in findings):
            findings.append({"name": part, "status": "failed", "error": ending})
        return findings


def main(argv: Sequence[str] | None = None) -> int:
    """Check, measure, print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(SIZES), default="cuda")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="only parts whose name contains a word")
    parser.add_argument("--seconds", type=float, default=150, help="time limit of a part")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.part:
        return work(args.part, args.device)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --device cpu tries the check without one")
    device = torch.cuda.get_device_name(0) if args.device == "cuda" else f"{os.cpu_count()} cores"
    findings, about = list[Finding](), {"Python": sys.version, "torch": torch.__version__, "device": device}
    tests = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "gpu").glob("test_*.py"))
    for part in [part for part in (*tests, *FIGURES) if any(word in part for word in args.only)]:
        for finding in run(part, args.device, args.seconds):
            findings.append(finding)
            value = (
                "{value:.3g} {what}, goal {goal:.3g}".format(**finding)
                if "what" in finding
                else finding.get("error", "")
            )
            sys.stdout.write(f"{finding['status']:8} {finding['name']} {value}\n")
        if args.output:
            args.output.write_text(json.dumps({"machine": about, "found": findings}, indent=1) + "\n", "utf-8")
    failed = sum(finding["status"] == "failed" for finding in findings)
    sys.stdout.write(f"{', '.join(about.values())}: {failed} of {len(findings)} failed\n")
    return 1 if failed or not findings else 0


if __name__ == "__main__":
    sys.exit(main())
