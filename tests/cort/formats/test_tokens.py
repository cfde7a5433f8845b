import numpy as np
import pyarrow as pa
import pytest

from cort.formats.tokens import SCHEMA, Tokens, write_tokens
from cort.system.errors import InputError

BATCHES = [(["b", "a"], [[5, 6, 7], []]), (["10"], [[8]]), ([], []), (["9", "c", "d"], [[1, 2], [3], [4, 4, 4, 4]])]


def write(path, batches=BATCHES, tokenizer="abc"):
    return write_tokens(path, ((pa.array(ids, pa.string()), tokens) for ids, tokens in batches), tokenizer)


def test_round_trip(tmp_path):
    assert write(tmp_path / "t.arrow") == 6
    cache = Tokens(tmp_path / "t.arrow", "abc")
    assert len(cache) == 6
    assert cache.ids.to_pylist() == ["b", "a", "10", "9", "c", "d"]
    assert [cache[row].tolist() for row in range(6)] == [[5, 6, 7], [], [8], [1, 2], [3], [4, 4, 4, 4]]
    assert cache.lengths.tolist() == [3, 0, 1, 2, 1, 4]
    assert cache[0].dtype == np.int32
    assert cache.tokenizer == "abc"


def test_no_rows(tmp_path):
    for batches in ([], [([], [])]):
        assert write(tmp_path / "t.arrow", batches) == 0
        assert len(Tokens(tmp_path / "t.arrow")) == 0


def test_rows_of_ids_in_any_order_and_number(tmp_path):
    write(tmp_path / "t.arrow")
    cache = Tokens(tmp_path / "t.arrow")
    assert cache.rows_of(pa.array(["d", "b", "10", "b"]), "x").tolist() == [5, 0, 2, 0]
    assert cache.rows_of(pa.chunked_array([["9"], ["a", "c"]]), "x").tolist() == [3, 1, 4]
    assert cache.rows_of(pa.array([], pa.string()), "x").dtype == np.int64


def test_rows_of_an_unknown_id_is_the_fault_of_the_source(tmp_path):
    path = tmp_path / "t.arrow"
    write(path)
    for ids in (pa.array(["b", "zzz", "a"]), pa.chunked_array([["b"], ["zzz"]])):
        with pytest.raises(InputError, match=rf"triples.parquet: found the unknown id 'zzz', expected ids of {path}; "):
            Tokens(path).rows_of(ids, "triples.parquet")


def test_the_tokens_of_another_tokenizer_are_refused(tmp_path):
    path = tmp_path / "t.arrow"
    write(path)
    with pytest.raises(InputError, match=rf"{path}: found tokens of tokenizer abc, expected tokenizer xyz; delete it"):
        Tokens(path, "xyz")


@pytest.mark.parametrize("kept", [0, 5, 200, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, kept):
    path = tmp_path / "t.arrow"
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: kept if kept == int(kept) else int(len(content) * kept)])
    with pytest.raises(
        InputError, match=rf"{path}: found unreadable bytes \(.*\), expected a whole token cache; delete"
    ):
        Tokens(path)


def test_another_arrow_file_is_refused(tmp_path):
    path = tmp_path / "other.arrow"
    table = pa.table({"id": ["a"], "embedding": [1.0]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    with pytest.raises(InputError, match=rf"{path}: found another Arrow file, expected a token cache"):
        Tokens(path)


@pytest.mark.parametrize(("ids", "tokens"), [(["a", None], [[1], [2]]), (["a", "b"], [[1], None]), (["a"], [[None]])])
def test_missing_values_are_refused(tmp_path, ids, tokens):
    path = tmp_path / "x.arrow"
    table = pa.table([ids, tokens], schema=SCHEMA)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    with pytest.raises(InputError, match=rf"{path}: found empty cells in column"):
        Tokens(path)


def test_offsets_that_lead_out_of_the_file_are_refused(tmp_path):
    path = tmp_path / "x.arrow"
    write(path)
    content = path.read_bytes()
    offsets = np.array([0, 3], np.int32).tobytes()
    assert offsets in content
    path.write_bytes(content.replace(offsets, np.array([0, 1 << 30], np.int32).tobytes()))
    with pytest.raises(InputError, match=rf"{path}: found unreadable bytes \("):
        Tokens(path)


def test_a_missing_file_is_reported_as_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        Tokens(tmp_path / "none.arrow")


def test_a_failure_while_writing_leaves_nothing(tmp_path):
    def batches():
        yield pa.array(["a"]), [[1]]
        raise RuntimeError("the tokenizer died")

    with pytest.raises(RuntimeError, match="died"):
        write_tokens(tmp_path / "t.arrow", batches(), "abc")
    assert list(tmp_path.iterdir()) == []


def test_the_same_tokens_give_the_same_bytes(tmp_path):
    write(tmp_path / "one.arrow")
    write(tmp_path / "two.arrow")
    assert (tmp_path / "one.arrow").read_bytes() == (tmp_path / "two.arrow").read_bytes()


def test_texts_that_are_in_no_file_are_read_alike():
    texts = [np.array(tokens, dtype=np.int32) for tokens in ([5, 6, 7], [], [8])]
    tokens = Tokens.of_texts(texts)
    assert [tokens[row].tolist() for row in range(len(tokens))] == [text.tolist() for text in texts]
    assert tokens.lengths.tolist() == [3, 0, 1]
    assert tokens.ids.to_pylist() == ["0", "1", "2"]
    assert len(Tokens.of_texts([])) == 0
