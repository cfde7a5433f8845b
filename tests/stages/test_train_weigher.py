"""DeepCT's training: targets of a table made by hand, the loss, and a collection that is won by one marked word."""

import json
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import base_model, term_recall, tokenize, train_weigher, weigh
from cort.formats import tables
from cort.training.losses import term_recall_loss
from cort.training.stemming import stem
from cort.training.term_recall import term_recall as recall_of
from cort.training.term_recall import words_of
from tests.support.bm25 import bm25_scores

STEMS = {
    **{"caresses": "caress", "ponies": "poni", "ties": "ti", "cats": "cat", "feed": "feed", "agreed": "agre"},
    **{"plastered": "plaster", "motoring": "motor", "sing": "sing", "conflated": "conflat", "troubled": "troubl"},
    **{"sized": "size", "hopping": "hop", "falling": "fall", "hissing": "hiss", "failing": "fail", "filing": "file"},
    **{"happy": "happi", "sky": "sky", "relational": "relat", "conditional": "condit", "rational": "ration"},
    **{"vietnamization": "vietnam", "predication": "predic", "operator": "oper", "feudalism": "feudal"},
    **{"decisiveness": "decis", "hopefulness": "hope", "formaliti": "formal", "sensibiliti": "sensibl"},
    **{"triplicate": "triplic", "formative": "form", "formalize": "formal", "electrical": "electr", "goodness": "good"},
    **{"revival": "reviv", "allowance": "allow", "airliner": "airlin", "adjustable": "adjust", "replacement": "replac"},
    **{"adoption": "adopt", "communism": "commun", "effective": "effect", "probate": "probat", "rate": "rate"},
    **{"cease": "ceas", "controll": "control", "roll": "roll", "generalizations": "gener", "oscillators": "oscil"},
}


def test_stems_are_those_of_porters_paper():
    assert {word: stem(word) for word in STEMS} == STEMS


@pytest.mark.parametrize(
    ("passage", "queries", "expected"),
    [
        (
            "The giraffes of grasslands.",
            ["what is a giraffe", "grassland animals"],
            {"giraffes": 0.5, "grasslands": 0.5},
        ),
        # Each query counts once; a stop word never does; case, possessive s and signs are left out.
        ("Nature's laws: nature, the law!", ["law of the law", "NATURE"], {"nature": 0.5, "laws": 0.5, "law": 0.5}),
        ("the of and", ["the of and"], {}),
        ("Oil war", ["gas"], {}),
        ("U.S. oil-price", ["us oil price", "oil"], {"oil": 1.0, "price": 0.5}),
        ("café 2019", ["caf 2019"], {"caf": 1.0, "2019": 1.0}),
    ],
)
def test_targets_are_the_share_of_queries_with_a_word(passage, queries, expected):
    assert recall_of(passage, queries) == expected


def test_words_are_cut_at_all_else():
    assert words_of("It's the cat's  U.S.-made X2") == ["cat", "u", "s", "made", "x2"]


def test_the_loss_is_the_mean_over_first_subwords():
    numbers, recall = torch.tensor([[9.0, 0.5, 9.0, -0.2], [1.0, 1.0, 1.0, 1.0]]), torch.zeros(2, 4)
    recall[0, 1] = 1.0
    counted = torch.tensor([[0.0, 1, 0, 1], [0, 0, 0, 0]])
    found = term_recall_loss(numbers, recall, counted)
    assert found.tolist() == pytest.approx([(0.5**2 + 0.2**2) / 2, 0.0])


def write(path, schema, rows):
    tables.write_table(path, pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))


def run(stage, *words):
    assert stage.main([str(word) for word in words]) == 0


def test_recall_is_of_judged_passages_and_their_queries(tmp_path, complaint):
    write(tmp_path / "passages.parquet", tables.PASSAGES, [("a", "oil war"), ("b", "gas oil"), ("c", "oil")])
    write(tmp_path / "queries.parquet", tables.QUERIES, [("1", "oil"), ("2", "wars")])
    qrels = [("2", "a", 1), ("1", "a", 1), ("1", "b", 0), ("1", "c", 2), ("9", "b", 1)]
    write(tmp_path / "qrels.parquet", tables.QRELS, qrels)
    options = [
        word for name in ("qrels", "queries", "passages") for word in (f"--{name}", tmp_path / f"{name}.parquet")
    ]
    run(term_recall, *options, "--output", tmp_path / "recall.parquet")
    found = tables.read_table(tmp_path / "recall.parquet", tables.TERM_RECALL).to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", ["oil", "war"], [0.5, 0.5]), ("c", ["oil"], [1.0])]
    few = [*options, "--relevance-level", 3, "--output", tmp_path / "none.parquet"]
    assert "no relevant passage of these queries" in complaint(term_recall.main, few, tmp_path / "none.parquet")


