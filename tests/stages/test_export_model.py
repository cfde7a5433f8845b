import ast
import json
from functools import partial

import numpy as np
import pytest

from cort import export_model
from cort.models.cross_encoder import PairSettings, new_cross_encoder
from cort.models.encoder import new_encoder, save_encoder
from cort.models.rerankers import save_reranker
from cort.models.settings import EncoderSettings
from tests.support import released
from tests.support.cards import card_of, cells
from tests.support.common import command_line, contents
from tests.support.released import difference, logits_of, vectors_of

TOLERANCE = 1e-6
# A text over any limit, an empty one, special tokens spelled out, letters that a filter removes.
STRANGE = ["ba " * 200, "", "[SEP] bako [CLS] rilu", "Bäko — rílu!", "٣ ko; ri", "x"]
TICKS = "\\`" * 3


def export(folder, model, **changes):
    named = {"model": [model], "name": ["it"], "dataset": ["world"], "output": [folder]}
    assert export_model.main(command_line(named, changes)) == 0
    return folder


@pytest.fixture
def tokens_of(tmp_path):
    return partial(released.tokens_of, tmp_path)


@pytest.fixture
def make_model(make_base_model, lm, tmp_path):
    """Save a new encoder or re-ranker on a base model of some architecture; its folder."""

    def make(settings, **architecture):
        model = make_base_model(**architecture) if architecture else lm
        folder = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        if isinstance(settings, PairSettings):
            save_reranker(new_cross_encoder(model, settings, 4), model, folder)
        else:
            save_encoder(new_encoder(model, settings, 3), model, folder)
        # Tests change the files.
        (folder / ".sum").unlink()
        return folder

    return make


@pytest.fixture
def peer():
    return pytest.importorskip("sentence_transformers")


def load(peer, kind, folder):
    return getattr(peer, kind)(str(folder), device="cpu", local_files_only=True)


