import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, pad
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import EncoderSettings, load_encoder, new_encoder, texts_of
from cort.models.layout import model_fingerprint
from cort.models.loading import load_transformer
from cort.models.precision import is_right
from cort.models.settings import PairSettings
from cort.models.tokenizer import load_template
from cort.models.transformer import most_tokens
from cort.system.errors import InputError
from tests.conftest import saved
from tests.support import released
from tests.support.released import DISTILBERT, STRANGE, check_folder, difference, peer, take_a_step

CPU = torch.device("cpu")
MEAN = EncoderSettings("mean", 8, 12, 16)
WEIGHTED = replace(MEAN, pooling="weighted_mean")
REPBERT = EncoderSettings("mean", 32, 12, 16, "inner_product", projection=False, query_segment=0, passage_segment=1)

# Settings of tiny models, and the number of tokens that their 48 positions allow.
MODELS = {
    "bert": ({}, 48),
    "albert": ({"embedding_size": 20}, 48),
    "electra": ({"embedding_size": 20}, 48),
    "roberta": ({}, 47),
    "roberta, one segment": ({"model_type": "roberta", "type_vocab_size": 1}, 47),
    "xlm-roberta": ({}, 47),
    "distilbert": (DISTILBERT, 48),
    "mpnet": ({}, 46),
}
ONE_SEGMENT = ("roberta, one segment", "distilbert", "mpnet")


@pytest.fixture(scope="module", params=list(MODELS))
def model_type(request, make_base_model):
    """Name and folder of a tiny model of each type, and its longest input."""
    settings, longest = MODELS[request.param]
    return request.param, make_base_model(**{"model_type": request.param, **settings}), longest


@pytest.fixture
def tokens_of(tmp_path):
    return partial(released.tokens_of, tmp_path)


def frames_of(model, lengths, kind="passage"):
    """Texts of one token again and again, framed."""
    template, most = model.framings[kind]
    texts = Tokens.of_texts([np.full(length, 7, np.int32) for length in lengths])
    return [FramedTexts(texts, template, most).frame(row) for row in range(len(lengths))]


def weights_of(base):
    return torch.rand(load_template(base).vocabulary, generator=torch.Generator().manual_seed(1)) + 0.1


def run(model, frames, **task):
    with torch.inference_mode():
        return model(pad(frames, model.framings["passage"].template.pad) | task)


def check_parity(folder, tokens_of, texts, cleaning="raw"):
    """This project, text by text, and sentence-transformers, in batches, give the same vectors; those of queries."""
    # In double precision, no difference is one of rounding.
    theirs = peer("SentenceTransformer", folder).double()
    encoder, vectors = load_encoder(folder).double(), {}
    for kind, encode in (("query", theirs.encode_query), ("passage", theirs.encode_document)):
        tokens = tokens_of(folder, texts, kind, cleaning)
        ours = texts_of(tokens, encoder, kind)
        rows = [ours.vectors(encoder, np.array([row]), CPU) for row in range(len(texts))]
        vectors[kind] = torch.cat(rows).numpy()
        assert difference(encode(texts), vectors[kind]) <= 1e-6
    ranked = vectors["query"] @ vectors["passage"].T
    assert difference(theirs.similarity(vectors["query"], vectors["passage"]).numpy(), ranked) <= 1e-6
    check_folder(folder)
    return vectors


