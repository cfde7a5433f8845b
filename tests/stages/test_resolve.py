"""The settings that are stored with results: as they were given, in their order, or refused."""

import json

import pytest
import yaml

CONFIG = {"title": "{split}: ü", "dataset": "d", "seed": 42, "systems": {"on": {"run": "020"}}, "shards": 3, "b": 1e-06}


def test_settings_are_written_as_they_are_given(tmp_path, stage):
    output = stage("resolve", config=json.dumps(CONFIG), output=tmp_path / "experiment.yaml")
    assert list(yaml.safe_load(output.read_text("utf-8")).items()) == [*CONFIG.items()]


@pytest.mark.parametrize("config", ["{", "[1]"])
def test_what_is_no_settings_is_refused(tmp_path, refused, config):
    assert refused("resolve", config=config, output=tmp_path / "experiment.yaml").startswith("--config: found ")
