"""A tiny seeded world of texts and the models made from it, shared by the tests of the neural stages."""

import importlib
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import FileLock

from tests.support import forking, quick_java
from tests.support.common import BERT, command_line, write_rows
from tests.support.sandbox import TINY, copy_with_tiny
from tests.tiny.generate import word

# No test may reach for the network. Set before any library reads it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Not those of the terminal that happens to run the tests.
os.environ["COLUMNS"] = "110"
# As in a terminal, also where a shell runs the tests in the background and has Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]

forking.begin()
quick_java.begin()


# Seconds of files, and of the slowest tests of their own, as `make durations` recorded them.
DURATIONS = json.loads((ROOT / "tests" / "durations.json").read_text("utf-8"))
#: seconds of a test for which a worker of its own is worth it, unless it shares fixtures with its file
LONG = 8


def group_of(name):
    """Name the tests that one worker runs: those of a file, which share fixtures, or one that takes long."""
    return name if name in DURATIONS else name.partition("::")[0]


def pytest_xdist_make_scheduler(config, log):
    """Give a worker all tests of a group (`--dist loadgroup` of pytest-xdist 3.8 has no effect with pytest 9.2)."""
    from xdist.scheduler import LoadScopeScheduling

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


def pytest_collection_modifyitems(items):
    """Begin with what takes longest, so that no worker is left alone with it in the end.

    Of what needs the tiny experiment, the shortest group comes first and builds it, before the others wait for it.
    """
    groups = {item: group_of(item.nodeid) for item in items}
    seconds = {group: DURATIONS.get(group, 0) for group in groups.values()}
    builders = [groups[item] for item in items if "built" in item.fixturenames and seconds[groups[item]] >= LONG]
    first = min(builders, key=seconds.get, default=None)
    items.sort(key=lambda item: (groups[item] != first, -seconds[groups[item]]))
    if "RECORD_DURATIONS" in os.environ:
        for item in items:
            definitions = [one for many in item._fixtureinfo.name2fixturedefs.values() for one in many]
            shares = any(one.scope == "module" and one.baseid == item.parent.nodeid for one in definitions)
            item.user_properties.append(("shares", shares))


# Where CI=true, a skipped test fails the run, unless its reason is one of these.
MAY_BE_SKIPPED = re.compile(
    r"no CUDA device|a CUDA device is there|INFINITY is not set|not on a CPU|trec_car|python-docx|python-pptx|openpyxl"
    # As on the processor that `make test-avx2` imitates.
    r"|this processor does not compute correctly in"
)