# A collection in which the word after "about" is what a passage is asked for; the others stand there as often.

TOPICS = ["bako", "rilu", "nesa", "tomi", "gadu", "kori", "lune", "sato", "miga", "duba"]
FILLERS = ["bane", "kosa", "rito", "lumi", "nega", "sadu"]


def make_passage(generator, topic):
    others = generator.sample([one for one in TOPICS if one != topic], 3)
    words = generator.choices(FILLERS, k=3) + others
    generator.shuffle(words)
    place = generator.randrange(len(words) + 1)
    return " ".join([*words[:place], "about", topic, *words[place:]])


def test_a_collection_where_one_marked_word_decides_is_won_against_bm25(tmp_path):
    generator = random.Random(3)  # noqa: S311 - texts, not secrets
    topics = [TOPICS[number % len(TOPICS)] for number in range(240)]
    passages = [(f"d{number}", make_passage(generator, topic)) for number, topic in enumerate(topics)]
    write(tmp_path / "passages.parquet", tables.PASSAGES, passages)
    write(tmp_path / "queries.parquet", tables.QUERIES, [(topic, topic) for topic in TOPICS])
    for name, first, last in (("train", 0, 150), ("validation", 150, 180)):
        rows = [(topics[number], f"d{number}", 1) for number in range(first, last)]
        write(tmp_path / f"qrels.{name}.parquet", tables.QRELS, rows)
        files = ["--qrels", tmp_path / f"qrels.{name}.parquet", "--queries", tmp_path / "queries.parquet"]
        run(term_recall, *files, "--passages", tmp_path / "passages.parquet", "--output", tmp_path / f"{name}.parquet")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    architecture = json.dumps({"model_type": "bert", "max_position_embeddings": 48, **sizes})
    model = ["--architecture", architecture, "--vocabulary-size", 200, "--seed", 1]
    run(base_model, *model, "--passages", tmp_path / "passages.parquet", "--output", tmp_path / "base")
    texts = ["--tokenizer", tmp_path / "base", "--texts", tmp_path / "passages.parquet"]
    run(tokenize, *texts, "--output", tmp_path / "tokens.arrow")
    words = ["--base-model", tmp_path / "base", "--targets", tmp_path / "train.parquet"]
    words += ["--validation-targets", tmp_path / "validation.parquet", "--passages", tmp_path / "tokens.arrow"]
    words += ["--learning-rate", 0.005, "--epochs", 30, "--passage-length", 32, "--output", tmp_path / "weigher"]
    run(train_weigher, *words, "--output-curve", tmp_path / "curve.csv", "--output-selection", tmp_path / "chosen.json")
    files = ["--model", tmp_path / "weigher" / "best", "--tokens", tmp_path / "tokens.arrow", "--passage-length", 32]
    run(weigh, *files, "--output", tmp_path / "weights.parquet")

    def precision(bags):
        """Share of the first 5 held-out passages of each topic that are about it."""
        shares = []
        for topic in TOPICS:
            scores = bm25_scores(bags, topic, 10, 0.9)
            ranked = sorted((one for one in scores if int(one[1:]) >= 180), key=lambda one: (-scores[one], one))
            shares.append(np.mean([topics[int(one[1:])] == topic for one in ranked[:5]]))
        return np.mean(shares)

    weighed = tables.read_table(tmp_path / "weights.parquet", tables.TERM_WEIGHTS).to_pylist()
    assert precision({row["doc_id"]: dict(zip(row["terms"], row["weights"], strict=True)) for row in weighed}) > 0.95
    # All of them have each word once.
    assert precision({doc_id: Counter(text.split()) for doc_id, text in passages}) < 0.6
