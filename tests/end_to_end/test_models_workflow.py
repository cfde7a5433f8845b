import json
import re
import shutil

import numpy as np
import pytest
import torch
import yaml
from sentence_transformers import CrossEncoder, SentenceTransformer

from cort.formats.tables import PASSAGES, QUERIES, read_table
from cort.models.encoder import load_encoder
from cort.retrieval.vectors import open_vectors
from tests.support.cards import card_of, cells
from tests.support.forking import succeed
from tests.support.sandbox import TINY
from tests.support.workflow import planned, released_config

pytestmark = pytest.mark.slow

MODEL = "results/tiny/encoders/encoder/best"


def test_sentence_transformers_loads_what_was_trained(built):
    results = built / "results" / "tiny"
    peer = SentenceTransformer(str(built / MODEL), device="cpu")
    for table, encode in (("passages", peer.encode_document), ("queries.test", peer.encode_query)):
        texts = read_table(results / f"collection/{table}.parquet", QUERIES if "." in table else PASSAGES)["text"]
        name = "queries.test" if "." in table else "passages.1-of-1"
        stored = open_vectors([results / f"embeddings/encoder/{name}.arrow"]).matrix()
        assert np.abs(encode(texts.to_pylist()) - stored).max() < 1e-5
    CrossEncoder(str(results / "rerankers/cross/best"), device="cpu")
    for folder, kind in (("encoders/encoder", "SentenceTransformer"), ("rerankers/cross", "CrossEncoder")):
        header, text = card_of(results / folder / "best")
        assert header["library_name"] == "sentence-transformers"
        assert f'{kind}("{folder.rpartition("/")[2]}")' in text
        assert ["seed", "`42`"] in cells(text)
        assert "base_model" not in header


def test_a_released_encoder_takes_the_place_of_a_trained_one(built, tmp_path):
    folder = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    encoder = load_encoder(folder / MODEL)
    state = {f"transformer.{name}": value for name, value in encoder.transformer.state_dict().items()}
    state |= {f"f1.{name}": value for name, value in encoder.projection.state_dict().items()}
    torch.save({"epoch": 9, "state_dict": state}, folder / "tiny" / "data" / "encoder.ckpt")
    tiny = yaml.safe_load((folder / TINY).read_text("utf-8"))
    config = released_config(tiny) | {"dataset": "released"}
    config["encoders"]["encoder"]["pooling"] = tiny["encoders"]["encoder"]["pooling"]
    (folder / "released.yaml").write_text(yaml.safe_dump(config), "utf-8")
    results = "results/released"
    wanted = [f"{results}/{name}" for name in ("runs/test/cort.trec", "provenance.json")]
    output = succeed(folder, "snakemake", "--cores", 2, "--configfile", "released.yaml", "--", *wanted)
    jobs = planned(output)
    assert jobs["import_encoder"] == 1
    assert not jobs.keys() & {"train", "triples", "pairs", "bm25_tune"}
    runs = [folder / "results" / name / "runs" / "test" / "cort.trec" for name in ("tiny", "released")]
    assert runs[0].read_bytes() == runs[1].read_bytes()
    inputs = json.loads((folder / "results" / "released" / "provenance.json").read_text("utf-8"))["inputs"]
    assert "tiny/data/encoder.ckpt" in {one["path"] for one in inputs}
    _, text = card_of(folder / "results" / "released" / "encoders" / "encoder" / "best")
    assert ["weights", "`tiny/data/encoder.ckpt`"] in cells(text)
    assert not re.search(r"\| +(epochs|triples|loss|margin)", text)
