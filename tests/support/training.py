"""Examples to train on, options of the training stages, and stages as processes that can be watched and signalled."""

import json
import shutil
import signal
import subprocess
import threading
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import torch

from cort import pairs, triples
from cort.formats import tables
from cort.training.losses import Batch
from tests.support.common import command_line, contents
from tests.support.processes import Copy, Python

TIMEOUT = 300
PARTS = "train", "validation"


class Pool(NamedTuple):
    """What examples of one query are drawn from."""

    query_id: str
    positives: list[str]
    negatives: list[str]
    ranks: list[int]
    retrieved: list[str] = []  # noqa: RUF012 - never changed


def pools_of(*pools):
    """Pools in columns."""
    types = (pa.string(), pa.list_(pa.string()), pa.list_(pa.string()), pa.list_(pa.int32()), pa.list_(pa.string()))
    columns = (pa.array(column, kind) for column, kind in zip(zip(*pools, strict=True), types, strict=True))
    return pa.record_batch(dict(zip(Pool._fields, columns, strict=True)))


def each_of(pools):
    return [Pool(**row) for row in pools.to_pylist()]


def write_examples(world, folder, epochs, seed, negatives=1):
    """Write qrels, triples and pairs: epochs of the 20 training queries, and one of the 10 validation queries."""
    table = tables.read_table(world.path("qrels.parquet"), tables.QRELS)
    for name, part, count in (("train", (0, 20), epochs), ("validation", (20, 10), 1)):
        tables.write_table(folder / f"qrels.{name}.parquet", table.slice(*part))
        for what, sample in (("triples", triples), ("pairs", pairs)):
            argv = ["--qrels", folder / f"qrels.{name}.parquet", "--run", world.path("ranking.trec"), "--seed", seed]
            argv += ["--first-rank", 2, "--last-rank", 20, "--epochs", count, "--output-counts", folder / "c.json"]
            argv += ["--negatives", negatives]
            assert sample.main([str(part) for part in [*argv, "--output", folder / f"{what}.{name}.parquet"]]) == 0
    return folder


def train_options(lm, caches, examples, output, /, **changes):
    """Options of a short training of an encoder; keyword arguments replace some."""
    named = {"batch_size": 5, "gradient_accumulation": 1, "learning_rate": 0.004, **changes}
    return long_training_options(lm, caches, examples, "train", output, **named)


def long_training_options(lm, caches, examples, stage, output, /, **changes):
    """Options of a long training of a small model by either stage; keyword arguments replace some."""
    table, own = {
        "train": ("triples", {"pooling": "mean", "dimension": 16, "passage-length": 24, "batch-size": 2}),
        "train_reranker": ("pairs", {"max-length": 32, "batch-size": 4}),
    }[stage]
    shared = {"base-model": lm, "passages": caches["passages"], "queries": caches["queries.train"], "seed": 1}
    shared[table], shared[f"validation-{table}"] = (examples / f"{table}.{part}.parquet" for part in PARTS)
    shared |= {"validation-queries": caches["queries.validation"], "query-length": 12, "gradient-accumulation": 3}
    shared |= {"learning-rate": 0.002, "warmup-updates": 2, "validate-every": 6, "output": output / "model"}
    shared |= {"output-curve": output / "curve.csv", "output-selection": output / "selection.json"}
    return command_line(shared | own, changes)


def without_dropout(model, folder):
    """Copy a base model without its dropout."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def batch_of(queries, *passages, relevant=None, others=None, scores=None):
    """What a loss knows of mini-batches: positives, then the negatives of each."""
    return Batch(queries, torch.cat(passages, dim=-2), relevant, others, scores)


def loading(stage, argv):
    """A stage in a process of its own that begins with its imports."""
    # As in a terminal, wherever the tests run.
    as_in_a_terminal = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return Python("-m", f"cort.{stage}", *argv, stderr=subprocess.PIPE, preexec_fn=as_in_a_terminal)


class Process:
    """A stage in a process of its own, by default a copy, whose log can be waited for."""

    def __init__(self, stage, argv, start=None, **environment):
        self.process = start(stage, argv) if start else Copy(f"cort.{stage}", *argv, environment=environment)
        self.lines, self.grown = [], threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self.grown:
                self.lines.append(line.rstrip("\n").split(" ", 1)[-1])
                self.grown.notify_all()
        self.process.wait()
        with self.grown:
            self.grown.notify_all()

    def wait_for(self, text, count=1):
        def there():
            return sum(text in line for line in self.lines) >= count or self.process.poll() is not None

        with self.grown:
            assert self.grown.wait_for(there, TIMEOUT)
        assert self.process.poll() is None, self.lines

    def end(self, number=None):
        """Send a signal and wait; the exit status."""
        if number is not None:
            self.process.send_signal(number)
        status = self.process.wait(TIMEOUT)
        self.reader.join()
        return status

    def saying(self, *words):
        return [line for line in self.lines if any(word in line for word in words)]


def results(output):
    """Bytes of both models, and the curve without the column that is measured."""
    rows = (output / "curve.csv").read_text().splitlines()
    return contents(output / "model"), [row.rsplit(",", 1)[0] for row in rows]
