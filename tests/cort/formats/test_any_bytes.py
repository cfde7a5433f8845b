"""For any bytes a reader gives a value or one InputError. How to run it for long, tests/support/fuzz.py says."""

import gzip
import io
import json
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cort.downloads.archives import extract
from cort.downloads.catalog import PublicFile
from cort.evaluation.values import read_recall, write_recall
from cort.formats import embeddings, lines, raw, tables, token_embeddings, tokens
from cort.formats.artifacts import read_artifact, read_json, write_artifact
from cort.formats.blocks import FinishedBlocks
from cort.formats.lines import iter_lines
from cort.formats.predictions import iter_predictions
from cort.formats.quotations import iter_quoted
from cort.formats.records import Ranking
from cort.formats.runs import read_candidates, read_run, write_run
from cort.formats.weighted import iter_documents
from cort.formats.yaml_files import read_yaml
from cort.import_run import read_published
from cort.reporting.inputs import read_curve, read_origin, read_stages
from cort.reporting.reproduction.fidelity import read_latencies
from cort.retrieval.bm25 import read_parameters
from cort.system.errors import InputError
from tests.support.fuzz import TOKEN_ORIGIN, Part, Whole, all_token_vectors, all_tokens, all_vectors, fuzzed

WHOLE = Whole("é", True, {"a": Part("x", [1.5, -2.0], None), "b": Part("", [], 3)})
PASSAGES = [("d1", "one two"), ("d2", "é\u2028 x"), ("d3", '"')]
RANKINGS = [Ranking("q1", ["d2", "d1"], np.array([2.5, -1.0])), Ranking("q2", ["d1"], np.array([0.0]))]
QUOTED = {"query_id": "q", "text": "A text of more than 20 letters", "relevance": 1}
QUOTABLE = {"doc_id": ["d"], "text": ["A text of more than 20 letters and more"]}
IDS = pa.array(["a", "b", "é"])
VECTORS = np.arange(6, dtype=np.float32).reshape(3, 2)


def _table(path):
    tables.write_table(path, pa.table([["q", "q"], ["d", "e"], [1, -2]], schema=tables.QRELS))


def _curve(path):
    path.write_text("step,epoch,loss,validation_loss,learning_rate,examples_per_second\n1,0.5,2,,1e-3,9\n2,1,1,1,0,9\n")


def _shard(path):
    embeddings.write_shard(path, [(IDS, VECTORS)], model="m", dimension=2, count=3, storage="fp16")


def _token_shard(path):
    batch = token_embeddings.to_batch(IDS, VECTORS, np.array([1, 0, 2]))
    token_embeddings.write_token_shard(path, [batch], TOKEN_ORIGIN, 3)


def _json(value):
    return lambda path: path.write_text(json.dumps(value))


def _text(text):
    return lambda path: path.write_text(text)


def _packed(text):
    return lambda path: path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _keep_block(path):
    blocks = FinishedBlocks(path.parent, lambda: "one")
    list(blocks.each([(0, 3)], lambda value: pa.record_batch({"value": [value]})))


def _read_block(path):
    blocks = FinishedBlocks(path.parent, lambda: "one")
    list(blocks.each([(0, 3)], lambda value: pa.record_batch({"value": [value]})))


def _alike(fast, slow):
    """What two readers say of a file: the same records, or the same complaint."""
    found = [_outcome(read) for read in (fast, slow)]
    assert found[0] == found[1]


def _outcome(read):
    try:
        return read()
    except InputError as error:
        return str(error)


def _passages_alike(path):
    def in_blocks():
        batches = list(raw.iter_passage_batches(path, 64))
        return pa.Table.from_batches(batches, tables.PASSAGES).to_pylist()

    names = tables.PASSAGES.names
    _alike(in_blocks, lambda: [dict(zip(names, one, strict=True)) for _, one in raw.iter_passages(path)])


def _run_alike(path):
    def read(parse_block=lines.parse_block):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "parse_block", parse_block)
            return [(one.query_id, one.doc_ids, one.scores.tolist()) for one in read_run(path)]

    _alike(read, lambda: read(lambda *_: None))


def _yaml(path):
    try:
        return read_yaml(path, "a config")
    except InputError as error:
        # A config's mistakes are told together, each in its line.
        assert all(line.startswith(str(path)) for line in str(error).splitlines())
        raise InputError(str(error).splitlines()[0]) from None


def _zip(texts, method=zipfile.ZIP_DEFLATED):
    def write(path):
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, text in texts.items():
                archive.writestr(zipfile.ZipInfo(name), text)

    return write


