"""Properties of readers and writers: any bytes are read or refused in one line, and what is written is read back.

The examples are few and always the same, because `make test` must be fast. For long runs, use
`FUZZ_EXAMPLES=100000 FUZZ_SEED=7 .venv/bin/python -m pytest -n 0 tests/cort/formats/test_any_bytes.py`.
"""

import gzip
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from cort.formats import expansions, lines, shards, tables
from cort.formats.artifacts import read_artifact, read_json, write_artifact
from cort.formats.checkpoints import FinishedBlocks
from cort.formats.judgements import iter_qrels, read_judged
from cort.formats.passages import iter_passage_batches, iter_passages
from cort.formats.records import Ranking
from cort.formats.runs import read_candidates, read_run, write_run
from cort.formats.topics import iter_queries
from cort.formats.yaml_files import read_yaml
from cort.import_run import read_published
from cort.reporting.published import read_published as read_numbers
from cort.reporting.results import read_jobs, read_origin
from cort.retrieval.lucene import read_parameters
from cort.runtime.errors import InputError
from tests.support.archives import tar_of, zip_of
from tests.support.common import write_file

LONG = "FUZZ_EXAMPLES" in os.environ


def fuzzed(test):
    """Try few examples, always the same, or as many as the environment asks for."""
    examples = {"max_examples": int(os.environ.get("FUZZ_EXAMPLES", 25)), "derandomize": not LONG, "database": None}
    few = settings(**examples, deadline=None, suppress_health_check=list(HealthCheck))
    return few(seed(int(os.environ.get("FUZZ_SEED", "1")))(test) if LONG else test)


@dataclass(frozen=True)
class Part:
    text: str
    numbers: list[float]
    best: int | None


@dataclass(frozen=True)
class Record:
    name: str
    good: bool
    parts: dict[str, Part]


TOKEN_ORIGIN = shards.Origin(dimension=2, passage_length=9, similarity="dot", model="m")


def all_tokens(path):
    cache = shards.Tokens(path)
    return [cache[row].tolist() for row in range(len(cache))], cache.ids.to_pylist()


def all_vectors(path):
    [opened] = shards.open_shards([path])
    return opened.table["id"].to_pylist(), [block.tolist() for block in opened.blocks()]


def all_token_vectors(path):
    [opened] = shards.open_shards([path], shards.TOKEN_VECTORS)
    return opened.origin, [block.tolist() for block in opened.blocks()]


RECORD = Record("é", True, {"a": Part("x", [1.5, -2.0], None), "b": Part("", [], 3)})
PASSAGES = [("d1", "one two"), ("d2", "é\u2028 x"), ("d3", '"')]
RANKINGS = [Ranking("q1", ["d2", "d1"], np.array([2.5, -1.0])), Ranking("q2", ["d1"], np.array([0.0]))]
QUOTED = {"query_id": "q", "text": "A text of more than 20 letters", "relevance": 1}
QUOTABLE = {"doc_id": ["d"], "text": ["A text of more than 20 letters and more"]}
IDS = pa.array(["a", "b", "é"])
EPOCHS = pa.table([[0, 0, 1]], schema=tables.EPOCHS)
TEXTS = pa.table([["a", "b"], ["x", "y"]], schema=tables.PASSAGES)
TOKENS = [(IDS, [[1, 2], [], [3]]), (IDS, [[], [5], [6]])]
GRADES = pa.table([["q", "q"], ["d", "e"], [1, -2]], schema=tables.QRELS)
VECTORS = np.arange(6, dtype=np.float32).reshape(3, 2)


def _shard(path):
    shards.write_shard(path, [(IDS, VECTORS)], model="m", dimension=2, count=3, storage="fp16")


def _token_shard(path):
    batch = shards.token_vector_batch(IDS, VECTORS, np.array([1, 0, 2]))
    shards.write_token_shard(path, [batch], TOKEN_ORIGIN, 3)


def _written(write, *arguments):
    return lambda path: write(path, *arguments)


def _text(text):
    return _written(write_file, text)


def _json(value):
    return _text(json.dumps(value))


def _bytes(content):
    return _written(Path.write_bytes, content)


def _block(path):
    blocks = FinishedBlocks(path.parent, lambda: "one", every=0)
    list(blocks.keeping(blocks.each([(0, 3)], lambda value: pa.record_batch({"value": [value]}))))


def _listed(reader, *arguments):
    return lambda path: list(reader(path, *arguments))


def _alike(fast, slow):
    """Check that two readers return the same records of a file, or raise the same error."""
    assert _outcome(fast) == _outcome(slow)


def _outcome(read):
    try:
        return read()
    except InputError as error:
        return str(error)


