import os
from types import SimpleNamespace

import pytest
import yaml

from cort.downloads.catalog import load_catalog
from cort.experiment.checks import load
from tests.support.common import ROOT
from workflow import sizes


@pytest.fixture
def config(tmp_path):
    """1,000 passages of 100 bytes each and 20 queries, of which 5 are held out."""
    (tmp_path / "c.tsv").write_text("".join(f"{number:04d}\t{'x' * 94}\n" for number in range(1_000)))
    (tmp_path / "q.tsv").write_text("1\ta\n" * 20)
    files = {"queries": str(tmp_path / "q.tsv"), "qrels": "q"}
    training = {"base_model": "small", "dimension": 16, "training": {}}
    found = {
        "dataset": "a",
        "collection": {"passages": str(tmp_path / "c.tsv")},
        "splits": {"train": files, "validation": {"hold_out": 5}, "test": {**files, "qrels": "r", "sample": 7}},
        "base_models": {"small": {"architecture": {"model_type": "bert"}}},
        "encoders": {"cort": training},
        "systems": {"bm25": {"retrieve": "bm25"}, "cort": {"retrieve": "cort"}},
    }
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(found))
    return load(tmp_path / "a.yaml")


def test_sizes_follow_from_counts_and_settings(config):
    assert sizes.collection(config) == (1_000, 100_000)
    assert [sizes.queries(config, split) for split in ("train", "validation", "test")] == [20, 5, 7]
    assert sizes.text(config, None) == 0.1
    half = SimpleNamespace(encoder="cort", scatteritem="1-of-2")
    assert sizes.vectors(config, half) == pytest.approx(1_000 * (16 * 4 + sizes.VECTOR) / 2 / 1e6)
    # 1,000 passages are no more than the depth.
    assert sizes.run(config, SimpleNamespace(split="test")) == pytest.approx(7 * 1_000 * sizes.LINE / 1e6)


def test_public_files_have_the_sizes_of_the_catalogue(tmp_path):
    file = load_catalog().find("msmarco/collection.tsv")
    assert sizes.lines("results/msmarco/raw/msmarco/collection.tsv") == (file.records or file.lines, file.about)
    config = load(ROOT / "config" / "msmarco.yaml")
    archive = load_catalog().source_of(file.name)
    found = sizes.download(config, SimpleNamespace(source="msmarco", file="collection.tsv"))
    assert found == pytest.approx((file.about + archive.about) / 1e6)


def test_what_cannot_be_read_has_no_size_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_bytes(b"")
    assert {sizes.lines(str(tmp_path / name)) for name in ("pipe", "empty", "none")} == {(0, 0)}
