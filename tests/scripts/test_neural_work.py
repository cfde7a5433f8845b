"""The table of GPU hours by machine."""

from scripts.rehearsal.neural_work import table
from tests.support.jobs import job
from workflow.planning.elsewhere import HOUR, Load
from workflow.planning.hardware import Gpus


def test_the_table_adds_up_the_hours_of_each_machine():
    gpus = Gpus(count=1, memory=8e9, bandwidth=1e30, peak={"fp32": 1e13, "fp16": 4e13})
    work = 3.0e13 * HOUR  # four hours at three quarters of the peak of fp32, one of fp16
    loads = [Load(job("train", encoder=name), "fp32", 768, work, 4 * HOUR) for name in ("one", "other")]
    loads.append(Load(job("retrieve", system="one", split="test"), "fp32", 128, 1e12, 2 * HOUR))
    lines = [line.strip("| ").split(" | ") for line in table({"mine": loads}, {"mine": gpus})]
    assert lines[0] == ["stage", "jobs", "EFLOP", "mine"]
    assert lines[2:] == [
        ["`train`", "2", "0.216", "8.0 h"],
        ["`retrieve`", "1", "< 0.001", "2.0 h"],
        ["all", "3", "0.216", "10 h"],
        ["all, in 16 bits", "3", "0.216", "4.0 h"],
    ]
