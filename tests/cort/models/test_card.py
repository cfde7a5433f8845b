import json

import pytest

from cort.models.card import Origin, write_card
from cort.models.layout import PROMPTS
from cort.runtime.checksums import checksum
from tests.support.cards import card_of, cells
from tests.support.released import check_folder

MODELS = {"SentenceTransformer": None, "CrossEncoder": {}, "MultiVectorEncoder": {"kind": "late_interaction"}}


@pytest.mark.parametrize("kind", MODELS)
def test_the_code_in_a_card_runs_and_its_tables_are_complete(
    make_encoder, make_reranker, tmp_path, monkeypatch, capsys, kind
):
    settings = MODELS[kind]
    folder = make_encoder() if settings is None else make_reranker(**settings)
    monkeypatch.chdir(folder.parent)
    write_card(folder, folder.name, kind, {"loss": "a|b `c`", "epochs": 9}, ["A note."])
    header, text = card_of(folder)
    assert header["library_name"] == "sentence-transformers"
    assert header["pipeline_tag"] == ("text-ranking" if kind == "CrossEncoder" else "sentence-similarity")
    assert json.loads((folder / PROMPTS).read_text())["model_type"] == kind
    assert "A note." in text
    assert {len(row) for row in cells(text)} == {2}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "README.md"]
    rows = [["loss", "`a/b c`"], ["epochs", "`9`"]]
    rows += [[path.relative_to(folder).as_posix(), f"`{checksum(path)}`"] for path in files]
    assert [row for row in rows if row not in cells(text)] == []
    [snippet] = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    exec(snippet, {})  # noqa: S102 - as readers do
    assert "[" in capsys.readouterr().out
    check_folder(folder)


def test_a_card_names_the_base_model_its_licence_data_and_measures(make_reranker, tmp_path, caplog):
    card = tmp_path / "README.md"
    assert Origin.of(tmp_path) == Origin()
    card.write_text("---\nlicense: apache-2.0\nbase_model: google/bert\nlanguage: [en]\n---\n# It\n---\nmore\n")
    assert Origin.of(tmp_path) == Origin("google/bert", "apache-2.0")
    origin = Origin.of(tmp_path, "me/minilm")
    assert origin == Origin("me/minilm", "apache-2.0")
    # As base models hand it on.
    origin.write(tmp_path)
    assert Origin.of(tmp_path) == origin
    for text in ("no header", "---\nlicense: [a, b]\n---\n", "---\n- a\n---\n", "---\na: {\n---\n"):
        card.write_text(text)
        assert Origin.of(tmp_path) == Origin()
    line = f"{card}: its header cannot be read; the licence of the model remains unknown"
    assert [record.message for record in caplog.records] == [line, line]
    folder = make_reranker()
    write_card(folder, "it", "CrossEncoder", {}, origin=origin, data="nfcorpus", measures={"nDCG@10": 0.36281})
    header, _ = card_of(folder)
    expected = {"base_model": "me/minilm", "license": "apache-2.0", "datasets": ["nfcorpus"], "metrics": ["nDCG@10"]}
    assert expected.items() <= header.items()
    [model] = header["model-index"]
    [result] = model["results"]
    assert (model["name"], result["dataset"]["type"]) == ("it", "nfcorpus")
    assert [(one["type"], one["value"]) for one in result["metrics"]] == [("nDCG@10", 0.3628)]


def test_the_card_of_a_model_of_this_project_alone_has_no_code(make_reranker):
    folder = make_reranker(kind="knrm")
    write_card(folder, "it", None, {})
    header, text = card_of(folder)
    assert header == {"tags": ["cort"]}
    assert "Only the CoRT workflow loads" in text
    assert "```" not in text
