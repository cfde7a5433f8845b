"""Released re-rankers agree with sentence-transformers, or with their papers' formulas written out here."""

import json
import re
import string

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cort import pretrained
from cort.models.layout import check_released
from cort.models.rerankers import load_reranker
from cort.models.tokenizer import load_tokenizer
from cort.runtime.errors import InputError
from tests.support.framing import FIRST, frame_of
from tests.support.released import (
    change_json,
    copy_model,
    tokens_of,
    weights_of,
    write_json,
    write_modules,
    write_transformer,
)

QUERIES = ["what is a wren?", "Where do they live", "(why)", "a"]
PASSAGES = ["The wren is a small bird.", "They live in Europe; also in Asia.\n", "no", '"Quoted" text, 12 of 30.']
LONG = "bird " * 200
TEMPLATE = (
    "<|end|>{% if messages[0].role == 'system' %}{{ messages[0].content }}<|end|>{% endif %}Judge.\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}"
    "<|end|>\nAnswer:"
)
PAIRS = [(query, passage) for query in (0, 1, 2, 3) for passage in (0, 1, 2, 3)]


def load(source, tmp_path, kind, *options):
    folder = tmp_path / "released"
    assert pretrained.main(["--kind", kind, "--pretrained", str(source), *options, "--output", str(folder)]) == 0
    return folder


def scores_of(folder, tmp_path, passages=PASSAGES, pairs=PAIRS):
    model = load_reranker(folder)
    caches = tokens_of(tmp_path, folder, QUERIES, "query"), tokens_of(tmp_path, folder, passages)
    rows = np.array(pairs).T
    with torch.inference_mode():
        return model.pairs(*caches).score(model, *rows, torch.device("cpu")).numpy()


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    """Folder of a causal language model without a chat template."""
    texts = [*QUERIES, *PASSAGES, "yes no Judge. Answer: <Query>: <Document>:"] * 5
    folder = write_transformer(tmp_path_factory.mktemp("lm"), texts, "decoder", "AutoModelForCausalLM")
    change_json(folder / "config.json", max_position_embeddings=200)
    change_json(folder / "tokenizer_config.json", model_max_length=200)
    return folder


def cross_encoder(source, folder, task, template):
    """Save a causal re-ranker as sentence-transformers does."""
    import sentence_transformers
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    more = {"num_labels": 1} if task == "sequence-classification" else {}
    torch.manual_seed(5)
    module = Transformer(str(source), transformer_task=task, config_kwargs=more)
    modules = [module]
    if template:
        module.processor.chat_template = template
        messages = {"method": "forward", "method_output_name": "logits", "format": "flat"}
        module.modality_config = {**module.modality_config, "message": messages}
    module.input_formatter.message_format = "flat"
    if task == "text-generation":
        modules.append(LogitScore(module.tokenizer.encode("e")[0], module.tokenizer.encode("o")[0]))
    else:
        module.model.config.pad_token_id = module.tokenizer.pad_token_id
    model = sentence_transformers.CrossEncoder(modules=modules, device="cpu", activation_fn=torch.nn.Identity())
    model.save(str(folder), create_model_card=False)
    return sentence_transformers.CrossEncoder(str(folder), device="cpu")


@pytest.fixture(scope="module")
def judge(causal, tmp_path_factory):
    """A causal re-ranker of 120 tokens with a chat template: the peer, what it was saved as, and what we took in."""
    folder = tmp_path_factory.mktemp("judge")
    peer = cross_encoder(causal, folder / "peer", "text-generation", TEMPLATE)
    peer[0].tokenizer.model_max_length = 120
    return peer, folder / "peer", load(folder / "peer", folder, "cross_encoder", "--max-length", "120")


@pytest.mark.parametrize("template", [TEMPLATE, None], ids=["chat", "pair"])
@pytest.mark.parametrize("task", ["text-generation", "sequence-classification"])
def test_causal_rerankers_agree_with_sentence_transformers(causal, tmp_path, task, template):
    peer = cross_encoder(causal, tmp_path / "peer", task, template)
    expected = peer.predict([(QUERIES[query], PASSAGES[passage]) for query, passage in PAIRS], batch_size=5)
    folder = load(tmp_path / "peer", tmp_path, "cross_encoder")
    scores = scores_of(folder, tmp_path)
    assert np.abs(scores - expected).max() < 1e-4
    assert scores.std() > 0.01
    # Neither other pairs in a batch nor padding change a score.
    alone = [scores_of(folder, tmp_path, pairs=[pair]).item() for pair in PAIRS]
    assert np.abs(scores - alone).max() < 1e-5


