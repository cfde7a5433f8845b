import math
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts
from cort.models.expander import Generator, draw, load_expander, numbers_of

K, QUERIES, STEPS = 4, 3, 7


def test_random_numbers_depend_only_on_their_place():
    found = numbers_of(42, "d7", 3, 5)
    assert found.shape == (3, 5)
    assert np.array_equal(found[:2, :4], numbers_of(42, "d7", 2, 4))
    assert len({*found.ravel(), *numbers_of(43, "d7", 3, 5).ravel(), *numbers_of(42, "d8", 3, 5).ravel()}) == 45
    # Another number would change the expansions of every existing experiment.
    assert found[0, 0] == 0.11934403486473444
    many = numbers_of(1, "é", 200, 500)
    assert (many.min() >= 0, many.max() < 1) == (True, True)
    assert np.allclose(np.histogram(many, 10, (0, 1))[0] / many.size, 0.1, atol=0.005)


@pytest.mark.parametrize(
    ("number", "k", "expected"),
    [
        # Tokens 1, 2 and 3 with probabilities 0.2, 0.5 and 0.3, in the order of their ids.
        *((0.0, 3, 1), (0.199, 3, 1), (0.201, 3, 2), (0.699, 3, 2), (0.701, 3, 3), (0.999999, 3, 3)),
        # Two of them, with 0.625 and 0.375.
        *((0.0, 2, 2), (0.624, 2, 2), (0.626, 2, 3)),
        *((0.0, 1, 2), (0.99, 1, 2)),
    ],
)
def test_a_token_is_sampled_by_its_probability(number, k, expected):
    logits = torch.tensor([[-9.0, math.log(0.2), math.log(0.5), math.log(0.3), -8.0]], dtype=torch.float64)
    assert draw(logits, torch.tensor([number], dtype=torch.float64), k).tolist() == [expected]


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_nan_and_infinite_logits_are_refused(wrong):
    with pytest.raises(FloatingPointError):
        draw(torch.tensor([[0.0, wrong, 1.0]]), torch.tensor([0.5]), 2)


@pytest.fixture(scope="module")
def bart(lm, tmp_path_factory):
    """Folder of another encoder-decoder, whose queries begin with the token that also ends them."""
    folder = shutil.copytree(lm, tmp_path_factory.mktemp("bart") / "model")
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 48}
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3}
    torch.manual_seed(2)
    config = BartConfig(vocab_size=160, init_std=0.3, forced_eos_token_id=None, **sizes, **special)
    BartForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["t5", "bart"])
def folder(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def world_of(folder, caches):
    """The model in double precision, so that the order of additions does not matter; the passages."""
    transformer, template = load_expander(folder, 16, STEPS)
    return transformer.double(), FramedTexts(Tokens(caches["passages"]), template, 16)


def batch_of(passages, rows):
    return passages.sequences(np.array(rows)).batch(np.arange(len(rows)))


def oracle(model, ids, numbers, k, end):
    """Sample by hand: every token from all tokens before, without a cache or a batch."""
    found = [model.config.decoder_start_token_id]
    for number in numbers:
        logits = model(input_ids=ids[None], decoder_input_ids=torch.tensor([found])).logits[0, -1].tolist()
        best = sorted(sorted(range(len(logits)), key=lambda token: -logits[token])[:k])
        shares = [math.exp(logits[token]) for token in best]
        sums = np.cumsum(shares) / sum(shares)
        found.append(next(token for token, total in zip(best, sums, strict=True) if number < total))
        if found[-1] == end:
            break
    return found[1:]


def cut(tokens, end):
    """Tokens up to and including the end."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def test_samples_are_those_of_a_loop_whatever_else_is_in_the_batch(world_of):
    model, passages = world_of
    rows = [3, 0, 11, 25]
    numbers = np.stack([numbers_of(1, str(row), QUERIES, STEPS) for row in rows])
    generator = Generator(model)
    with torch.inference_mode():
        # A frequent token ends queries, so that some end before others.
        written = generator.sample(batch_of(passages, rows), torch.from_numpy(numbers), K)[:, :, 2:]
        generator.ends = [end] = [Counter(written.flatten().tolist()).most_common(1)[0][0]]
        together = generator.sample(batch_of(passages, rows), torch.from_numpy(numbers), K).tolist()
        for row, own, drawn in zip(rows, numbers, together, strict=True):
            ids = torch.from_numpy(passages.frame(row)[0])
            expected = [oracle(model, ids, one, K, end) for one in own]
            assert [cut(query, end) for query in drawn] == expected
            alone = generator.sample(batch_of(passages, [row]), torch.from_numpy(own[None]), K).tolist()
            assert alone == [drawn]
    queries = [tuple(cut(query, end)) for drawn in together for query in drawn]
    assert len(set(queries)) > len(queries) / 2
    assert len({len(query) for query in queries}) > 1


@pytest.mark.parametrize(("beams", "queries"), [(1, 1), (3, 1), (4, 2)])
def test_beam_search_finds_the_queries_of_transformers(folder, world_of, beams, queries):
    model, passages = world_of
    rows = [3, 0, 11, 25]
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).double().eval()
    with torch.inference_mode():
        ours = Generator(model).search(batch_of(passages, rows), beams, queries, STEPS).tolist()
        for row, found in zip(rows, ours, strict=True):
            ids = torch.from_numpy(passages.frame(row)[0])[None]
            settings = {"max_new_tokens": STEPS, "num_beams": beams, "num_return_sequences": queries}
            expected = theirs.generate(ids, **settings, do_sample=False).tolist()
            end = model.config.eos_token_id
            assert [cut(one, end) for one in found] == [cut(one[1:], end) for one in expected]