def _samples(path):
    names = [f"x_sample{number}.txt{part}-10" for number in (0, 1) for part in (0, 1)]
    _zip({name: f"what {name}\nhow\n" for name in names}, zipfile.ZIP_STORED)(path)


def _tar(path):
    content = b"what is it\n\nhow\n"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("predictions.txt")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


TSV = "".join(f"{one}\t{text}\n" for one, text in PASSAGES)
JSONL = "".join(json.dumps({"_id": one, "title": "t", "text": text}) + "\n" for one, text in PASSAGES)


def _extract(member):
    def read(path):
        extract(path, PublicFile("x", archive=path.name, member=member), path.parent / "out")

    return read


WEIGHTED = '{"id": "d1", "contents": "a a b"}\n{"id": "d2", "contents": ""}\n'
CBOR = bytes.fromhex("8363434152820280809f8300426431828200636f6e658201850061708041706374776fff")
TOPICS = "enwiki:a/b 0 d1 1\nenwiki:a%20c Q0 d2 1\n"
QRELS = "q1 0 d1 1\nq2\tQ0\td2\t-3\n"
ORIGIN = {
    "code": {"version": "1", "commit": "c", "modified": False},
    "software": {"packages": {"torch": "2"}, "system": "s", "python": "3", "java": None},
    "hardware": {"processor": "p", "cores": 2, "memory_mb": 5, "gpus": []},
    "written": "today",
    "inputs": [{"path": "a", "bytes": 2, "sha256": "e"}],
}
LATENCY = {"latencies": [{"system": "s"}]}
# Name of the file, who writes a good one, who reads it.
READERS = {
    "lines": ("x.txt", _text(TSV), lambda path: list(iter_lines(path))),
    "packed lines": ("x.gz", _packed(TSV), lambda path: list(iter_lines(path))),
    "passages, tsv": ("c.tsv", _text(TSV), _passages_alike),
    "passages, jsonl": ("c.jsonl", _text(JSONL), lambda path: list(raw.iter_passage_batches(path))),
    "passages, packed": ("c.txt.gz", _packed(TSV), lambda path: list(raw.iter_passage_batches(path))),
    "passages, cbor": (
        "c.cbor",
        lambda path: path.write_bytes(CBOR),
        lambda path: list(raw.iter_passage_batches(path)),
    ),
    "predictions": ("p.txt", _text("what is it\n\nhow é\n"), lambda path: list(iter_predictions(path))),
    "predictions, packed": ("p.txt.gz", _packed("what is it\n\nhow é\n"), lambda path: list(iter_predictions(path))),
    "predictions, tar": ("p.tar.gz", _tar, lambda path: list(iter_predictions(path))),
    "predictions, zip": ("p.zip", _samples, lambda path: list(iter_predictions(path, 2))),
    "archive, zip": ("a.zip", _zip({"m.txt": TSV}), _extract("m.txt")),
    "archive, tar": ("a.tar.gz", _tar, _extract("predictions.txt")),
    "weighted": ("w.jsonl", _text(WEIGHTED), lambda path: list(iter_documents(path))),
    "weighted, zip": ("w.zip", _zip({"a.json": WEIGHTED}), lambda path: list(iter_documents(path))),
    "YAML": ("c.yaml", _text("a: [1, {b: 'é'}]\nc: &x {d: 1e3}\ne: *x\n"), _yaml),
    "topics": ("t.qrels", _text(TOPICS), lambda path: list(raw.iter_queries(path))),
    "queries": ("q.txt", _text(TSV), lambda path: list(raw.iter_queries(path))),
    "queries, jsonl": ("q.jsonl", _text(JSONL), lambda path: list(raw.iter_queries(path))),
    "qrels": ("q.txt", _text(QRELS), lambda path: list(raw.iter_qrels(path))),
    "qrels of BEIR": ("q.tsv", _text("query-id\tcorpus-id\tscore\nq\td\t1\n"), lambda path: list(raw.iter_qrels(path))),
    "quotations": ("q.jsonl", _json(QUOTED), lambda path: list(iter_quoted(path, [pa.record_batch(QUOTABLE)]))),
    "run": ("r.trec", lambda path: write_run(path, RANKINGS, "t"), _run_alike),
    "run of TABs": ("r.trec", _text("q\tQ0\td\t1\t2.5\tt\nq\tQ0\te\t2\t-1e3\tt\n"), _run_alike),
    "candidates": ("c.tsv", _text("q\td\twhat is\ta b\n"), read_candidates),
    "published run": ("r.tsv", _text("q\td\t1\nq\te\t2\n"), read_published),
    "published candidates": ("r.tsv", _text("q\td\twhat is\ta b\n"), read_published),
    "table": ("t.parquet", _table, lambda path: tables.read_table(path, tables.QRELS).to_pylist()),
    "batches of a table": (
        "t.parquet",
        _table,
        lambda path: [one.to_pylist() for one in tables.iter_batches(path, tables.QRELS)],
    ),
    "rows of a table": ("t.parquet", _table, lambda path: tables.count_rows(path, tables.QRELS)),
    "columns of a table": ("t.parquet", _table, lambda path: tables.has_column(path, "doc_id")),
    "epochs": (
        "e.parquet",
        lambda path: tables.write_table(path, pa.table([[0, 0, 1]], schema=tables.EPOCHS)),
        tables.count_epochs,
    ),
    "tokens": (
        "t.arrow",
        lambda path: tokens.write_tokens(path, [(IDS, [[1, 2], [], [3]]), (IDS, [[], [5], [6]])], "f"),
        all_tokens,
    ),
    "embeddings": ("e.arrow", _shard, all_vectors),
    "token embeddings": ("e.arrow", _token_shard, all_token_vectors),
    "block": ("block-0.arrow", _keep_block, _read_block),
    "artifact": ("a.json", lambda path: write_artifact(path, WHOLE), lambda path: read_artifact(path, Whole)),
    "JSON": ("a.json", _json([1, {"a": None}]), lambda path: read_json(path).items()),
    "origin": ("p.json", _json(ORIGIN), read_origin),
    "latencies": ("l.json", _json(LATENCY), read_latencies),
    "parameters": ("b.json", _json({"k1": 0.9, "b": 0.4}), read_parameters),
    "recall": ("r.csv", lambda path: write_recall(path, [0.25, 0.5]), read_recall),
    "curve": ("c.csv", _curve, lambda path: read_curve("x", path)),
    "benchmark": ("b.tsv", _text("s\tmax_rss\n1.5\t-\n2\t300\n"), lambda path: read_stages(path.parent)),
}
# What is put into files: pieces that mean something in one of the formats, and any bytes.
PIECES = [
    *(
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
        b" ",
        b'"',
        b"{",
        b"[",
        b"}",
        b"\\",
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\x1f\x8b",
    ),
    *(
        b"PK\x03\x04",
        b"PAR1",
        b"ARROW1",
        b"nan",
        b"inf",
        b"1e999",
        b"1_0",
        b"-1",
        b"null",
        b"true",
        b"99999999999999999999",
    ),
    *("\u00a0", "\u200b", "\u2028", "٣", "\U000e0001", "id\ttext\n"),
]
PIECE = st.one_of(
    st.sampled_from([one if isinstance(one, bytes) else one.encode() for one in PIECES]), st.binary(max_size=9)
)
NUMBER = st.integers(0, 1 << 16)
CHANGES = st.lists(st.tuples(st.sampled_from(["flip", "cut", "insert", "swap"]), NUMBER, NUMBER, PIECE), max_size=4)