@pytest.mark.parametrize("passage", ["no", LONG], ids=["fits", "does not"])
@pytest.mark.parametrize("words", [1, 8, 16])
def test_a_passage_is_truncated_before_the_query_and_the_end_of_the_prompt(judge, tmp_path, words, passage):
    (peer, _, folder), query = judge, " ".join(["what", *["birds"] * words])
    model = load_reranker(folder)
    caches = tokens_of(tmp_path, folder, [query], "query"), tokens_of(tmp_path, folder, [passage])
    ids, _ = frame_of(model.pairs(*caches).sequences(FIRST, FIRST))
    theirs = peer.preprocess([(query, passage)])["input_ids"][0]
    assert ids.tolist() == theirs.tolist()
    assert len(ids) == 120 or passage != LONG
    # Half of the room is less than the longest query here.
    assert words < 16 or 60 < len(caches[0][0]) < model.query_length


def test_a_query_beyond_the_prompt_leaves_tokens_of_the_passage(judge, tmp_path):
    *_, folder = judge
    caches = tokens_of(tmp_path, folder, [LONG], "query"), tokens_of(tmp_path, folder, [LONG])
    model = load_reranker(folder)
    ids, template = frame_of(model.pairs(*caches).sequences(FIRST, FIRST))[0].tolist(), model.template
    end = [*template.between, *caches[1][0][:4], *template.cut, *template.after]
    assert ids[-len(end) :] == end
    assert len(ids) == 120
    # Nothing of the prompt is lost, not even what is tokenized together with the end of a query.
    text = load_tokenizer(folder).decode(ids)
    assert re.fullmatch(r"Judge\.\n<Query>: (bird )*\w*\n<Document>: \w+( bird)*\w*\nAnswer:", text), text


@pytest.mark.usefixtures("bf16")
def test_scores_in_half_precision_do_not_tie(judge, tmp_path):
    *_, folder = judge
    model = load_reranker(folder)
    caches = tokens_of(tmp_path, folder, QUERIES, "query"), tokens_of(tmp_path, folder, PASSAGES)
    model.place(torch.device("cpu"), "bf16")
    with torch.inference_mode():
        scores = model.pairs(*caches).score(model, *np.array(PAIRS).T, torch.device("cpu"))
    assert len(set(scores.tolist())) == len(PAIRS)
    assert not torch.equal(scores, scores.bfloat16().float())


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{ messages[0].role }}", "found no usable chat template: "),
        ("{{ messages[1].content }}{{ messages[0].content }}", "found a prompt without one query before one passage"),
    ],
)
def test_a_chat_template_without_both_roles_is_refused(judge, tmp_path, refused, template, line):
    folder = copy_model(judge[1], tmp_path / "peer")
    (folder / "chat_template.jinja").write_text(template)
    assert line in refused("pretrained", kind="cross_encoder", pretrained=folder, output=tmp_path / "out")


