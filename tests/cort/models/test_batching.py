import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, by_length
from cort.models.tokenizer import Template
from tests.support.framing import frame_pair

BERT = Template(before=(2,), after=(3,), between=(3,), second_segment=1, pad=0)
ROBERTA = Template(before=(0,), after=(2,), between=(2, 2), second_segment=0, pad=1)


def ids(*numbers):
    return np.array(numbers, dtype=np.int32)


@pytest.mark.parametrize("budget", [1, 7, 50, 64, 1000])
def test_batches_have_every_row_once_longest_first_within_the_budget(budget):
    lengths = np.random.default_rng(budget).integers(1, 40, size=200)
    batches = list(by_length(lengths, budget))
    # Longest first, equal lengths in the order of the file.
    assert np.concatenate(batches).tolist() == sorted(range(200), key=lambda row: (-lengths[row], row))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([3, 5, 1, 5, 2, 3], [[1, 3], [0, 5, 4], [2]]),
        # A row over the budget forms a batch of its own.
        *(([2, 100, 200], [[2], [1], [0]]), ([0, 0], [[0, 1]]), ([], [])),
    ],
)
def test_batches_are_as_large_as_the_budget_allows(lengths, expected):
    assert [list(batch) for batch in by_length(np.array(lengths, np.int64), 10)] == expected


def test_packed_batches_count_tokens_and_limit_padding():
    lengths = np.array([5, 1, 9, *[1] * 40])
    batches = [lengths[rows].tolist() for rows in by_length(lengths, 10, packed=True)]
    assert batches[:2] == [[9], [5, *[1] * 5]]
    # At most four padded tokens for each.
    assert [len(rows) for rows in by_length(np.array([5, *[0] * 20]), 10, packed=True)] == [8, 13]


def test_joined_sequences_are_those_of_both(caches):
    template = Template((2,), (3,), (), 0, 0)
    short, long = (FramedTexts(Tokens(caches[name]), template, 12) for name in ("queries.train", "passages"))
    first, second = short.sequences(np.array([3, 1])), long.sequences(np.array([2, 2, 0]))
    together, row = first.joined(second), 0
    for one in (first, second):
        for number, length in enumerate(one.lengths):
            ids = together.batch(np.array([row]))["input_ids"]
            assert torch.equal(ids, one.batch(np.array([number]))["input_ids"])
            assert ids.shape == (1, length)
            row += 1
    assert len(together.lengths) == row


@pytest.mark.parametrize("room", [10, 11])
@pytest.mark.parametrize("template", [BERT, ROBERTA])
def test_without_a_limit_of_queries_the_longer_text_is_truncated_as_by_transformers(template, room):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {"[UNK]": 0, "s": 2, "q": 10, "d": 50}
    peer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    peer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    between = " ".join("s" for _ in template.between)
    peer.post_processor = processors.TemplateProcessing(
        single="s $A s", pair=f"s $A {between} $B:1 s", special_tokens=[("s", 2)]
    )
    peer.enable_truncation(room + template.pair_extra, strategy="longest_first")
    for lengths in itertools.product(range(15), repeat=2):
        theirs = peer.encode(" ".join("q" * lengths[0]), " ".join("d" * lengths[1])).tokens
        query, passage = ids(*[10] * lengths[0]), ids(*[50] * lengths[1])
        ours = frame_pair(query, passage, template, None, room + template.pair_extra)[0].tolist()
        assert [ours.count(10), ours.count(50)] == [theirs.count("q"), theirs.count("d")]


def test_padding_has_the_pad_token_no_attention_and_segment_0():
    template = replace(ROBERTA, segment=1)
    tokens, rows = Tokens.of_texts([ids(10, 11, 12), ids(20)]), np.arange(2)
    batch = FramedTexts(tokens, template, 9).sequences(rows).batch(rows)
    assert batch["input_ids"].tolist() == [[0, 10, 11, 12, 2], [0, 20, 2, 1, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch["token_type_ids"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