def _passages_alike(path):
    def in_blocks():
        batches = list(iter_passage_batches(path, block_bytes=64))
        return pa.Table.from_batches(batches, tables.PASSAGES).to_pylist()

    names = tables.PASSAGES.names
    _alike(in_blocks, lambda: [dict(zip(names, passage, strict=True)) for _, passage in iter_passages(path)])


def _run_alike(path):
    def read(parse_block=lines.parse_block):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "parse_block", parse_block)
            return [(query_id, doc_ids, scores.tolist()) for query_id, doc_ids, scores in read_run(path)]

    _alike(read, lambda: read(lambda *_: None))


def _yaml(path):
    try:
        return read_yaml(path, "a config")
    except InputError as error:
        # All mistakes of a config are reported together, one per line.
        assert all(line.startswith(str(path)) for line in str(error).splitlines())
        raise InputError(str(error).splitlines()[0]) from None


TAR = tar_of(("predictions.txt", "what is it\n\nhow\n"))
SAMPLES = zip_of(*((f"x_sample{n}.txt{part}-10", f"what {n}\nhow\n") for n in (0, 1) for part in (0, 1)))
TSV = "".join(f"{doc_id}\t{text}\n" for doc_id, text in PASSAGES)
JSONL = "".join(json.dumps({"_id": doc_id, "title": "t", "text": text}) + "\n" for doc_id, text in PASSAGES)


DOCUMENTS = "<DOC>\n<DOCNO>1</DOCNO>\n<TITLE>t</TITLE>\n<TEXT>a &amp; b</TEXT>\n</DOC>\n"
SGML = "<top>\n<num> Number: 1\n<title> a b\n\n<desc> Description:\nc\n</top>\n<top>\n<num> 2 <title> x\n"
SMART = ".I 1\n.T\na\n.W\nb\n.I 2\n.W\nc\n"
TOPICS = "enwiki:a/b 0 d1 1\nenwiki:a%20c Q0 d2 1\n"
QRELS = "q1 0 d1 1\nq2\tQ0\td2\t-3\n"


def _read_judged(path):
    return read_judged(path, [pa.record_batch(QUOTABLE)], None)