def skipped(config):
    """Count the reasons of skipped tests; processes that run tests for another one know of none."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)


def pytest_sessionfinish(session):
    """Fail where CI=true and a test was skipped that should run."""
    wrong = [reason for reason in skipped(session.config) if not MAY_BE_SKIPPED.match(reason)]
    if os.environ.get("CI") == "true" and wrong and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def record_durations(reports):
    """Write how long files took, and tests that share no fixtures with their file, without the fixtures of all."""
    seconds = Counter()
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.when == "call" and not dict(report.user_properties)["shares"]:
            seconds[report.nodeid] += report.duration
    kept = {name: round(spent) for name, spent in sorted(seconds.items()) if spent >= LONG}
    (ROOT / "tests" / "durations.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def pytest_terminal_summary(terminalreporter):
    """Say in one line how many tests were skipped for which reason, and with CI=true, which must not be."""
    if "RECORD_DURATIONS" in os.environ:
        reports = [one for kind in terminalreporter.stats.values() for one in kind]
        record_durations([one for one in reports if isinstance(one, pytest.TestReport)])
    reasons = skipped(terminalreporter.config)
    if reasons:
        parts = "; ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"{reasons.total()} tests skipped: {parts}")
    for reason in reasons if os.environ.get("CI") == "true" else ():
        if not MAY_BE_SKIPPED.match(reason):
            terminalreporter.write_line(f"error: CI=true, and tests were skipped: {reason}")


@pytest.fixture
def mount_disk():
    """Give a folder a small disk of its own; once more with the same folder, another size."""
    mounted = []

    def mount(folder, kilobytes):
        size = f"size={kilobytes}k"
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"remount,{size}" if folder in mounted else size, "tmpfs", folder]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("mounting takes rights that are not given here")
        if folder not in mounted:
            mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="session", autouse=True)
def searches_start_at_once():
    """Those of Lucene in this process; in others, builds see to it."""
    from cort.retrieval import lucene

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lucene, "sys", SimpleNamespace(executable=str(forking.FORKED / "python")))
        yield


@pytest.fixture
def real_starts(monkeypatch):
    """Start stages as users do: their signals, deaths, rights and memory are those of processes of their own."""
    from cort.retrieval import lucene

    monkeypatch.delenv(forking.HOOK)
    monkeypatch.setattr(lucene, "sys", sys)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A copy of the project in which the tiny experiment was built; not to be changed, for all workers share it."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "built"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            tree = copy_with_tiny(folder.with_suffix(".new"))
            status, output = forking.snakemake(tree, "--cores", 2, "--configfile", TINY)
            assert status == 0, output[-10_000:]
            tree.rename(folder)
    return folder


TOPICS, WORDS_PER_TOPIC = 6, 10
# Larger weights than usual: vectors and scores of different texts then differ by more than the tolerance of a test.
ARCHITECTURE = {"model_type": "bert", **BERT, "max_position_embeddings": 48, "initializer_range": 0.3}


@dataclass(frozen=True)
class World:
    """Paths of the files; the first 20 queries are for training, the other 10 for validation."""

    folder: Path
    doc_ids: list[str]
    texts: list[str]
    query_ids: list[str]
    query_texts: list[str]
    #: target[query_id] is the one relevant passage
    target: dict[str, str]

    def path(self, name: str) -> str:
        return str(self.folder / name)


def topic_words(topic):
    return [word(topic * WORDS_PER_TOPIC + number) for number in range(WORDS_PER_TOPIC)]


def make_texts(generator):
    """Passages of one topic and one word of their own each; queries ask for the own word and the topic."""
    common = [word(900 + number) for number in range(12)]
    passages, queries = [], []
    for number in range(60):
        length = generator.randint(3, 9)
        words = [*generator.choices(topic_words(number % TOPICS), k=length), *generator.choices(common, k=length)]
        passages.append(" ".join([*words, word(300 + number)]))
    for number in range(30):
        topic = topic_words(number * 2 % TOPICS)
        queries.append(" ".join([word(300 + number * 2), *generator.choices(topic, k=generator.randint(1, 3))]))
    return passages, queries


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Tables passages, queries.{train,validation}, qrels and the run ranking.trec of 30 passages per query."""
    from cort.formats import tables
    from cort.formats.records import Ranking
    from cort.formats.runs import write_run

    folder = tmp_path_factory.mktemp("world")
    generator = random.Random(5)  # noqa: S311
    texts, query_texts = make_texts(generator)
    doc_ids = [f"d{number}" for number in range(len(texts))]
    query_ids = [f"q{number}" for number in range(len(query_texts))]
    target = {query_id: doc_ids[number * 2] for number, query_id in enumerate(query_ids)}
    write_rows(folder / "passages.parquet", tables.PASSAGES, zip(doc_ids, texts, strict=True))
    asked = list(zip(query_ids, query_texts, strict=True))
    write_rows(folder / "queries.train.parquet", tables.QUERIES, asked[:20])
    write_rows(folder / "queries.validation.parquet", tables.QUERIES, asked[20:30])
    write_rows(folder / "qrels.parquet", tables.QRELS, [(query_id, doc_id, 1) for query_id, doc_id in target.items()])
    rankings = []
    for query_id, text in zip(query_ids, query_texts, strict=True):
        shared = [len(set(text.split()) & set(passage.split())) + generator.random() for passage in texts]
        by = np.argsort(-np.array(shared))[:30]
        rankings.append(Ranking(query_id, [doc_ids[i] for i in by], np.array(shared)[by]))
    write_run(folder / "ranking.trec", rankings, "overlap")
    return World(folder, doc_ids, texts, query_ids, query_texts, target)


@pytest.fixture(scope="session")
def make_base_model(world, tmp_path_factory):
    """Build a base model from scratch; settings replace those of `ARCHITECTURE`, None drops one."""
    from cort import base_model

    def build(seed=1, folder=None, **settings):
        folder = folder or tmp_path_factory.mktemp("base_model") / "model"
        named = {name: value for name, value in {**ARCHITECTURE, **settings}.items() if value is not None}
        options = ["--architecture", json.dumps(named), "--vocabulary-size", "160", "--seed", str(seed)]
        assert base_model.main([*options, "--passages", world.path("passages.parquet"), "--output", str(folder)]) == 0
        return folder

    return build


