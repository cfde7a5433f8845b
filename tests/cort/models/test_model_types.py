"""Every kind and type of model: parity with sentence-transformers when trained, longest inputs, half precision."""

from functools import partial

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import load_encoder, new_encoder
from cort.models.loading import load_transformer
from cort.models.precision import is_right
from cort.models.rerankers import load_reranker, new_reranker
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import load_template, load_tokenizer
from cort.models.transformer import most_tokens
from cort.runtime.errors import InputError
from tests.conftest import saved
from tests.support import released
from tests.support.released import DISTILBERT, STRANGE, check_folder, difference, peer, take_a_step
from tests.support.small import encoder_settings, pair_settings

CPU = torch.device("cpu")
MEAN = encoder_settings("mean", 8, 12, 16)
CLS, WEIGHTED = MEAN.model_copy(update={"pooling": "cls"}), MEAN.model_copy(update={"pooling": "weighted_mean"})
REPBERT = encoder_settings("mean", 32, 12, 16, "inner_product", projection=False, query_segment=0, passage_segment=1)
PAIRS = pair_settings(8, 24)
LINEAR = PAIRS.model_copy(update={"head": "linear"})
LATE = pair_settings(8, 24, "late_interaction", dimension=5)
DOT, FILLED = LATE.model_copy(update={"similarity": "dot"}), LATE.model_copy(update={"fill_queries": True})
ALL = DOT.model_copy(update={"fill_queries": True, "skip_punctuation": True})

# Settings of tiny models, the number of tokens that their 48 positions allow, and the models that are trained on them:
# every setting with one type, and every type with some.
TYPES = {
    "bert": ({}, 48, (MEAN, CLS, WEIGHTED, REPBERT, PAIRS, LINEAR, LATE, DOT, FILLED, ALL)),
    "albert": ({"embedding_size": 20}, 48, (MEAN, PAIRS)),
    "electra": ({"embedding_size": 20}, 48, (CLS, PAIRS)),
    "roberta": ({}, 47, (WEIGHTED, ALL)),
    "roberta, one segment": ({"model_type": "roberta", "type_vocab_size": 1}, 47, (REPBERT, PAIRS, LINEAR, ALL)),
    "xlm-roberta": ({}, 47, (MEAN,)),
    "distilbert": (DISTILBERT, 48, (CLS, PAIRS, LINEAR)),
    "mpnet": ({}, 46, (WEIGHTED,)),
}
ONE_SEGMENT = ("roberta, one segment", "distilbert", "mpnet")


@pytest.fixture(scope="module", params=list(TYPES))
def model_type(request, make_base_model):
    """Name and folder of a tiny model of each type, and its longest input."""
    settings, longest, _ = TYPES[request.param]
    return request.param, make_base_model(**{"model_type": request.param, **settings}), longest


@pytest.fixture
def tokens_of(tmp_path):
    return partial(released.tokens_of, tmp_path)


def check_vectors(loaded, folder, tokens_of, texts, cleaning="raw"):
    """This project, text by text, and sentence-transformers, in batches, give the same vectors; those of each kind."""
    # In double precision, no difference is one of rounding.
    theirs, vectors = peer("SentenceTransformer", folder).double(), {}
    for kind, encode in (("query", theirs.encode_query), ("passage", theirs.encode_document)):
        ours = loaded.double().texts(tokens_of(folder, texts, kind, cleaning), kind)
        rows = [ours.vectors(loaded, np.array([row]), CPU) for row in range(len(texts))]
        vectors[kind] = np.concatenate(rows)
        assert difference(encode(texts), vectors[kind]) <= 1e-6
    ranked = vectors["query"] @ vectors["passage"].T
    assert difference(theirs.similarity(vectors["query"], vectors["passage"]).numpy(), ranked) <= 1e-6
    return vectors