ORIGIN = {
    "code": {"version": "1", "commit": "c", "modified": False},
    "software": {"packages": {"torch": "2"}, "system": "s", "python": "3", "java": None},
    "hardware": {"processor": "p", "cores": 2, "memory_mb": 5, "gpus": []},
    "written": "today",
    "inputs": [{"path": "a", "bytes": 2, "sha256": "e"}],
}
NUMBERS = "paper,table,row,column,value,system,split,measure,candidates,note\na,b,c,d,.5,bm25,dev,AP,,\n"
TABLE = _written(tables.write_table, GRADES)
# The name of a file, a function that writes a good one, and the reader.
READERS = {
    "lines": ("x.txt", _text(TSV), _listed(lines.iter_lines)),
    "packed lines": ("x.gz", _text(TSV), _listed(lines.iter_lines)),
    "passages, tsv": ("c.tsv", _text(TSV), _passages_alike),
    "passages, jsonl": ("c.jsonl", _text(JSONL), _listed(iter_passage_batches)),
    "passages, table": ("c.csv", _text("_id,title,text\n1,t,x\n"), _listed(iter_passage_batches)),
    "passages, Parquet": ("c", _written(tables.write_table, TEXTS), _listed(iter_passage_batches)),
    "passages, TREC": ("c", _text(DOCUMENTS), _listed(iter_passage_batches)),
    "passages, SMART": ("c", _text(SMART), _listed(iter_passage_batches)),
    "topics, TREC": ("t", _text(SGML), _listed(iter_queries)),
    "topics, SMART": ("t", _text(SMART), _listed(iter_queries)),
    "qrels, JSON": ("q.jsonl", _json({"query-id": "q", "corpus-id": "d", "score": 1}), _listed(iter_qrels)),
    "passages, packed": ("c.txt.gz", _text(TSV), _listed(iter_passage_batches)),
    "predictions": ("p.txt", _text("what is it\n\nhow é\n"), _listed(expansions.iter_predictions)),
    "predictions, packed": ("p.txt.gz", _text("what is it\n\nhow é\n"), _listed(expansions.iter_predictions)),
    "predictions, tar": ("p.tar.gz", _bytes(TAR), _listed(expansions.iter_predictions)),
    "predictions, zip": ("p.zip", _bytes(SAMPLES), _listed(expansions.iter_predictions, 2)),
    "YAML": ("c.yaml", _text("a: [1, {b: 'é'}]\nc: &x {d: 1e3}\ne: *x\n"), _yaml),
    "topics": ("t.qrels", _text(TOPICS), _listed(iter_queries)),
    "queries": ("q.txt", _text(TSV), _listed(iter_queries)),
    "queries, jsonl": ("q.jsonl", _text(JSONL), _listed(iter_queries)),
    "qrels": ("q.txt", _text(QRELS), _listed(iter_qrels)),
    "qrels of BEIR": ("q.tsv", _text("query-id\tcorpus-id\tscore\nq\td\t1\n"), _listed(iter_qrels)),
    "quotations": ("q.jsonl", _json(QUOTED), _read_judged),
    "run": ("r.trec", _written(write_run, RANKINGS, "t"), _run_alike),
    "candidates": ("c.tsv", _text("q\td\twhat is\ta b\n"), read_candidates),
    "published run": ("r.tsv", _text("q\td\t1\nq\te\t2\n"), read_published),
    "published ranking": ("r.tsv", _text("q\td\t1\t2.5\nq\te\t2\t-1\n"), read_published),
    "published candidates": ("r.tsv", _text("q\td\twhat is\ta b\n"), read_published),
    "table": ("t.parquet", TABLE, lambda path: tables.read_table(path, tables.QRELS).to_pylist()),
    "batches of a table": ("t.parquet", TABLE, _listed(tables.iter_batches, tables.QRELS)),
    "rows of a table": ("t.parquet", TABLE, lambda path: tables.count_rows(path, tables.QRELS)),
    "columns of a table": ("t.parquet", TABLE, lambda path: tables.has_column(path, "doc_id")),
    "epochs": ("e.parquet", _written(tables.write_table, EPOCHS), tables.count_epochs),
    "tokens": ("t.arrow", _written(shards.write_tokens, TOKENS, "f"), all_tokens),
    "embeddings": ("e.arrow", _shard, all_vectors),
    "token embeddings": ("e.arrow", _token_shard, all_token_vectors),
    "block": ("blocks-0-0.arrow", _block, _block),
    "artifact": ("a.json", _written(write_artifact, RECORD), lambda path: read_artifact(path, Record)),
    "JSON": ("a.json", _json([1, {"a": None}]), lambda path: read_json(path).items()),
    "origin": ("p.json", _json(ORIGIN), read_origin),
    "numbers": ("n.csv", _text(NUMBERS), lambda path: read_numbers([path])),
    "parameters": ("b.json", _json({"k1": 0.9, "b": 0.4}), read_parameters),
    "benchmark": ("b.tsv", _text("s\tmax_rss\n1.5\t-\n2\t300\n"), lambda path: read_jobs(path.parent)),
}
# What is put into files: pieces that have a meaning in some format, and any bytes.
PIECES = [
    *(b"\t", b"\n", b"\r", b"\r\n", b" ", b'"', b"{", b"[", b"}", b"\\", b"\x00", b"\xff", b"\xef\xbb\xbf"),
    *(b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"ARROW1", b"nan", b"inf", b"1e999", b"1_0", b"-1", b"null", b"true"),
    *(b"99999999999999999999", *map(str.encode, ("\u00a0", "\u200b", "\u2028", "٣", "\U000e0001", "id\ttext\n"))),
]
PIECE = st.one_of(st.sampled_from(PIECES), st.binary(max_size=9))
NUMBER = st.integers(0, 1 << 16)
CHANGES = st.lists(st.tuples(st.sampled_from(["flip", "cut", "insert", "swap"]), NUMBER, NUMBER, PIECE), max_size=4)


def changed(data, changes):
    """Flip a bit, cut out a part or the end, insert a piece, or swap two parts."""
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
    """Write a good file for every reader, each in its own folder."""
    folder, files = tmp_path_factory.mktemp("samples"), {}
    for number, (name, (file, write, _)) in enumerate(READERS.items()):
        path = folder / str(number) / file
        path.parent.mkdir()
        write(path)
        files[name] = path, path.read_bytes()
    return files


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_read_or_refused_in_one_line(name, samples):
    path, good = samples[name]
    READERS[name][2](path)  # The good file is read.
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


WORD = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zs", "Zl", "Zp", "Cs"]), min_size=1)
LINE = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n\x00"), max_size=20).map(lambda text: f"x{text}y")


def round_trip(write, read):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.tsv"
        write(path)
        return read(path)


@fuzzed
@given(st.dictionaries(WORD, LINE, min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_texts_come_back(texts, end):
    lines = "".join(f"{doc_id}\t{text}{end}" for doc_id, text in texts.items())
    expected = list(texts.items())

    def write(path):
        path.write_bytes(lines.encode())

    def passages(path):
        return [tuple(row.values()) for batch in iter_passage_batches(path) for row in batch.to_pylist()]

    assert round_trip(write, lambda path: [query for _, query in iter_queries(path)]) == expected
    assert round_trip(write, passages) == expected
