"""Training an expander: transformers' loss, and a collection whose queries can be read off its passages."""

import csv
import json
import random

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers

from cort import base_model, expand, tokenize, train_expander
from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.batching import pad
from cort.models.expander import NO_TOKEN, Asked, Passages, frame_query, load_expander

CPU = torch.device("cpu")


def run(stage, *words):
    assert stage.main([str(word) for word in words]) == 0


def test_the_loss_is_that_of_transformers(t5, caches):
    model, template = load_expander(t5, 16, 5)
    passages, queries = Passages(Tokens(caches["passages"]), template, 16), Tokens(caches["queries.train"])
    rows = np.arange(6)
    framed = [frame_query(queries[row], model.end, 5) for row in rows]
    lengths = [len(query) for query in framed]
    assert (max(lengths), min(lengths) < 5) == (5, True)
    asked = Asked(
        lengths=passages.lengths(rows), frame=passages.frame, template=template, query=lambda row: framed[row]
    )
    chosen, others = asked.take(np.array([5, 4, 2, 1, 0])), np.array([0, 1, 3])
    with torch.inference_mode():
        found = model(chosen.batch(others)).tolist()
        for row, loss in zip([5, 4, 1], found, strict=True):
            labels, batch = torch.from_numpy(framed[row])[None], pad([passages.frame(row)], template.pad)
            theirs = model.transformer(input_ids=batch["input_ids"], labels=labels).loss
            assert loss == pytest.approx(theirs.item() * lengths[row], rel=1e-5)
    labels = chosen.batch(others)["labels"]
    assert (labels != NO_TOKEN).sum(1).tolist() == [lengths[row] for row in (5, 4, 1)]


# A collection in which the word after "about" is what a passage is asked for.

TOPICS = ["bako", "rilu", "nesa", "tomi", "gadu", "kori", "lune", "sato", "miga", "duba"]
FILLERS = ["bane", "kosa", "rito", "lumi", "nega", "sadu"]
TRAINED, JUDGED = 150, 180
LENGTHS = {"passage-length": 16, "query-length": 16}


def write(path, schema, rows):
    tables.write_table(path, pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """Tables, a T5 of one layer and token caches; the topic of passage n is n modulo their number."""
    folder = tmp_path_factory.mktemp("topics")
    generator = random.Random(3)  # noqa: S311 - texts, not secrets
    passages = []
    for number in range(240):
        words = generator.choices(FILLERS, k=2)
        place = generator.randrange(len(words) + 1)
        words = [*words[:place], "about", TOPICS[number % len(TOPICS)], *words[place:]]
        passages.append((f"d{number}", " ".join(words)))
    write(folder / "passages.parquet", tables.PASSAGES, passages)
    for name, numbers in (("train", range(TRAINED)), ("validation", range(TRAINED, JUDGED))):
        queries = [(f"q{number}", f"what is {TOPICS[number % len(TOPICS)]}") for number in numbers]
        write(folder / f"queries.{name}.parquet", tables.QUERIES, queries)
        qrels = [(f"q{number}", f"d{number}", 1) for number in numbers]
        write(folder / f"qrels.{name}.parquet", tables.QRELS, [*qrels, (f"q{numbers[0]}", "d239", 0)])
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    model = ["--architecture", json.dumps({"model_type": "t5", **sizes}), "--vocabulary-size", 100, "--seed", 1]
    run(base_model, *model, "--passages", folder / "passages.parquet", "--output", folder / "base")
    for name in ("passages", "queries.train", "queries.validation"):
        texts = ["--tokenizer", folder / "base", "--texts", folder / f"{name}.parquet"]
        run(tokenize, *texts, "--output", folder / f"{name}.arrow")
    return folder


def training(collection, output, **changes):
    files = {"base-model": collection / "base", "passages": collection / "passages.arrow"}
    for place, name in (("", "train"), ("validation-", "validation")):
        files[f"{place}qrels"] = collection / f"qrels.{name}.parquet"
        files[f"{place}queries"] = collection / f"queries.{name}.arrow"
    named = {**files, "output": output, "output-curve": output / "curve.csv", "output-selection": output / "s.json"}
    named |= {"epochs": 12, "batch-size": 10, "learning-rate": 0.01, **LENGTHS, **changes}
    return [str(part) for name, value in named.items() for part in (f"--{name.replace('_', '-')}", value)]


def test_queries_that_can_be_read_off_passages_are_learnt(collection, tmp_path, training_process):
    assert train_expander.main(training(collection, tmp_path / "model")) == 0
    with open(tmp_path / "model" / "curve.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["step"] == "0"
    losses = [float(row["validation_loss"]) for row in rows if row["validation_loss"]]
    assert losses[0] > 3
    assert min(losses) < 0.3
    chosen = json.loads((tmp_path / "model" / "s.json").read_text("utf-8"))
    assert (chosen["start"], chosen["best"]) == pytest.approx((losses[0], min(losses)))
    files = ["--model", tmp_path / "model" / "best", "--tokens", collection / "passages.arrow"]
    lengths = [word for name, value in LENGTHS.items() for word in (f"--{name}", value)]
    run(expand, *files, *lengths, "--queries", 3, "--output", tmp_path / "e.parquet")
    found = tables.read_table(tmp_path / "e.parquet", tables.EXPANSIONS)["queries"].to_pylist()
    about = [TOPICS[number % len(TOPICS)] in " ".join(queries) for number, queries in enumerate(found)]
    assert np.mean(about[JUDGED:]) > 0.9
    assert transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "model" / "last").config.d_model == 32


def test_a_training_that_was_ended_goes_on_to_the_same_bytes(collection, tmp_path, training_process, monkeypatch):
    from cort.training.expansion import Examples

    short = {"epochs": 1, "validate_every": 5}
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    assert train_expander.main(training(collection, whole, **short)) == 0
    options = training(collection, ended, **short, checkpoints=tmp_path / "kept", checkpoint_every=0)
    losses, taken = Examples.losses, []

    def until(self, batch, forward):
        taken.append(batch)
        if len(taken) == 10:
            raise KeyboardInterrupt
        return losses(self, batch, forward)

    monkeypatch.setattr(Examples, "losses", until)
    assert train_expander.main(options) == 130
    monkeypatch.setattr(Examples, "losses", losses)
    assert train_expander.main(options) == 0
    for name in ("best/model.safetensors", "last/model.safetensors"):
        assert (whole / name).read_bytes() == (ended / name).read_bytes()


def test_no_relevant_passage_is_refused(collection, tmp_path, complaint, training_process):
    options = training(collection, tmp_path / "model", relevance_level=2)
    line = complaint(train_expander.main, options, tmp_path / "model")
    assert line == (
        f"{collection}/qrels.train.parquet: found no relevant passage, expected at least one; "
        "lower relevance_level or name other qrels"
    )


def test_an_encoder_is_no_start(collection, lm, tmp_path, complaint, training_process):
    options = training(collection, tmp_path / "model", base_model=lm)
    options[options.index("--base-model") + 1] = str(lm)
    line = complaint(train_expander.main, options, tmp_path / "model")
    assert line == f"{lm}: found a bert, an encoder, expected an encoder-decoder like T5; name another model"
