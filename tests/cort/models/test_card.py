import json

import pytest

from cort.models.card import write_card
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


def test_the_card_of_a_model_of_this_project_alone_has_no_code(make_reranker):
    folder = make_reranker(kind="knrm")
    write_card(folder, "it", None, {})
    header, text = card_of(folder)
    assert header == {"tags": ["cort"]}
    assert "Only the CoRT workflow loads" in text
    assert "```" not in text
