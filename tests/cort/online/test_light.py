"""Answers without torch: the vectors and results that torch gives, or none at all."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cort.config.stored import open_systems
from cort.formats.shards import Tokens, write_shard, write_tokens
from cort.models.encoder import load_encoder
from cort.models.layout import model_fingerprint
from cort.online.light import LightSearch, Tokenizer, open_light
from cort.online.neural import Model, QueryEncoder, VectorSearch
from cort.retrieval.exact import ExactIndex
from cort.retrieval.vectors import open_vectors
from cort.runtime.errors import InputError
from tests.support.layouts import LAYOUTS, LIGHT, Maker, take_in
from tests.support.online import SYSTEMS, results_with
from tests.support.released import change_weights

CPU = torch.device("cpu")
QUERIES = ["neriga balune", "x", "", "neriga balune koba rilu bako 12 é", "[SEP] bako [CLS]", "ba " * 60]


def exact_search(vectors):
    return VectorSearch(ExactIndex(vectors, one_by_one=True))


class Experiment:
    """Results with vectors of a model, as the workflow stores them."""

    def __init__(self, folder, world):
        self.folder, self.world, self.model = folder, world, folder / "base_models" / "encoder.encoder"
        self.results = results_with(folder, SYSTEMS | {"graph": {"retrieve": "encoder", "onng": {}}})
        [self.passages] = map(Path, self.results.vectors("encoders", "encoder"))
        self.queries = self.passages.with_name("queries.test.arrow")

    def encode(self, source, precision="fp32", storage="fp32"):
        shutil.copytree(source, self.model)
        encoder, tokenize = load_encoder(self.model, precision), Tokenizer(self.model, "raw")
        encoder.place(CPU, precision)
        about = {"model": model_fingerprint(self.model), "dimension": encoder.dimension}
        for file, kind, texts in ((self.passages, "passage", self.world.texts), (self.queries, "query", QUERIES)):
            ids, tokens = [f"{kind}{row}" for row in range(len(texts))], tokenize(texts, kind)
            framed = encoder.texts(Tokens.of_texts(tokens), kind)
            # One by one, so that there is no padding.
            rows = [framed.vectors(encoder, np.array([row]), CPU) for row in range(len(texts))]
            file.parent.mkdir(parents=True, exist_ok=True)
            block = [(ids, np.concatenate(rows))]
            write_shard(file, block, storage=storage, precision=precision, count=len(texts), **about)
            name = self.results.tokens("encoders", "encoder", file.stem)
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            write_tokens(name, [(ids, [ids.tolist() for ids in tokens])], "any")
        return self

    def open(self):
        models = open_light(self.results, open_systems(self.results, ["dense"]))
        return models and models.retrievers["dense"][0]

    def compare(self):
        """Search with and without torch; the largest deviation of a vector."""
        light, files = self.open(), [self.passages]
        torch_encoder = QueryEncoder(Model(self.model, "raw", "fp32", files), CPU)
        search, deviations = exact_search(open_vectors(files)), []
        for query in [*QUERIES, *self.world.query_texts]:
            [tokens], [expected] = light.tokenize([query]), torch_encoder.tokenize([query])
            assert tokens.tolist() == expected.tolist()
            vector, expected = light.encode([tokens]), torch_encoder.encode([expected])
            # Static embeddings of an empty query are zeros.
            deviations.append(np.abs(vector - expected).max() / (np.abs(expected).max() or 1))
            [found], [best] = light.search(expected, 5), search.search(expected, 5)
            assert found.doc_ids[:5] == best.doc_ids
            assert np.array_equal(found.scores[:5], best.scores)
        return max(deviations)


@pytest.fixture
def experiment(tmp_path, world):
    return Experiment(tmp_path / "results", world)


@pytest.fixture
def static(world, lm, tmp_path):
    """Folder of a released model."""
    torch.manual_seed(5)
    make = Maker(tmp_path / "static", world, lm)
    LAYOUTS["static"](make)
    return take_in(make.folder, tmp_path / "model")


@pytest.mark.parametrize("layout", LIGHT)
def test_static_embeddings_give_the_vectors_of_torch(experiment, world, lm, tmp_path, layout):
    torch.manual_seed(5)
    make = Maker(tmp_path / "released", world, lm)
    LAYOUTS[layout](make)
    experiment.encode(take_in(make.folder, tmp_path / "model"))
    assert experiment.compare() <= 1e-5


def test_vectors_are_rounded_as_those_of_passages(static, experiment):
    light = experiment.encode(static, storage="fp16").open()
    vector = light.encode(light.tokenize(["neriga"]))
    assert vector.dtype == np.float32
    assert np.array_equal(vector, vector.astype(np.float16))


def files_of_weights(experiment):
    return list(experiment.model.rglob("model.safetensors"))


def double_weights(experiment):
    def double(weights):
        for weight in weights.values():
            weight *= 2

    change_weights(files_of_weights(experiment)[0], double)


WRONG = {
    "other model": double_weights,
    "no weights": lambda experiment: [path.unlink() for path in files_of_weights(experiment)],
    "damaged weights": lambda experiment: [path.write_bytes(b"1234567") for path in files_of_weights(experiment)],
    "no passages": lambda experiment: experiment.passages.unlink(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_differs_or_is_damaged_is_left_to_torch(static, experiment, wrong):
    assert experiment.encode(static).open()
    WRONG[wrong](experiment)
    assert experiment.open() is None


def test_systems_that_need_more_are_left_to_torch(static, experiment):
    experiment.encode(static)
    for name in ("bm25", "dense", "both", "graph", "reranked"):
        opened = open_light(experiment.results, open_systems(experiment.results, [name]))
        assert (opened is not None) == (name in ("bm25", "dense", "both"))


def test_transformers_are_left_to_torch(make_encoder, experiment):
    assert experiment.encode(make_encoder()).open() is None


def light_of(path):
    """Search in vectors alone, without an encoder."""
    light = LightSearch.__new__(LightSearch)
    light._vectors = open_vectors([path])
    return light


def test_ties_are_broken_by_id_and_zero_has_no_sign(tmp_path):
    generator = np.random.default_rng(3)
    vectors = generator.integers(-2, 3, (300, 8)).astype(np.float32)  # many ties
    ids = [f"d{number}" for number in generator.permutation(300)]
    blocks = [(ids[at : at + 70], vectors[at : at + 70]) for at in range(0, 300, 70)]
    write_shard(tmp_path / "p.arrow", blocks, model="m", dimension=8, count=300)
    light = light_of(tmp_path / "p.arrow")
    query = generator.integers(-2, 3, (1, 8)).astype(np.float32)
    for depth in (1, 20, 300, 400):
        [found], [expected] = light.search(query, depth), exact_search(light._vectors).search(query, depth)
        assert found.doc_ids[:depth] == expected.doc_ids
        assert found.scores[:depth].astype(np.float32).tobytes() == expected.scores.tobytes()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_vectors_without_a_score_are_refused(tmp_path, number):
    vectors = np.full((3, 8), 1e10, np.float32)
    vectors[1, 2] = number
    write_shard(tmp_path / "p.arrow", [(["a", "b", "c"], vectors)], model="m", dimension=8, count=3)
    with pytest.raises(InputError, match=r"p.arrow: found a vector with NaN, infinite or very large values"):
        light_of(tmp_path / "p.arrow").search(vectors[:1], 2)