ROBERTA = {"model_type": "roberta", "max_position_embeddings": 50}
DISTILBERT = {"model_type": "distilbert", "dim": 32, "hidden_dim": 64, "intermediate_size": None}
ENCODERS = {
    "CoRT": (EncoderSettings("cls", 8, 12, 16), {}),
    "CoRT, mean": (EncoderSettings("mean", 32, 20, 48), {}),
    "RepBERT": (EncoderSettings("mean", 32, 12, 16, "inner_product", False, 0), {}),
    "the other segment": (EncoderSettings("cls", 8, 12, 16, query_segment=0, passage_segment=1), {}),
    "prompts": (EncoderSettings("cls", 8, 12, 16, query_prompt="ko: ", passage_prompt="ri lu: "), {}),
    "last token, no tanh": (EncoderSettings("last", 8, 12, 16, "inner_product", activation="identity"), {}),
    "ALBERT": (EncoderSettings("cls", 8, 12, 16), {"model_type": "albert", "embedding_size": 16}),
    "ELECTRA": (EncoderSettings("mean", 8, 12, 16), {"model_type": "electra", "embedding_size": 16}),
    "no segments": (EncoderSettings("mean", 8, 12, 16), ROBERTA),
    "no segments, no pooler": (EncoderSettings("cls", 8, 12, 16, "inner_product"), DISTILBERT),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_gives_the_same_vectors_of_queries_and_passages(peer, make_model, world, tokens_of, tmp_path, name):
    settings, architecture = ENCODERS[name]
    model = make_model(settings, **architecture)
    loaded = load(peer, "SentenceTransformer", export(tmp_path / "export", model))
    texts = [*world.query_texts, *world.texts[:20], *STRANGE]
    expected = {kind: vectors_of(model, tokens_of(model, texts, kind=kind), kind) for kind in ("query", "passage")}
    assert difference(loaded.encode_query(texts), expected["query"]) <= TOLERANCE
    assert difference(loaded.encode_document(texts), expected["passage"]) <= TOLERANCE
    assert difference(loaded.encode(texts), expected["passage"]) <= TOLERANCE
    # Otherwise, the two could be equal by chance.
    assert np.abs(expected["query"] - expected["passage"]).max() > 1e-3
    assert loaded.similarity_fn_name == ("cosine" if settings.similarity == "angular" else "dot")
    ranked = expected["query"] @ expected["passage"].T
    assert np.abs(loaded.similarity(expected["query"], expected["passage"]).numpy() - ranked).max() <= 1e-5


@pytest.mark.parametrize("form", ["raw", "cort"])
def test_the_filter_of_the_authors_is_part_of_the_tokenizer(peer, make_model, tokens_of, tmp_path, form):
    model = make_model(EncoderSettings("mean", 8, 12, 16))
    loaded = load(peer, "SentenceTransformer", export(tmp_path / "export", model, cleaning=[form]))
    texts = [*STRANGE, "ba—ko", "(ba) 'ko'", "  ba\tko\n", "ba,ko;ri:lu/ne?sa!to.", "日本 ba", "—"]
    vectors = loaded.encode_query(texts)
    assert difference(vectors, vectors_of(model, tokens_of(model, texts, "query", form), "query")) <= TOLERANCE
    other = vectors_of(model, tokens_of(model, texts, "query", "cort" if form == "raw" else "raw"), "query")
    assert np.abs(vectors - other).max() > 1e-3


def test_queries_and_passages_share_their_weights(peer, make_model, tmp_path):
    model = make_model(EncoderSettings("cls", 8, 12, 16))
    folder = export(tmp_path / "export", model)
    routes = load(peer, "SentenceTransformer", folder)[0].sub_modules
    assert routes["query"][1] is routes["document"][0]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*.safetensors")}
    assert sizes["transformer/model.safetensors"] == (model / "model.safetensors").stat().st_size
    # One number per token and position, and a header.
    assert sizes["query/model.safetensors"] < 4 * (160 + 12 + 4) + 1_000


def test_sentence_transformers_can_save_the_model_again(peer, make_model, tmp_path):
    folder = export(tmp_path / "export", make_model(EncoderSettings("cls", 8, 12, 16)))
    loaded = load(peer, "SentenceTransformer", folder)
    loaded.save_pretrained(str(tmp_path / "again"))
    again = load(peer, "SentenceTransformer", tmp_path / "again")
    for name in ("encode_query", "encode_document"):
        assert np.array_equal(getattr(loaded, name)(STRANGE), getattr(again, name)(STRANGE))


RERANKERS = {
    "BERT": (PairSettings(12, 32), {}),
    "long queries": (PairSettings(24, 32), {}),
    "a linear layer": (PairSettings(12, 32, head="linear"), {}),
    "a linear layer, no segments": (PairSettings(12, 32, head="linear"), ROBERTA),
    "no segments": (PairSettings(12, 32), ROBERTA),
}


@pytest.mark.parametrize("name", RERANKERS)
def test_a_reranker_gives_the_same_logits(peer, make_model, world, tokens_of, tmp_path, name):
    settings, architecture = RERANKERS[name]
    model = make_model(settings, **architecture)
    loaded = load(peer, "CrossEncoder", export(tmp_path / "export", model))
    queries = [*world.query_texts, *STRANGE[1:], "ba " * settings.query_length]
    # Only this project truncates queries.
    short = tokens_of(model, queries).lengths <= settings.query_length - 2
    assert not short.all()
    queries = [query for query, keep in zip(queries, short, strict=True) if keep]
    passages = [*world.texts, *STRANGE, "ba " * 200][-len(queries) :]
    expected = logits_of(model, tokens_of(model, queries), tokens_of(model, passages))
    assert difference(loaded.predict(list(zip(queries, passages, strict=True))), expected) <= TOLERANCE
    # Logits: a sigmoid gives none below 0.
    assert expected.min() < 0


def test_this_project_can_load_the_folder(make_model, world, tokens_of, tmp_path):
    model = make_model(EncoderSettings("mean", 8, 12, 16))
    folder = export(tmp_path / "export", model) / "transformer"
    tokens = tokens_of(model, world.texts)
    # It gives the same tokens, but also truncates and sets segments, so the fingerprint of its caches differs.
    exported = tokens_of(folder, world.texts)
    assert [list(tokens[row]) for row in range(9)] == [list(exported[row]) for row in range(9)]
    assert np.array_equal(vectors_of(folder, exported, "query"), vectors_of(model, tokens, "query"))
    for head in ("classification", "linear"):
        pairs = make_model(PairSettings(12, 32, head=head))
        again = export(tmp_path / head, pairs) / "transformer"
        logits, expected = (logits_of(each, *[tokens_of(each, world.query_texts)] * 2) for each in (again, pairs))
        assert np.array_equal(logits, expected)


@pytest.mark.parametrize("settings", [EncoderSettings("cls", 8, 12, 16), PairSettings(12, 32)])
def test_the_folder_has_no_code_and_is_reproducible(make_model, tmp_path, settings):
    model = make_model(settings)
    config = json.loads((model / "config.json").read_text("utf-8"))
    (model / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "code.Model"}}), "utf-8")
    folder = export(tmp_path / "export", model)
    first = contents(folder)
    assert {name.rpartition(".")[2] for name in first} == {"md", "json", "safetensors"}
    assert not any(b"auto_map" in content or b"remote" in content for content in first.values())
    assert contents(export(tmp_path / "export", model)) == first
    assert contents(export(tmp_path / "elsewhere", model)) == first
    assert {oct(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {oct(0o100644)}


def test_an_exported_tokenizer_sets_segments_and_truncates(make_model, tmp_path):
    from transformers import AutoTokenizer

    for segment in (0, 1):
        model = make_model(EncoderSettings("cls", 8, 12, 16, query_segment=segment, passage_segment=1 - segment))
        folder = export(tmp_path / f"export{segment}", model)
        for name, length, expected in (("query", 12, segment), ("transformer", 16, 1 - segment)):
            tokenizer = AutoTokenizer.from_pretrained(folder / name, local_files_only=True)
            encoded = tokenizer(["ba " * 200, "ba"], truncation=True, padding=True)
            assert encoded["token_type_ids"][0] == [expected] * length
            assert sum(encoded["attention_mask"][1]) == 3


def write_measures(path, system="cort", split="dev|test", value=0.25):
    content = {"system": system, "split": split, "relevance_level": 1, "queries": 7, "judged": None}
    content |= {"mean": {"RR@10": value, "R@1000": 0.5}, "without_results": 0, "without_relevant": 0}
    path.write_text(json.dumps(content), "utf-8")
    return path


@pytest.fixture
def card(make_model, tmp_path):
    """Header and text of a complete card of an encoder."""
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps({"queries kept": 123, "dropped: a|b": 4}), "utf-8")
    measures = [write_measures(tmp_path / "1.json"), write_measures(tmp_path / "2.json", "cort_onng*", value=0.5)]
    settings = {"loss": "multilabel_margin", "projection": True, "training": {"epochs": 9, "note": "a|b `c`\n# d"}}
    model = make_model(EncoderSettings("cls", 8, 12, 16))
    named = {"name": ["cort-e8"], "hub_name": ["albert/albert-base-v2"], "revision": ["8e2f239"]}
    named |= {"settings": [json.dumps(settings)], "counts": [f"train={counts}"], "measures_files": measures}
    return card_of(export(tmp_path / "export", model, **named))


def test_the_card_describes_data_settings_measures_and_what_to_cite(card):
    header, text = card
    assert header["library_name"] == "sentence-transformers"
    assert header["pipeline_tag"] == "sentence-similarity"
    assert header["base_model"] == "albert/albert-base-v2"
    assert "license" not in header
    rows = [["train", "queries kept", "123"], ["train", "dropped: a|b", "4"], ["projection", "true"]]
    rows += [["training.epochs", "9"], ["training.note", "a|b \\`c\\` # d"]]
    rows += [["dev|test", "cort", "7", "1", "0.250", "**0.500**"]]
    rows += [["dev|test", "cort\\_onng\\*", "7", "1", "**0.500**", "**0.500**"]]
    assert [row for row in rows if row not in cells(text)] == []
    known = ('SentenceTransformer("cort-e8")', "Wrzalik, Marco", "Zhan, Jingtao", "albert-base-v2 at revision 8e2f")
    assert [words for words in known if words not in text] == []
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == ["# cort-e8", "## Use", "## Training", "## Quality", "## Versions", "## Citation"]
    assert len({len(row) for row in cells(text)}) == 3


def test_the_name_is_escaped_in_a_card(make_model, tmp_path):
    name = 'a"); import os  # ```\n```'
    _, text = card_of(export(tmp_path / "export", make_model(PairSettings(12, 32)), name=[name]))
    snippets = [part.split("\n```\n")[0] for part in text.split("```python\n")[1:]]
    calls = [node for snippet in snippets for node in ast.walk(ast.parse(snippet)) if isinstance(node, ast.Call)]
    paths = [node.args[0].value for node in calls if node.args and isinstance(node.args[0], ast.Constant)]
    assert paths == [name, f"{name}/transformer"]
    assert f'# a"); import os # {TICKS} {TICKS}\n' in text


def test_the_code_in_a_card_runs(peer, card, make_model, tmp_path, monkeypatch, capsys):
    for kind, settings in (("it", EncoderSettings("cls", 8, 12, 16)), ("pairs", PairSettings(12, 32))):
        folder = export(tmp_path / kind, make_model(settings), name=[kind])
        _, text = card_of(folder)
        snippets = [part.split("```")[0] for part in text.split("```python\n")[1:]]
        assert len(snippets) == 2
        monkeypatch.chdir(tmp_path)
        for snippet in snippets:
            exec(snippet, {})  # noqa: S102 - as readers do
        assert "[" in capsys.readouterr().out


def test_the_card_of_a_reranker(make_model, tmp_path):
    folder = export(tmp_path / "export", make_model(PairSettings(12, 32)), cleaning=["fixed"])
    header, text = card_of(folder)
    assert header["pipeline_tag"] == "text-ranking"
    assert "truncated to 12 tokens" in text
    assert "ftfy.fix_encoding" in text
    assert "Nogueira" in text
    assert "base_model" not in header


def test_other_folders_and_options_are_refused(make_model, lm, complaint, tmp_path):
    model = make_model(EncoderSettings("cls", 8, 12, 16))
    named = {"model": [model], "name": ["it"], "dataset": ["world"], "output": [tmp_path / "new"]}

    def refused(**changes):
        return complaint(export_model.main, command_line(named, changes), tmp_path / "new")

    assert "neither cort.json nor reranker.json" in refused(model=[lm])
    assert "--settings: found unreadable content" in refused(settings=["{"])
    assert "--settings: found [], expected an object" in refused(settings=["[]"])
    assert "--counts: found 'train', expected NAME=VALUE" in refused(counts=["train"])
    path = write_measures(tmp_path / "1.json")
    path.write_text(path.read_text("utf-8")[:40], "utf-8")
    assert "1.json: found unreadable content" in refused(measures_files=[path])
    (model / "model.safetensors").write_bytes(b"cut off")
    assert "no complete model" in refused()