def multi_vector(source, folder, layout, **settings):
    """Save a ColBERT model in a layout, and load it as sentence-transformers does."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    folder.mkdir()
    torch.manual_seed(7)
    width = json.loads((source / "config.json").read_text())["hidden_size"]
    if layout == "stanford":
        from transformers import AutoModel

        AutoModel.from_pretrained(source).save_pretrained(folder)
        for path in source.glob("*token*"):
            (folder / path.name).write_bytes(path.read_bytes())
        weights = {f"bert.{name}": value for (_, name), value in weights_of(folder).items()}
        save_file(weights | {"linear.weight": torch.randn(16, width)}, folder / "model.safetensors", {"format": "pt"})
        change_json(folder / "config.json", architectures=["HF_ColBERT"])
        marks = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]"}
        write_json(folder / "artifact.metadata", {"query_maxlen": 20, "doc_maxlen": 40, "dim": 16} | marks | settings)
    else:
        options = {"bias": False, "activation_function": torch.nn.Identity()}
        dense = Dense(width, 16, module_input_name="token_embeddings", **options)
        expansion, punctuation = settings.get("query_expansion"), list(string.punctuation)
        module = Transformer(str(source), query_length=20, document_length=40, query_expansion=expansion)
        mask = MultiVectorMask(skiplist_words=settings.get("skiplist_words", punctuation))
        modules = [module, dense, mask, Normalize(module_input_name="token_embeddings")]
        prompts = settings.get("prompts")
        MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts).save(str(folder), create_model_card=False)
        if layout == "pylate":
            index = json.loads((folder / "modules.json").read_text())[:2]
            index[1]["type"] = "pylate.models.Dense.Dense"
            write_json(folder / "modules.json", index)
            old = {"model_type": "ColBERT", "query_prefix": "[Q] ", "document_prefix": "[D] "}
            old |= {"similarity_fn_name": "MaxSim", "query_length": 20, "document_length": 40}
            old |= {"attend_to_expansion_tokens": False, "do_query_expansion": True}
            old |= {"skiplist_words": list(string.punctuation)} | settings
            change_json(folder / "config_sentence_transformers.json", **old)
            # PyLate's own limit leaves out the token of the prefix.
            write_json(folder / "sentence_bert_config.json", {"max_seq_length": 39, "do_lower_case": False})
    return MultiVectorEncoder(str(folder), device="cpu")


FIXED = {"strategy": "fixed", "length": 20}
LAYOUTS = {
    "sentence-transformers": ("native", {}),
    "no skip list": ("native", {"skiplist_words": []}),
    "expansion": ("native", {"query_expansion": FIXED}),
    "attended expansion": ("native", {"query_expansion": FIXED | {"attend": True}}),
    "least length": ("native", {"query_expansion": {"strategy": "min", "length": 8}}),
    "prompts": ("native", {"prompts": {"query": "query: ", "document": "passage: "}}),
    "PyLate": ("pylate", {}),
    "PyLate, attended": ("pylate", {"attend_to_expansion_tokens": True}),
    "PyLate, no expansion": ("pylate", {"do_query_expansion": False}),
    "Stanford": ("stanford", {}),
    "Stanford, attended, punctuation": ("stanford", {"attend_to_mask_tokens": True, "mask_punctuation": False}),
}


@pytest.mark.parametrize(("layout", "settings"), LAYOUTS.values(), ids=LAYOUTS)
def test_colbert_models_agree_with_sentence_transformers(lm, tmp_path, layout, settings):
    peer = multi_vector(lm, tmp_path / "peer", layout, **settings)
    passages = [*PASSAGES, LONG]
    pairs = [(query, passage) for query in range(len(QUERIES)) for passage in range(len(passages))]
    theirs = peer.similarity(peer.encode_query(QUERIES), peer.encode_document(passages)).numpy()
    folder = load(tmp_path / "peer", tmp_path, "late_interaction")
    scores = scores_of(folder, tmp_path, passages, pairs).reshape(theirs.shape)
    assert np.abs(scores - theirs).max() < 1e-4
    assert scores.std() > 0.01


ENCODERS = {
    "plain transformers": None,
    "mean": {},
    "not normalized": {"normalize": False, "similarity": "dot"},
    "linear layer, prompts": {
        "dense": [(16, "linear.Identity", True)],
        "prompts": {"query": "query: ", "document": "passage: "},
    },
}


@pytest.mark.parametrize("layout", ENCODERS.values(), ids=ENCODERS)
def test_an_encoder_of_a_mean_is_a_late_interaction_model_of_its_token_vectors(lm, tmp_path, layout):
    """Scores are recomputed from the encoder's own token vectors, whose mean its layers turn into the text's vector."""
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer

    folder = copy_model(lm, tmp_path / "peer")
    if layout is not None:
        write_modules(folder, length=40, **layout)
    encoder = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    layers = [module for module in encoder if type(module).__name__ == "Dense"]
    passages = [*PASSAGES, LONG]

    def vectors_of(texts, kind):
        prompt = encoder.prompts[kind]
        states = encoder.encode(texts, output_value="token_embeddings", prompt=prompt)
        with torch.inference_mode():
            for layer in layers:
                states = [layer.linear(state) for state in states]
        return [torch.nn.functional.normalize(state, dim=-1) for state in states]

    queries, documents = vectors_of(QUERIES, "query"), vectors_of(passages, "document")
    expected = [[(query @ other.T).amax(1).sum().item() for other in documents] for query in queries]
    pairs = [(query, passage) for query in range(len(QUERIES)) for passage in range(len(passages))]
    folder = load(folder, tmp_path, "late_interaction")
    assert np.abs(scores_of(folder, tmp_path, passages, pairs).reshape(4, 5) - expected).max() < 1e-4
    theirs = MultiVectorEncoder(str(folder), device="cpu")
    similarity = theirs.similarity(theirs.encode_query(QUERIES), theirs.encode_document(passages)).numpy()
    assert np.abs(similarity - expected).max() < 1e-4


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        ({"pooling": "cls"}, "an encoder of Transformer, Pooling (cls), Normalize, expected the same for queries: "),
        ({"dense": [(16, "activation.Tanh", True)]}, "Pooling (mean), Dense with Tanh, Normalize"),
    ],
)
def test_an_encoder_without_trained_token_vectors_is_refused(lm, tmp_path, complaint, layout, found):
    """`make plan` says so in the same words."""
    folder = write_modules(copy_model(lm, tmp_path / "peer"), **layout)
    options = ["--kind", "late_interaction", "--pretrained", folder, "--output", tmp_path / "released"]
    line = complaint(pretrained.main, options, tmp_path / "released")
    assert line.startswith(f"{folder}/modules.json: found ")
    assert found in line
    assert line.endswith("; name a ColBERT model, or train one on the transformer as a base_model")
    with pytest.raises(InputError, match=re.escape(line)):
        check_released(folder, "late_interaction")


def test_lengths_of_the_config_replace_those_of_a_colbert_model(lm, tmp_path):
    multi_vector(lm, tmp_path / "peer", "native", query_expansion=FIXED)
    lengths = ["--query-length", "9", "--max-length", "12"]
    model = load_reranker(load(tmp_path / "peer", tmp_path, "late_interaction", *lengths))
    assert [model.framings[kind].length for kind in ("query", "passage")] == [9, 12]
    assert model.expansion.length == 9
