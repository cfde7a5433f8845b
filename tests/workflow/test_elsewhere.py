"""Plans for machines one does not have: descriptions, counted hours, the hours of CoRT's authors, what does not fit."""

import re
from dataclasses import replace

import pytest
import yaml

from cort.system.errors import InputError
from tests.support.jobs import job
from tests.support.planning import write_benchmark
from tests.tiny.generate import write_experiment
from workflow import plan
from workflow.experiment.checks import load
from workflow.planning import elsewhere, flops
from workflow.planning.dryrun import DryRun, DryRunError
from workflow.planning.elsewhere import PAPERS_HOURS, forecast_elsewhere, load_of, papers_hours, search_seconds
from workflow.planning.facts import KNOWN, Texts, gather, model_from
from workflow.planning.hardware import PRODUCTS, Gpus, Hardware, read_hardware, shipped

LINE = r"^\S.*: found .+, expected .+; .+$"
GPU = Gpus(count=2, memory=8e9, bandwidth=5e11, peak={"fp32": 1e13, "fp16": 4e13})
MACHINE = Hardware("a workstation", cores=4, memory=32e9, disk=500e9, gpus=GPU)
DESCRIBED = {
    "name": "mine",
    "cores": 4,
    "memory": 32,
    "disk": 500,
    "gpus": {"count": 2, "memory": 8, "bandwidth": 500, "peak": {"fp32": 10, "fp16": 40}},
}


@pytest.fixture
def config(tmp_path):
    return load(write_experiment(tmp_path / "tiny"))


@pytest.fixture
def facts(config, tmp_path):
    """Texts of 98 characters, 22 tokens with the special ones, and queries of 8 tokens."""
    found = gather(config, tmp_path)
    queries = dict.fromkeys(found.queries, Texts(1_000, 6 * 4.9, 8))
    return replace(found, passages=Texts(5_000, 20 * 4.9, 8), queries=queries)


@pytest.fixture
def planned(tmp_path):
    """Jobs of three stages, of which one is done."""
    train = job("train", outputs=["model"], encoder="encoder", gpus=1, threads=8, benchmark="train.tsv")
    encode = job("encode", outputs=["vectors"], inputs=["model"], encoder="encoder", scatteritem="1-of-1", gpus=1)
    done = job("collection", outputs=["passages"], planned=False)
    return DryRun(
        [train, encode, job("retrieve", outputs=["run"], inputs=["vectors"], system="cort", split="test")], [done]
    )


def described(tmp_path, changes=()):
    """Write a machine; of the changes each is a path and a value, None for none."""
    content = yaml.safe_load(yaml.safe_dump(DESCRIBED))
    for path, value in dict(changes).items():
        *parents, key = path.split(".")
        part = content
        for parent in parents:
            part = part[parent]
        part.pop(key, None) if value is None else part.update({key: value})
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content), "utf-8")
    return str(file)


# Descriptions.


def test_a_description_is_read(tmp_path):
    assert read_hardware(described(tmp_path)) == replace(MACHINE, name="mine")


def test_machines_that_come_with_the_project():
    assert shipped() == ["2080ti", "a100-80gb", "h200", "rtx-4090"]


@pytest.mark.parametrize("name", shipped())
def test_every_machine_is_right_in_itself(name):
    gpus = read_hardware(name).gpus
    assert gpus.count == 1
    # Tensor cores are at least twice as fast, and a GPU has less memory than it reads in a second.
    assert gpus.peak["fp16"] >= 2 * gpus.peak["fp32"]
    assert gpus.memory < gpus.bandwidth


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"coers": 4, "cores": None}, ["unknown key coers", "did you mean cores?", "found no key cores"]),
        ({"cores": 0}, ["cores: found 0, expected at least 1"]),
        ({"cores": 2.5}, ["cores: found 2.5, expected a whole number"]),
        ({"memory": 10**6}, ["memory: found 1000000, expected at most 100000"]),
        ({"disk": "2 TB"}, ["disk: found '2 TB', expected a number"]),
        ({"gpus.count": 0}, ["gpus.count: found 0, expected at least 1"]),
        ({"gpus.bandwidth": -1}, ["gpus.bandwidth: found -1, expected at least 1"]),
        ({"gpus.memory": 0}, ["gpus.memory: found 0, expected at least 1"]),
        ({"gpus.peak.fp32": None}, ["gpus.peak: found no key fp32"]),
        ({"gpus.peak.bf16": 0}, ["gpus.peak.bf16: found 0, expected at least 0.1"]),
        ({"gpus.peak.tf32": 80}, ["gpus.peak: found the unknown key tf32"]),
        ({"name": 7, "gpus": None}, ["name: found 7, expected text", "found no key gpus"]),
    ],
)
def test_every_mistake_of_a_description_is_a_line(tmp_path, changes, parts):
    with pytest.raises(InputError) as caught:
        read_hardware(described(tmp_path, changes))
    lines = str(caught.value).splitlines()
    assert all(re.match(LINE, line) and line.startswith(f"{tmp_path}") for line in lines)
    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("h20", "did you mean h200?"),
        ("mainframe", "or a YAML file like those in workflow/planning/machines"),
        ("nowhere.yaml", "nowhere.yaml: found no readable file"),
    ],
)
def test_unknown_machines_are_refused(name, part):
    with pytest.raises(InputError, match=re.escape(part)) as caught:
        read_hardware(name)
    assert re.match(LINE, str(caught.value))


