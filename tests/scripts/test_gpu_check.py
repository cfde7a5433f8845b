"""The GPU check tried on a CPU: what becomes of parts that fail, hang or die, its arithmetic, and all of it once."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from scripts import gpu_check

TESTS = """
import os, signal, time
def test_well(): pass
def test_badly(): assert False, "it is wrong"
"""


def test_what_fails_hangs_or_dies_ends_nothing_else(tmp_path):
    ends = {"fails": "", "hangs": "def test_it(): time.sleep(60)", "dies": "def test_it(): os._exit(3)"}
    found = {}
    for name, more in ends.items():
        path = tmp_path / f"test_{name}.py"
        path.write_text((TESTS if name == "fails" else TESTS.replace("False", "True")) + more)
        found[name] = gpu_check.run(str(path), "cpu", 20 if name == "hangs" else 100)
    statuses = {name: [one["status"] for one in some] for name, some in found.items()}
    ended = ["passed", "passed", "failed"]
    assert statuses == {"fails": ["passed", "failed"], "hangs": ended, "dies": ended}
    assert "it is wrong" in found["fails"][1]["error"]
    assert found["hangs"][2]["error"] == "took more than 20 s, and was killed"
    assert found["dies"][2]["error"] == "ended with status 3"


def test_the_operations_of_bert_base():
    config = SimpleNamespace(hidden_size=768, num_hidden_layers=12, intermediate_size=3072)
    # 85 million weights in the layers (all 110 million but embeddings, biases, norms and pooler), and 12 x 12 heads.
    expected = 2 * 84_934_656 * 100 + 12 * 12 * 4 * 100 * 100 * 64
    assert gpu_check.operations_of(config, np.array([100])) == expected
    assert gpu_check.operations_of(config, np.array([100, 100])) == 2 * expected


@pytest.mark.slow
@pytest.mark.exhaustive
def test_all_of_it_on_a_cpu(tmp_path):
    output = tmp_path / "found.json"
    assert gpu_check.main(["--device", "cpu", "--seconds", "1000", "--output", str(output)]) == 0
    found = json.loads(output.read_text())["found"]
    assert len(found) > 30
    assert {one["status"] for one in found} <= {"passed", "skipped", "reached", "missed"}
