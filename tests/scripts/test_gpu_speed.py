"""The speeds of a GPU tried on a CPU: the arithmetic, and all of it once."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from scripts import gpu_speed


def test_the_operations_of_bert_base():
    config = SimpleNamespace(hidden_size=768, num_hidden_layers=12, intermediate_size=3072)
    # 85 million weights in the layers (all 110 million but embeddings, biases, norms and pooler), and 12 x 12 heads.
    expected = 2 * 84_934_656 * 100 + 12 * 12 * 4 * 100 * 100 * 64
    assert gpu_speed.operations_of(config, np.array([100])) == expected
    assert gpu_speed.operations_of(config, np.array([100, 100])) == 2 * expected


@pytest.mark.slow
@pytest.mark.exhaustive
def test_all_of_it_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setattr(sys, "argv", ["", "--device", "cpu", "--output", str(tmp_path / "found.json")])
    gpu_speed.main()
    rows = json.loads((tmp_path / "found.json").read_text("utf-8"))["rows"]
    names = [what.partition(",")[0] for what, *_ in rows]
    work = ("train {} in RepBERT's batches", "train {}", "encode {}", "train {} as a cross-encoder", "score {}")
    models = [each.format(kind) for kind in ("bert", "albert") for each in 2 * work]
    assert names == ["product", "product", "copy", "search", "search", *models]
    assert all(speed > 0 and share > 0 for _, speed, _, share in rows)
    assert all(f"| {what} |" in capsys.readouterr().out for what, *_ in rows[:1])