def check_scores_of_pairs(loaded, folder, pairs, queries, passages):
    # Sentence-transformers does not truncate queries to a limit of their own.
    rows = np.flatnonzero(pairs.queries.lengths <= 6)
    assert 15 < len(rows) < 36
    with torch.inference_mode():
        scores = torch.cat([pairs.score(loaded, row, row, CPU) for row in rows[:, None]]).numpy()
    theirs = peer("CrossEncoder", folder).double().predict([(queries[row], passages[row]) for row in rows])
    assert difference(theirs, scores) <= 1e-6
    assert scores.std() > 0.01


def check_late_interaction(loaded, folder, pairs, queries, passages):
    theirs = peer("MultiVectorEncoder", folder).double()
    encoded = theirs.encode_query(queries), theirs.encode_document(passages)
    for kind, tokens, others in zip(("query", "passage"), (pairs.queries, pairs.passages), encoded, strict=True):
        texts = loaded.texts(tokens, kind)
        for row, expected in enumerate(others):
            assert difference(texts.vectors(loaded, np.array([row]), CPU).vectors, expected.numpy()) <= 1e-6
    grid = [rows.ravel() for rows in np.indices((len(queries), len(passages)))]
    with torch.inference_mode():
        scores = pairs.score(loaded, *grid, CPU).numpy().reshape(len(queries), len(passages))
    assert difference(theirs.similarity(*encoded).numpy(), scores) <= 1e-6
    assert scores.std() > 0.01
    # Whether words were skipped.
    return sum(len(words) for words in encoded[1]) < np.clip(pairs.passages.lengths + 2, 1, 24).sum()


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [(name, settings) for name, (_, _, trained) in TYPES.items() for settings in trained],
    indirect=["model_type"],
)
def test_a_trained_model_gives_what_sentence_transformers_gives(
    model_type, settings, world, tokens_of, tmp_path, monkeypatch
):
    (name, base, _), rows = model_type, np.arange(9)
    of_texts, late = isinstance(settings, EncoderSettings), settings in (LATE, DOT, FILLED, ALL)
    # Words of the texts take the part of punctuation.
    words = load_tokenizer(base).encode(world.texts[0], add_special_tokens=False).tokens[:2]
    monkeypatch.setattr("cort.models.late_interaction.find_punctuation", lambda base: words)
    queries, passages = [*world.query_texts, *STRANGE], [*world.texts[:30], *STRANGE]
    texts = [*queries[:10], *passages[:10], *STRANGE]
    if of_texts:
        weights = torch.rand(load_template(base).vocabulary, generator=torch.Generator().manual_seed(1)) + 0.1
        model = new_encoder(base, settings, 3, token_weights=weights if settings is WEIGHTED else None)
        take_a_step(model, lambda: model.texts(tokens_of(base, texts), "passage").encode(model, rows, CPU))
    else:
        model = new_reranker(base, settings, 3)
        pairs = model.pairs(tokens_of(base, queries, "query"), tokens_of(base, passages))
        take_a_step(model, lambda: pairs.score(model, rows, rows, CPU))
    folder = saved(model, tmp_path / "model")
    check_folder(folder)
    loaded, trained = (load_encoder if of_texts else load_reranker)(folder), model.state_dict()
    assert not loaded.training
    # As a base model it keeps its weights, also those of its head.
    renewed = settings.model_copy(update={"dimension": 5}) if of_texts else settings
    again = (new_encoder if of_texts else new_reranker)(folder, renewed, 9)
    for state in (loaded.state_dict(), *([] if late else [again.state_dict()])):
        assert list(state) == list(trained)
        assert all(torch.equal(value, state[key]) for key, value in trained.items())
    if of_texts:
        assert loaded.framings == again.framings == model.framings
        assert loaded.similarity == settings.similarity.replace("angular", "cosine")
        assert (loaded.dimension, loaded.projection is None) == (settings.dimension, not settings.projection)
        vectors = check_vectors(loaded, folder, tokens_of, texts)
        assert vectors["passage"].std(0).min() > 0.01
        # Segments tell queries from passages; otherwise, only their lengths differ.
        assert np.allclose(vectors["query"][:3], vectors["passage"][:3], atol=1e-4) == (name in ONE_SEGMENT)
        return
    pairs = loaded.double().pairs(tokens_of(folder, queries, "query"), tokens_of(folder, passages))
    if late:
        assert check_late_interaction(loaded, folder, pairs, queries, passages) == settings.skip_punctuation
    else:
        assert (loaded.template, loaded.query_length, loaded.max_length) == (model.template, 8, 24)
        check_scores_of_pairs(loaded, folder, pairs, queries, passages)


