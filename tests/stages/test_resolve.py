"""The settings that are stored with results: as they were given, in their order, or refused."""

import json

import pytest
import yaml

from cort import resolve

CONFIG = {
    "title": "{split}: ü",
    "dataset": "d",
    "seed": 42,
    "depth": 10,
    "systems": {"on": {"run": "020"}},
    "shards": 3,
    "b": 1e-06,
}


def test_settings_are_written_as_they_are_given(tmp_path):
    output = tmp_path / "experiment.yaml"
    words = ["--config", json.dumps(CONFIG), "--output", str(output)]
    assert resolve.main(words) == 0
    stored = yaml.safe_load(output.read_text("utf-8"))
    assert list(stored.items()) == [*CONFIG.items()]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--config", "{"], "--config: found "),
        (["--config", "[1]"], "--config: found "),
    ],
)
def test_what_is_no_settings_is_refused(tmp_path, complaint, options, words):
    output = tmp_path / "out" / "experiment.yaml"
    assert complaint(resolve.main, ["--config", "{}", "--output", output, *options], output).startswith(words)