@pytest.fixture(scope="session")
def lm(make_base_model):
    """Folder of a BERT of 2 layers x 32, 48 positions, with dropout, random weights."""
    import torch

    torch.set_num_threads(1)
    return make_base_model()


@pytest.fixture(scope="session")
def t5(lm, tmp_path_factory):
    """Folder of a T5 of 2 + 2 layers x 32 with the tokenizer of `lm`, random weights."""
    from tests.support.released import write_t5

    return write_t5(tmp_path_factory.mktemp("t5") / "model", lm)


@pytest.fixture(scope="session")
def caches(world, lm):
    """Token caches of passages, train and validation queries, by name."""
    from cort import tokenize

    paths = {}
    for name in ("passages", "queries.train", "queries.validation"):
        paths[name] = world.path(f"{name}.arrow")
        options = ["--tokenizer", str(lm), "--texts", world.path(f"{name}.parquet"), "--output", paths[name]]
        assert tokenize.main(options) == 0
    return paths


def saved(model, folder):
    """Save a model; its folder."""
    folder.mkdir(exist_ok=True)
    model.save(folder)
    return folder


@pytest.fixture(scope="session")
def make_encoder(lm, tmp_path_factory):
    """Save a new encoder with random weights; its folder."""
    from cort.models.encoder import new_encoder
    from tests.support.small import encoder_settings

    def build(pooling="mean", dimension=8, query_length=12, passage_length=16, *, seed=3, model=lm, **more):
        cleaning = more.pop("cleaning", "raw")
        settings = encoder_settings(pooling, dimension, query_length, passage_length, **more)
        return saved(new_encoder(model, settings, seed, cleaning=cleaning), tmp_path_factory.mktemp("encoder"))

    return build


@pytest.fixture(scope="session")
def make_reranker(lm, tmp_path_factory):
    """Save a new re-ranker, a cross-encoder unless settings say otherwise, with random weights; its folder."""
    from cort.models.rerankers import new_reranker
    from tests.support.small import pair_settings

    def build(query_length=8, max_length=24, seed=4, model=lm, **settings):
        new = new_reranker(model, pair_settings(query_length, max_length, **settings), seed)
        return saved(new, tmp_path_factory.mktemp("reranker"))

    return build


@pytest.fixture
def one_thread():
    """Small products would wait for each other's threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bf16():
    """Skip what takes bf16 where the product would refuse it."""
    import torch

    from cort.models.precision import is_right

    if not is_right("bf16", torch.device("cpu")):
        pytest.skip("this processor does not compute correctly in bf16")


@pytest.fixture
def training_process():
    """Leave the process as it was: training fixes threads and algorithms, and accelerate keeps one state for all."""
    import torch
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(1)


@pytest.fixture
def complaint(capsys):
    """Run a stage that must fail on its input: status 1, one line, no traceback; returns that line."""

    def check(main, argv, output=None):
        capsys.readouterr()
        assert main([str(part) for part in argv]) == 1
        lines = [line for line in capsys.readouterr().err.splitlines() if " ERROR " in line]
        assert len(lines) == 1
        if output is not None:
            assert not Path(output).exists()
            assert not list(Path(output).parent.glob(".*.tmp"))
        return lines[0].split(" ERROR ", 1)[1]

    return check


def main_of(name):
    """The main function of a stage, and the words that choose one of its commands: `encode vectors`."""
    module, *command = name.split()
    return importlib.import_module(f"cort.{module}").main, command


@pytest.fixture
def stage():
    """Run a stage or command in this process, with options by name, as `command_line` writes them; it must succeed.

    The path of its output.
    """

    def run(name, **options):
        main, command = main_of(name)
        assert main([*command, *command_line(options)]) == 0
        return Path(options["output"]) if "output" in options else None

    return run


@pytest.fixture
def refused(complaint):
    """Run a stage as `stage` does; it must refuse its input, without any output. The one line that it says."""

    def run(name, **options):
        main, command = main_of(name)
        return complaint(main, [*command, *command_line(options)], options.get("output"))

    return run


@pytest.fixture
def record_messages(caplog):
    """Listen below the root logger, whose handlers every command line replaces."""
    logging.getLogger("cort").addHandler(caplog.handler)
    yield
    logging.getLogger("cort").removeHandler(caplog.handler)