CLS = replace(MEAN, pooling="cls")
# Every setting with one type, and every type with one setting: how tokens are framed does not depend on pooling.
PAIRED = {"bert": (MEAN, CLS, WEIGHTED, REPBERT), "albert": (MEAN,), "electra": (CLS,), "roberta": (WEIGHTED,)}
PAIRED |= {"roberta, one segment": (REPBERT,), "xlm-roberta": (MEAN,), "distilbert": (CLS,), "mpnet": (WEIGHTED,)}


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [(name, settings) for name in MODELS for settings in PAIRED[name]],
    indirect=["model_type"],
)
def test_a_trained_encoder_gives_the_vectors_of_sentence_transformers(model_type, settings, world, tokens_of, tmp_path):
    name, base, _ = model_type
    encoder = new_encoder(base, settings, 3, token_weights=weights_of(base) if settings is WEIGHTED else None)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    texts = [*world.query_texts[:10], *world.texts[:10], *STRANGE]
    take_a_step(
        encoder, lambda: texts_of(tokens_of(base, texts), encoder, "passage").encode(encoder, np.arange(9), CPU)
    )
    folder = saved(encoder, tmp_path / "model")
    vectors = check_parity(folder, tokens_of, texts)
    # Segments tell queries from passages; otherwise, only their lengths differ.
    short = slice(0, 3)
    same = np.allclose(vectors["query"][short], vectors["passage"][short], atol=1e-4)
    assert same == (name in ONE_SEGMENT)
    assert vectors["passage"].std(0).min() > 0.01
    loaded = load_encoder(folder)
    assert (loaded.framings, loaded.similarity, loaded.dimension) == (
        encoder.framings,
        settings.similarity.replace("angular", "cosine"),
        settings.dimension,
    )
    assert not loaded.training
    after = loaded.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in encoder.state_dict().items())
    assert not all(torch.equal(value, after[key]) for key, value in before.items())
    assert (loaded.projection is None) == (not settings.projection)
    # A base model that is an encoder keeps its weights and settings.
    again = new_encoder(folder, replace(settings, dimension=5), 9)
    assert all(torch.equal(value, after[key]) for key, value in again.state_dict().items())
    assert again.framings == encoder.framings


def test_the_weighted_mean_weights_each_token_but_trains_no_weight(lm, tokens_of):
    weights = weights_of(lm)
    encoder, plain = (
        new_encoder(lm, replace(REPBERT, pooling=pooling), 3, token_weights=given).eval()
        for pooling, given in (("weighted_mean", weights.clone()), ("mean", None))
    )
    template = encoder.framings["passage"].template
    ids = [*template.before, 7, 9, 7, *template.after]
    frame = np.array(ids), np.ones(len(ids), np.int64)
    states = plain.token_vectors(pad([frame], template.pad) | {"task": "document"})[0]  # (tokens, e)
    special = [*template.before, *template.after]
    expected = [weights.min() if token in special else weights[token] for token in ids]
    mean = sum(w * state for w, state in zip(expected, states, strict=True)) / sum(expected)
    assert torch.allclose(run(encoder, [frame], task="document")[0], mean, atol=1e-6)
    [layer] = [layer for layer in encoder.layers if type(layer).__name__ == "WordWeights"]
    assert not layer.emb_layer.weight.requires_grad
    with pytest.raises(InputError, match="pooling: found weighted_mean without passages"):
        new_encoder(lm, WEIGHTED, 3)


def test_sentence_transformers_cleans_texts_by_itself(make_encoder, tokens_of):
    texts = [*STRANGE, "ba—ko", "(ba) 'ko'", "  ba\tko\n", "ba,ko;ri:lu/ne?sa!to.", "日本 ba", "—"]
    folders = {form: make_encoder(cleaning=form) for form in ("raw", "cort")}
    raw, cort = (check_parity(folder, tokens_of, texts, form)["query"] for form, folder in folders.items())
    assert difference(raw, cort) > 1e-3