def test_sentence_transformers_cleans_texts_by_itself(make_encoder, tokens_of):
    texts, found = [*STRANGE, "ba—ko", "(ba) 'ko'", "  ba\tko\n", "ba,ko;ri:lu/ne?sa!to.", "日本 ba", "—"], []
    for form in ("raw", "cort"):
        folder = make_encoder(cleaning=form)
        found.append(check_vectors(load_encoder(folder), folder, tokens_of, texts, form)["query"])
    assert difference(*found) > 1e-3


def batch_of(model, lengths, **task):
    """Texts of one token again and again, framed."""
    template, most = model.framings["passage"]
    texts = Tokens.of_texts([np.full(length, 7, np.int32) for length in lengths])
    rows = np.arange(len(lengths))
    return FramedTexts(texts, template, most).sequences(rows).batch(rows) | task


def run(model, batch):
    with torch.inference_mode():
        return model(batch)


def test_every_type_takes_its_longest_input_and_no_longer(model_type):
    _, folder, longest = model_type
    assert most_tokens(load_transformer(folder)) == longest
    encoder = new_encoder(folder, encoder_settings("cls", 8, longest, longest), 3).eval()
    reranker = new_cross_encoder(folder, pair_settings(12, longest), 3).eval()
    batch = batch_of(encoder, [60])
    assert batch["input_ids"].shape == (1, longest)
    assert torch.isfinite(run(encoder, batch | {"task": "document"})).all()
    assert torch.isfinite(run(reranker, batch)).all()
    for query_length, passage_length in ((longest + 1, 12), (12, longest + 1)):
        with pytest.raises(InputError, match=f"_length: found {longest + 1}, expected 3 to {longest} tokens for this"):
            new_encoder(folder, encoder_settings("cls", 8, query_length, passage_length), 3)
    with pytest.raises(InputError, match=f"max_length: found {longest + 1}, expected 14 to {longest} tokens for this"):
        new_cross_encoder(folder, pair_settings(12, longest + 1), 3)


@pytest.mark.parametrize(
    ("model_type", "precision"),
    [
        *((name, "bf16") for name in ("bert", "albert", "distilbert", "mpnet")),
        ("bert", "fp16"),
        # Their layers are those of BERT.
        *(
            pytest.param(name, "bf16", marks=pytest.mark.exhaustive)
            for name in ("electra", "roberta", "roberta, one segment", "xlm-roberta")
        ),
        pytest.param("mpnet", "fp16", marks=pytest.mark.exhaustive),
    ],
    indirect=["model_type"],
)
def test_only_the_transformer_computes_in_half_precision(model_type, precision):
    if not is_right(precision, CPU):
        pytest.skip(f"this processor does not compute correctly in {precision}")
    _, folder, _ = model_type
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    made = {
        "mean": (new_encoder(folder, MEAN, 3), {"task": "document"}),
        "cls": (new_encoder(folder, CLS, 3), {"task": "document"}),
        "re-ranker": (new_cross_encoder(folder, pair_settings(12, 16), 3), {}),
        "linear": (new_cross_encoder(folder, pair_settings(12, 16, head="linear"), 3), {}),
    }
    for name, (model, task) in made.items():
        batch = batch_of(model, [3, 9, 12], **task)
        single = run(model.eval(), batch)
        model.place(CPU, precision)
        rounded = run(model, batch)
        assert half in {weight.dtype for weight in model.parameters()}, name
        assert torch.allclose(single, rounded, atol=0.05), name
        # If the output were rounded to half precision, they would be equal.
        assert not torch.equal(rounded, rounded.to(half).float()), name