# Hours.


def test_training_takes_its_operations_by_the_assumed_speed(config, facts):
    found = load_of(job("train", encoder="encoder"), config, facts, GPU)
    # A layer of width 32 has 4 x 32^2 weights of attention and 2 x 32 x 64 others.
    token = 2 * (4 * 32**2 + 2 * 32 * 64) + 4 * 22 * 32
    triple = (8 + 2 * 22) * token
    # Two epochs, forward and twice as much backward; a check at the start and after each five updates of eight.
    flops = triple * (3 * 2_000 + 1_000 * (2_000 // 8 // 5 + 1))
    assert found.flops == pytest.approx(flops)
    assert found.seconds == pytest.approx(flops / GPU.reached("fp32", 32))


@pytest.mark.parametrize(
    ("asked", "found", "peak", "size"),
    [("fp16", "fp16", 4e13, 2), ("fp32", "fp32", 1e13, 4), ("bf16", "fp32", 1e13, 4)],
)
def test_precision_decides_the_speed_if_the_gpu_has_it(config, facts, asked, found, peak, size):
    config["encoders"]["encoder"]["precision"] = asked
    one = load_of(job("encode", encoder="encoder", scatteritem="1-of-1"), config, facts, GPU)
    token = 2 * (4 * 32**2 + 2 * 32 * 64) + 4 * 22 * 32
    assert (one.precision, one.flops) == (found, 5_000 * 22 * token)
    # Products at three quarters of the peak; seven numbers moved for each operation of a model of width 1.
    assert one.seconds == pytest.approx(one.flops / (0.75 * peak) + 7 * one.flops * size / 32 / 5e11)


def test_search_reads_all_vectors_for_each_batch_of_queries(config, facts):
    vectors, e, queries = 10_000_000, 128, 1_100
    stored = 4 * vectors * e
    products = 2 * queries * vectors * e / (PRODUCTS * 1e13)
    read = (3 * stored + 3 * 4 * queries * vectors) / (0.8 * 5e11)
    # 5.1 GB of 8 GB are too much to stay, of 11 GB they are not.
    for memory, sent in ((8e9, 3), (11e9, 1)):
        seconds = search_seconds(vectors, e, queries, replace(GPU, memory=memory))
        assert seconds == pytest.approx(products + read + sent * stored / 12e9)
    one = load_of(job("retrieve", system="cort", split="test"), config, facts, GPU)
    assert one.flops == 2 * 1_000 * 5_000 * 16


@pytest.mark.parametrize(
    ("precision", "peak", "bandwidth", "sequences"),
    [("fp32", 15.7e12, 9e11, 12), ("fp16", 125e12, 9e11, 52), ("fp16", 312e12, 2.039e12, 110.5)],
    ids=["V100", "V100-fp16", "A100-fp16"],
)
def test_speeds_are_those_that_nvidia_publishes(precision, peak, bandwidth, sequences):
    # Fine-tuning of BERT-large on texts of 384 tokens.
    model = model_from(KNOWN["google-bert/bert-large-uncased"])
    gpus = Gpus(1, 8e10, bandwidth, {"fp32": peak, precision: peak})
    assert gpus.reached(precision, model.hidden) / (3 * 384 * model.flops(384)) == pytest.approx(sequences, rel=0.15)


def test_batches_are_counted_as_stages_make_them():
    from cort.models.transformer import TOKEN_BUDGETS
    from cort.retrieval.exact import QUERIES_AT_ONCE

    assert (flops.ENCODED, elsewhere.SEARCHED) == (TOKEN_BUDGETS, QUERIES_AT_ONCE)


def test_the_hours_of_corts_authors_are_met_within_a_factor_of_two():
    ratios = {stage: hours / PAPERS_HOURS[stage] for stage, hours in papers_hours().items()}
    assert ratios.keys() == {"train", "encode"}
    assert all(0.5 < ratio < 2 for ratio in ratios.values()), ratios


def test_training_queries_are_those_with_judgements():
    config = load(str(elsewhere.PAPERS_CONFIG))
    # 502,939 queries of 808,731 have 532,761 judgements.
    assert gather(config, elsewhere.SHIPPED).queries["train"].count == 532_761
    assert gather(config, elsewhere.SHIPPED).judged("train") == 532_761
    config["splits"]["train"]["unjudged_queries"] = "keep"
    assert gather(config, elsewhere.SHIPPED).queries["train"].count == 808_731


# Plans.


def test_a_plan_has_all_jobs_whatever_is_done_and_measured_here(config, planned, tmp_path):
    before = forecast_elsewhere(planned, config, MACHINE, 4, tmp_path)
    write_benchmark(tmp_path / "train.tsv", 100_000, 9_999_999)
    assert forecast_elsewhere(planned, config, MACHINE, 4, tmp_path) == before
    assert before.problems == []
    heading, on_gpus, on_cores, *_ = before.text.split("\n\n")
    assert heading == ("tiny on a workstation (2 GPUs, 4 cores, 32 GB of memory, 500 GB of disk): 4 jobs in all.")
    assert [line.split()[:2] for line in on_gpus.splitlines()[1:]] == [
        ["train", "1"],
        ["encode", "1"],
        ["retrieve", "1"],
    ]
    assert "5 % of 10 TFLOP/s, fp32" in on_gpus
    assert [line.split()[0] for line in on_cores.splitlines()] == ["stage", "collection"]
    assert "of their 33 h" in before.text
    # Seconds are not worth a word on precision.
    assert "note: " not in before.text


def test_a_training_on_two_gpus_takes_half_the_time_and_as_many_gpu_hours(config, planned, tmp_path):
    def of(count):
        config["encoders"]["encoder"]["training"].update(gpus=count, epochs=10**12)
        text = forecast_elsewhere(planned, config, MACHINE, 4, tmp_path).text
        assert "of the GPU time are in fp32; `precision: fp16` would take" in text
        hours, time = re.search(r"In all (\S+) h of GPU time, .+ about (\S+) days from", text).groups()
        return float(hours.replace(",", "")), float(time)

    (one, slow), (two, fast) = of(1), of(2)
    assert one == two
    assert slow == pytest.approx(2 * fast, rel=0.1)


def test_what_does_not_fit_is_a_line_each(config, planned, tmp_path):
    config["encoders"]["encoder"]["training"].update(gpus=3, tokens_at_once=8192)
    config["encoders"]["encoder"]["precision"] = "bf16"
    small = replace(MACHINE, memory=1e8, disk=1e5, gpus=replace(GPU, memory=5e5))
    found = forecast_elsewhere(planned, config, small, 4, tmp_path)
    assert all(re.match(LINE, line) for line in found.problems)
    places = [line.partition(": ")[0] for line in found.problems]
    assert places == [
        "encoders.encoder.training",
        "encoders.encoder",
        "memory for retrieve cort/test",
        "disk",
        "encoders.encoder.training.gpus",
    ]
    assert "MB on a GPU" in found.problems[0]
    assert "lower tokens_at_once" in found.problems[0]
    assert "note: these GPUs have no bf16" in found.text


@pytest.fixture
def call(monkeypatch, capsys, tmp_path, planned):
    """Call the plan in the folder of the experiment, without Snakemake; status, output, lines of errors."""
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "dry_run", lambda words, _: asked.append(words) or planned)

    def run(*arguments):
        status = plan.main(["--configfile", "tiny/tiny.yaml", *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err.splitlines()

    run.asked = asked
    return run


@pytest.mark.usefixtures("config")
def test_the_command_plans_for_a_machine(call, tmp_path):
    status, output, errors = call("--machine", described(tmp_path), "--", "--rerun-incomplete")
    assert (status, errors) == (0, [])
    assert output.startswith("tiny on mine (2 GPUs, 4 cores")
    (words,) = call.asked
    assert words[2:] == ["--cores", "4", "--set-scatter", "encode=2", "expand=2", "weigh=2", "--rerun-incomplete"]


@pytest.mark.usefixtures("config")
def test_the_command_refuses_what_does_not_fit(call, tmp_path):
    status, output, errors = call("--machine", described(tmp_path, {"disk": 1, "memory": 1}), "--cores", "2")
    assert output.startswith("tiny on mine (2 GPUs, 2 cores")
    assert status == bool(errors)
    assert all(re.match(LINE, line) for line in errors)


def test_mistakes_of_machine_and_experiment_come_together(call, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.yaml").write_text("dataset: tiny\n", "utf-8")
    status, output, errors = call("--machine", described(tmp_path, {"cores": 0}))
    assert (status, output) == (1, "")
    assert errors[0].endswith("mine.yaml: cores: found 0, expected at least 1; fix the value")
    assert any(line.startswith("tiny/tiny.yaml: ") for line in errors)


@pytest.mark.usefixtures("config")
def test_what_snakemake_says_is_passed_on(call, monkeypatch, tmp_path):
    def refuse(*_):
        raise DryRunError("nothing: found no rule, expected one; name another")

    monkeypatch.setattr(plan, "dry_run", refuse)
    status, output, errors = call("--machine", "h200")
    assert (status, output, errors) == (1, "", ["nothing: found no rule, expected one; name another"])


@pytest.mark.parametrize("option", ["--run", "--force"])
def test_nothing_runs_on_a_machine_one_does_not_have(call, option, capsys):
    with pytest.raises(SystemExit) as left:
        call("--machine", "h200", option)
    assert left.value.code == 2
    assert "argument --machine: found --run or --force" in capsys.readouterr().err