def test_the_projection_is_drawn_from_the_seed(lm):
    one, same, other = (new_encoder(lm, MEAN, seed).projection.weight for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_every_type_takes_its_longest_input_and_no_longer(model_type):
    _, folder, longest = model_type
    assert most_tokens(load_transformer(folder)) == longest
    encoder = new_encoder(folder, EncoderSettings("cls", 8, longest, longest), 3).eval()
    reranker = new_cross_encoder(folder, PairSettings(12, longest), 3).eval()
    [frame] = frames_of(encoder, [60])
    assert len(frame[0]) == longest
    assert torch.isfinite(run(encoder, [frame], task="document")).all()
    assert torch.isfinite(run(reranker, [frame])).all()
    for query_length, passage_length in ((longest + 1, 12), (12, longest + 1)):
        with pytest.raises(InputError, match=f"_length: found {longest + 1}, expected 3 to {longest} tokens for this"):
            new_encoder(folder, EncoderSettings("cls", 8, query_length, passage_length), 3)
    with pytest.raises(InputError, match=f"max_length: found {longest + 1}, expected 14 to {longest} tokens for this"):
        new_cross_encoder(folder, PairSettings(12, longest + 1), 3)


@pytest.mark.parametrize(
    ("model_type", "precision"),
    [*((name, "bf16") for name in MODELS), ("bert", "fp16"), ("mpnet", "fp16")],
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
        "re-ranker": (new_cross_encoder(folder, PairSettings(12, 16), 3), {}),
        "linear": (new_cross_encoder(folder, PairSettings(12, 16, head="linear"), 3), {}),
    }
    for name, (model, task) in made.items():
        frames = frames_of(model, [3, 9, 12])
        single = run(model.eval(), frames, **task)
        model.place(CPU, precision)
        rounded = run(model, frames, **task)
        assert half in {weight.dtype for weight in model.parameters()}, name
        assert torch.allclose(single, rounded, atol=0.05), name
        # If the output were rounded to half precision, they would be equal.
        assert not torch.equal(rounded, rounded.to(half).float()), name


def test_vectors_are_in_the_order_of_the_rows(lm, caches):
    encoder = new_encoder(lm, MEAN, 3).eval()
    texts = texts_of(Tokens(caches["passages"]), encoder, "passage")
    rows = np.random.default_rng(1).permutation(60)
    rows[10] = rows[3]
    with torch.inference_mode():
        together = texts.encode(encoder, rows, CPU, 100)
        for position in (0, 3, 10, 59):
            alone = texts.encode(encoder, rows[position : position + 1], CPU, 100)
            assert torch.allclose(together[position], alone[0], atol=1e-6)
    assert torch.allclose(together[3], together[10], atol=1e-6)


def test_dropout_is_off_in_a_loaded_encoder_and_on_in_training(make_encoder, caches):
    encoder = load_encoder(make_encoder())
    texts = texts_of(Tokens(caches["passages"]), encoder, "passage")
    with torch.inference_mode():
        assert torch.equal(*(texts.encode(encoder, np.arange(5), CPU, 640) for _ in range(2)))
        encoder.train()
        assert not torch.equal(*(texts.encode(encoder, np.arange(5), CPU, 640) for _ in range(2)))


def test_queries_and_passages_share_their_weights(make_encoder, lm):
    folder = make_encoder()
    routes = load_encoder(folder).saved[0].sub_modules
    assert routes["query"][1] is routes["document"][0]
    sizes = {path.parent.name: path.stat().st_size for path in folder.rglob("model.safetensors")}
    assert sizes["document_0_Transformer"] <= (lm / "model.safetensors").stat().st_size
    # One number per token and position, and a header.
    assert sizes["query_0_Transformer"] < 4 * (160 + 12 + 4) + 1_000


def test_the_fingerprint_depends_on_weights_settings_and_tokenizer(make_encoder, tmp_path):
    folder = make_encoder()
    one = model_fingerprint(folder)
    assert one == model_fingerprint(make_encoder())
    assert len({one, *(model_fingerprint(make_encoder(**change)) for change in ({"seed": 9}, {"pooling": "cls"}))}) == 3
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "README.md").write_text("what it is")
    assert model_fingerprint(copy) == one
    files = [path for path in copy.rglob("*") if path.suffix in (".json", ".safetensors")]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert model_fingerprint(copy) != one
        path.write_bytes(content)
    assert model_fingerprint(copy) == one