def changed(data, changes):
    """Flip a bit, cut a part (or the end), insert a piece, swap two parts."""
    for kind, first, second, piece in changes:
        start, end = sorted((first % (len(data) + 1), second % (len(data) + 1)))
        match kind:
            case "flip" if data:
                place = first % len(data)
                data = data[:place] + bytes([data[place] ^ 1 << second % 8]) + data[place + 1 :]
            case "cut":
                data = data[:start] + (data[end:] if second % 2 else b"")
            case "insert":
                data = data[:start] + piece + data[start:]
            case "swap":
                data = data[end:] + data[start:end] + data[:start]
    return data


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A good file of every reader, in a folder of its own."""
    folder, found = tmp_path_factory.mktemp("samples"), {}
    for number, (name, (file, write, _)) in enumerate(READERS.items()):
        path = folder / str(number) / file
        path.parent.mkdir()
        write(path)
        found[name] = path, path.read_bytes()
    return found


@pytest.mark.parametrize("name", READERS)
def test_good_files_are_read(name, samples):
    if name != "latencies":
        READERS[name][2](samples[name][0])


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_read_or_refused_in_one_line(name, samples):
    path, good = samples[name]
    packed = name.endswith("packed") or name.startswith("packed")

    @fuzzed
    @given(st.one_of(CHANGES, st.lists(PIECE, max_size=12).map(b"".join)), st.booleans())
    def reads_or_refuses(change, inside):
        text = gzip.decompress(good) if packed and inside else good
        data = change if isinstance(change, bytes) else changed(text, change)
        path.unlink(missing_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if packed and inside else data)
        try:
            READERS[name][2](path)
        except InputError as error:
            assert str(path.parent) in str(error)
            assert "\n" not in str(error)
            assert len(str(error)) < 1000

    reads_or_refuses()
