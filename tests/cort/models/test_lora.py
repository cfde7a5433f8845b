"""Adapters: trained and merged, or merged from a released folder."""

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from cort.formats.shards import Tokens
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import load_encoder, new_encoder
from cort.models.lora import adapt, merged
from cort.models.rerankers import load_reranker, new_reranker
from cort.runtime.errors import InputError
from tests.conftest import saved
from tests.support.released import change_json, change_weights, difference, peer
from tests.support.small import encoder_settings, pair_settings

peft = pytest.importorskip("peft")

CPU, ROWS = torch.device("cpu"), np.arange(10)
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def trained(model, seed=1):
    """Give the adapters, which begin without effect, weights as after a training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.3, generator=generator)
    return model.eval()


def outputs_of(model, caches):
    queries, passages = Tokens(caches["queries.train"]), Tokens(caches["passages"])
    with torch.inference_mode():
        if model.kind == "cross_encoder":
            return model.pairs(queries, passages).score(model, ROWS, ROWS, CPU).numpy()
        return model.texts(passages, "passage").encode(model, ROWS, CPU).numpy()


@pytest.mark.parametrize("kind", ["encoder", "classifier", "linear head"])
def test_a_merged_model_is_the_adapted_one_up_to_rounding(kind, lm, caches, tmp_path):
    if kind == "encoder":
        model, load = new_encoder(lm, encoder_settings("mean", 8, 12, 24), 1), load_encoder
    else:
        head = {"head": "linear"} if kind == "linear head" else {}
        model, load = new_cross_encoder(lm, pair_settings(12, 32, **head), 1), load_reranker
    before = outputs_of(model.eval(), caches)
    adapt(model, 4, 1)
    # At the start, adapters do nothing.
    assert np.array_equal(outputs_of(model.eval(), caches), before)
    own = {name for name, weight in model.named_parameters() if weight.requires_grad}
    adapters = {name for name in own if "lora_" in name}
    # Six linear layers in each of two layers.
    assert len(adapters) == 2 * 2 * 6
    heads = {"encoder": 2, "classifier": 4, "linear head": 2}
    assert len(own - adapters) == heads[kind]
    expected = outputs_of(trained(model), caches)
    assert difference(expected, before) > 0.01
    names = model.state_dict().keys()
    folder = saved(merged(model), tmp_path / "model")
    assert model.state_dict().keys() == names
    assert not [name for path in folder.rglob("*.safetensors") for name in load_file(path) if "lora" in name]
    assert difference(outputs_of(load(folder), caches), expected) < 1e-5


def test_a_model_without_such_layers_is_refused(lm):
    with pytest.raises(InputError, match="--lora-rank: found 4, expected none without linear layers of a transformer"):
        adapt(new_reranker(lm, pair_settings(8, 24, kind="knrm"), 1), 4, 1)


@pytest.fixture
def adapter(lm, tmp_path):
    """Write an adapter of a model with peft, as a folder of its own; it and the model with the adapter."""

    def write(head="AutoModel", **settings):
        torch.manual_seed(5)
        more = {"num_labels": 1} if "Classification" in head else {}
        model = getattr(transformers, head).from_pretrained(lm, **more)
        config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=["query", "value", "dense"], **settings)
        model = trained(peft.get_peft_model(model, config))
        model.peft_config["default"].base_model_name_or_path = str(lm)
        model.save_pretrained(tmp_path / "adapter")
        return tmp_path / "adapter", model

    return write


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True, "rank_pattern": {"query": 2}}, {"use_dora": True}])
def test_a_released_adapter_is_merged_with_its_model(adapter, world, lm, tmp_path, stage, settings):
    folder, model = adapter(**settings)
    stage("base_model", pretrained=folder, output=tmp_path / "base")
    merged_weights = transformers.AutoModel.from_pretrained(tmp_path / "base")
    tokenizer = transformers.AutoTokenizer.from_pretrained(lm)
    batch = tokenizer(world.texts[:4], return_tensors="pt", padding=True, truncation=True, max_length=30)
    with torch.inference_mode():
        found, expected = (one(**batch).last_hidden_state.numpy() for one in (merged_weights.eval(), model))
    assert difference(found, expected) < 1e-5
    stage("pretrained", kind="dense", pretrained=folder, output=tmp_path / "encoder")
    vectors = peer("SentenceTransformer", tmp_path / "encoder").encode_document(world.texts[:4])
    mask = batch["attention_mask"].numpy()[..., None]
    assert difference(vectors, (expected * mask).sum(1) / mask.sum(1)) < 1e-5


def test_an_adapter_of_a_cross_encoder_has_its_head(adapter, world, lm, tmp_path, stage):
    folder, model = adapter("AutoModelForSequenceClassification", task_type="SEQ_CLS")
    stage("pretrained", kind="cross_encoder", pretrained=folder, output=tmp_path / "reranker")
    pairs = list(zip(world.query_texts[:4], world.texts[:4], strict=True))
    batch = transformers.AutoTokenizer.from_pretrained(lm)(pairs, return_tensors="pt", padding=True)
    with torch.inference_mode():
        expected = model(**batch).logits[:, 0].numpy()
    assert difference(peer("CrossEncoder", tmp_path / "reranker").predict(pairs), expected) < 1e-5


def edit(**changes):
    return lambda folder: change_json(folder / CONFIG, **changes)


def change_tensors(change):
    return lambda folder: change_weights(folder / WEIGHTS, change)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (edit(peft_type="IA3"), "found the peft_type 'IA3', expected LORA; merge it with peft first"),
        (edit(task_type="CAUSAL_LM"), "found the task_type 'CAUSAL_LM', expected FEATURE_EXTRACTION or SEQ_CLS;"),
        (edit(megatron_config={"x": 1}), "found megatron_config {'x': 1}, expected plain LoRA; merge it with peft"),
        (edit(base_model_name_or_path=None), "found no base_model_name_or_path, expected the model it was trained on"),
        (edit(base_model_name_or_path="some/bert"), "found 'some/bert', not a folder, without a revision, expected"),
        (edit(base_model_name_or_path="./gone"), "found './gone', no such folder, expected a folder, or a hub name;"),
        (lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.bin"), "found no safetensors weights of the"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"x"), "found unreadable bytes ("),
        (change_tensors(lambda tensors: tensors.popitem()), "found no tensor 'base_model."),
        (change_tensors(lambda tensors: tensors.update(x=torch.ones(1))), "found the unknown tensor 'x'"),
        (change_tensors(lambda of: of.update({min(of): torch.ones(2, 2)})), "found an adapter that does"),
        (edit(layers_pattern="x"), "found settings that peft cannot read ("),
    ],
)
@pytest.mark.parametrize(("program", "kind"), [("pretrained", "dense"), ("base_model", None)])
def test_an_adapter_that_cannot_be_merged_is_one_line(adapter, refused, tmp_path, change, line, program, kind):
    folder, _ = adapter()
    change(folder)
    named = {"pretrained": folder, "output": tmp_path / "out"} | ({"kind": kind} if kind else {})
    found = refused(program, **named)
    assert found.startswith(str(folder))
    assert line in found
