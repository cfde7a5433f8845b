import subprocess
import sys

import pytest

from cort.runtime import memory
from tests.conftest import ROOT


@pytest.fixture
def limit(monkeypatch, tmp_path):
    """The limit on a machine of 24 GB with these control groups and files of limits, as a/b/memory.max -> text."""

    def find(groups="", files=None):
        (tmp_path / "cgroup").write_text(groups, "utf-8")
        for name, text in (files or {}).items():
            path = tmp_path / "cgroups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        monkeypatch.setattr(memory, "total_memory", lambda: 24_000)
        monkeypatch.setattr(memory, "PROC_CGROUP", tmp_path / "cgroup")
        monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroups")
        return memory.memory_limit()

    return find


V1 = "12:cpu,cpuacct:/other\n5:memory:/job\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, 24_000),
        ("0::/job\n", {"job/memory.max": "max"}, 24_000),
        ("0::/slurm/job/step\n", {"slurm/job/memory.max": "2000", "slurm/job/step/memory.max": "max"}, 2_000),
        ("0::/slurm/job/step\n", {"slurm/memory.max": "1000"}, 1_000),
        (V1, {"memory/job/memory.limit_in_bytes": "3000"}, 3_000),
        # How version 1 says that there is no limit.
        (V1, {"memory/job/memory.limit_in_bytes": "9223372036854771712"}, 24_000),
    ],
)
def test_the_limit_is_that_of_the_machine_or_of_any_control_group_above(limit, groups, files, expected):
    assert limit(groups, files) == expected


def test_free_memory_is_no_more_than_the_limit(monkeypatch):
    assert 0 < memory.free_memory() < memory.total_memory()
    monkeypatch.setattr(memory, "memory_limit", lambda: 1_000)
    assert memory.free_memory() == 1_000


def test_peak_memory_includes_memory_freed_since():
    code = """
from cort.runtime.memory import peak_memory
before = peak_memory() >> 20
held = bytes(b"x") * (before + 100 << 20)
del held
print(before, peak_memory() >> 20)
"""
    # Through a shell of its own: a process starts with the peak of the one it was split off from.
    command = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = map(int, result.stdout.split())
    assert before < 100
    assert before + 100 <= after <= before + 200
