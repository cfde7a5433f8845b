"""A system of BM25 and vectors, written for every engine: the files give what the experiment's own stages give."""

import json
import random
import re
import shutil
import subprocess
import sys

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort import deploy, fuse, index, retrieve
from cort.deployment import folder as writing
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run
from cort.formats.shards import write_shard
from tests.support.common import TEXTS, command_line, contents, write_rows

TARGETS = ["opensearch", "elasticsearch", "pgvector", "parquet"]
DEPTH, DIMENSION, QUERIES = 60, 8, 14
WORDS = [f"{first}{second}" for first in ("ba", "ko", "ri", "lu", "ne") for second in ("sa", "to", "mi", "ga", "du")]
ODD = [*TEXTS, 'tabs\t, "quotes", \\back\\slashes\\ and\r\nlines', "a\u2028line\u0085separator", "{{ braces }} <b>&'"]
# The weights as configured; engines get shares of 1.
WEIGHTS = (1.3, 0.7)


def vectors_of(generator, number):
    vectors = generator.normal(size=(number, DIMENSION)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Passages, queries, vectors in two shards, and the runs of bm25, dense, fused and rrf."""
    path = tmp_path_factory.mktemp("deployed")
    words, generator = random.Random(3), np.random.default_rng(3)  # noqa: S311
    texts = [*ODD, *(" ".join(words.choices(WORDS, k=words.randint(3, 12))) for _ in range(200))]
    texts[-3:] = ["alike sako"] * 3
    ids = ["back\\slash", *(f"d{number}/ö#1" for number in range(1, len(texts)))]
    write_rows(path / "passages.parquet", tables.PASSAGES, zip(ids, texts, strict=True))
    asked = [(f"q{number}", " ".join(words.choices(WORDS, k=4))) for number in range(QUERIES)]
    # BM25 finds nothing for the first query, which the check leaves out.
    asked[0] = ("q0", "nonesuch")
    # And three passages with the same score for the last one that is checked.
    asked[10] = ("q10", "alike")
    write_rows(path / "queries.parquet", tables.QUERIES, asked)
    described = {"model": "m", "dimension": DIMENSION}
    vectors = vectors_of(generator, len(ids))
    for name, part in (("a", slice(0, 90)), ("b", slice(90, None))):
        blocks = [(ids[part], vectors[part])]
        write_shard(path / f"{name}.arrow", blocks, count=len(ids[part]), **described)
    blocks = [([query_id for query_id, _ in asked], vectors_of(generator, QUERIES))]
    write_shard(path / "queries.arrow", blocks, count=QUERIES, **described)
    passages, lucene = path / "passages.parquet", {"memory_mb": 256}
    made(index, "bm25", path / "lucene", passages=passages, **lucene)
    named = {"queries": path / "queries.parquet", "depth": DEPTH, "tag": "bm25"}
    made(retrieve, "bm25", path / "bm25.trec", index=path / "lucene", **named, **lucene)
    named = {"queries": path / "queries.arrow", "depth": DEPTH, "tag": "dense"}
    made(retrieve, "exact", path / "dense.trec", passages=[path / "a.arrow", path / "b.arrow"], **named)
    for method, options in {"linear": {"weights": [*WEIGHTS], "term_based": ["bm25"]}, "rrf": {"k": 7}}.items():
        runs = {"runs": [path / "dense.trec", path / "bm25.trec"], "depth": DEPTH, "tag": method}
        made(fuse, None, path / f"{method}.trec", method=method, **runs, **options)
    return path


def made(stage, command, output, **options):
    assert stage.main([*([command] if command else []), *command_line(options | {"output": output})]) == 0
    return output


def options_for(world, *parts, **changes):
    """Options for a system of these parts, in this order."""
    files = {"bm25": {"bm25": world / "bm25.trec", "k1": 0.9, "b": 0.4}}
    files["dense"] = {"vectors": [world / "a.arrow", world / "b.arrow"], "query_vectors": world / "queries.arrow"}
    options = {"system": "served", "targets": TARGETS, "runs": [world / f"{part}.trec" for part in parts]}
    options |= {name: world / f"{name}.parquet" for name in ("passages", "queries")} | {"depth": DEPTH}
    for part in parts:
        options |= files[part]
    return options | changes


@pytest.fixture
def deployed(stage, world, tmp_path):
    """A function that deploys a system of these parts; its folder."""
    return lambda *parts, **changes: stage("deploy", **options_for(world, *parts, **changes), output=tmp_path / "out")


@pytest.fixture(scope="module")
def fused(world, tmp_path_factory):
    """The deployment of the weighted system."""
    options = options_for(world, "dense", "bm25", method="linear", weights=[*WEIGHTS])
    return made(deploy, None, tmp_path_factory.mktemp("linear") / "served", **options)


def run_check(folder):
    """Run the check as its reader would, who has no part of this project."""
    command = [sys.executable, "-I", str(folder / "check.py")]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout


def read_json(path):
    return json.loads(path.read_text("utf-8"))


def rows_of(folder, target):
    """Ids, texts and vectors of the passages in the files for an engine."""
    if target == "pgvector":
        lines = (folder / "passages.tsv").read_text("utf-8").split("\n")[:-1]
        escaped = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
        ids, texts, vectors = zip(*(line.split("\t") for line in lines), strict=True)
        ids, texts = ([re.sub(r"\\(.)", lambda found: escaped[found[1]], cell) for cell in one] for one in (ids, texts))
        return ids, texts, [json.loads(vector) for vector in vectors]
    if target == "parquet":
        table = pq.read_table(folder / "passages.parquet")
        return [table[name].to_pylist() for name in ("id", "text", "vector")]
    lines = [line for path in sorted(folder.glob("bulk-*")) for line in path.read_bytes().split(b"\n") if line]
    actions, documents = map(json.loads, lines[::2]), [json.loads(line) for line in lines[1::2]]
    ids = [action["index"]["_id"] for action in actions]
    return ids, [document["text"] for document in documents], [document.get("vector") for document in documents]


def stored_vectors(world):
    shards = [pa.ipc.open_file(world / name).read_all()["embedding"] for name in ("a.arrow", "b.arrow")]
    return np.concatenate([shard.combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION) for shard in shards])


@pytest.mark.parametrize("target", TARGETS)
def test_files_of_each_engine_hold_the_passages(world, fused, target):
    ids, texts, vectors = rows_of(fused / target, target)
    passages = tables.read_table(world / "passages.parquet", tables.PASSAGES)
    assert ([*ids], [*texts]) == (passages["doc_id"].to_pylist(), passages["text"].to_pylist())
    assert np.array_equal(np.array(vectors, dtype=np.float32), stored_vectors(world))


def test_parts_of_bulk_requests_are_bounded(fused, deployed, monkeypatch):
    monkeypatch.setattr(writing, "MOST", 5_000)
    folder = deployed("bm25", targets="opensearch") / "opensearch"
    parts = sorted(folder.glob("bulk-*"))
    assert len(parts) > 3
    assert all(part.stat().st_size <= 5_000 and part.read_bytes().endswith(b"\n") for part in parts)
    assert rows_of(folder, "opensearch")[:2] == rows_of(fused / "opensearch", "opensearch")[:2]


def scaled(scores, by_terms=False):
    """By OpenSearch's formula, but that the minimum of a short list by terms is 0."""
    low, high = min(scores.values()), max(scores.values())
    least = 0 if by_terms and len(scores) < DEPTH else low
    return {doc_id: (score - least) / (high - least) if high > low else 1 for doc_id, score in scores.items()}


def test_the_formula_of_opensearch_gives_the_fused_ranking_from_its_files_alone(world, fused):
    ids, _, vectors = rows_of(fused / "opensearch", "opensearch")
    pipeline = read_json(fused / "opensearch/pipeline.json")
    (processor,) = pipeline["phase_results_processors"]
    assert processor["normalization-processor"]["normalization"] == {"technique": "min_max"}
    combination = processor["normalization-processor"]["combination"]
    assert combination["technique"] == "arithmetic_mean"
    weights = combination["parameters"]["weights"]
    # Those of BM25 and of vectors, as the query has them.
    assert weights == pytest.approx([0.35, 0.65])
    query = read_json(fused / "opensearch/query.json")["query"]["hybrid"]
    assert [next(iter(part)) for part in query["queries"]] == ["match", "knn"]
    assert query["pagination_depth"] == query["queries"][1]["knn"]["vector"]["k"] == DEPTH
    expected, asked = read_run(world / "linear.trec").by_query(), read_json(fused / "check.json")["queries"]
    assert [one["query_id"] for one in asked] == [f"q{number}" for number in range(1, 11)]
    for one in asked:
        products = np.array(vectors) @ np.array(one["vector"])
        near = scaled({ids[row]: products[row] for row in np.argsort(-products, kind="stable")[:DEPTH]})
        found = scaled(dict(map(tuple, one["bm25"])), by_terms=True)
        totals = {
            doc_id: (weights[0] * found.get(doc_id, 0) + weights[1] * near.get(doc_id, 0)) / sum(weights)
            for doc_id in found | near
        }
        ranking = sorted(totals, key=lambda doc_id: (-totals[doc_id], doc_id))
        assert ranking[:10] == expected[one["query_id"]][:10] == [doc_id for doc_id, _ in one["expected"]]


@pytest.fixture
def copied(fused, tmp_path):
    """A copy elsewhere, to be changed."""
    return shutil.copytree(fused, tmp_path / "elsewhere")


def test_the_check_passes_in_a_copied_folder(copied):
    assert run_check(copied) == (0, "".join(f"{target}: the expected results\n" for target in TARGETS))


INDEX_ADDITIONS = {
    "opensearch": ("pipeline.json", "[0.35, 0.65]", "[0.36, 0.64]"),
    "elasticsearch": ("query.json", '"weight": 0.65', '"weight": 0.66'),
    "pgvector": ("query.sql", "VALUES (0.35,", "VALUES (0.34,"),
    "parquet": ("fusion.json", "[0.35, 0.65]", "[0.65, 0.35]"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_the_check_fails_with_other_weights(copied, target):
    file, before, after = INDEX_ADDITIONS[target]
    path = copied / target / file
    text = path.read_text("utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), "utf-8")
    status, output = run_check(copied)
    assert status == 1
    faults = [line for line in output.splitlines() if "the expected results" not in line]
    assert [re.sub(r" '[^']*'", "", fault) for fault in faults] == [f"{target}: other results for the query, first"]


def test_the_check_fails_without_a_passage_or_with_another_vector(copied):
    top = read_json(copied / "check.json")["queries"][3]["expected"][0][0]
    path = copied / "pgvector/passages.tsv"
    lines = [line for line in path.read_text("utf-8").split("\n") if not line.startswith(f"{top}\t")]
    path.write_text("\n".join(lines), "utf-8", newline="\n")
    table = pq.read_table(copied / "parquet/passages.parquet")
    row = table["id"].to_pylist().index(top)
    turned = pa.concat_tables([table.slice(0, row), table.slice(row + 1), table.slice(row, 1)])
    turned = turned.set_column(0, "id", table["id"])
    pq.write_table(turned, copied / "parquet/passages.parquet")
    status, output = run_check(copied)
    assert status == 1
    assert [line.split(":")[0] for line in output.splitlines() if "other results" in line] == ["pgvector", "parquet"]


def test_passages_that_bm25_scores_alike_are_merged_alike(world, fused):
    """As in engines, which do not lower ties, each adds the weight of BM25, 0.35."""
    asked = read_json(fused / "check.json")["queries"][9]
    assert (asked["query_id"], len(asked["bm25"]), len({score for _, score in asked["bm25"]})) == ("q10", 3, 1)
    merged = read_run(world / "linear.trec").by_query().ranking("q10")
    scores = dict(zip(merged.doc_ids, merged.scores.tolist(), strict=True))
    assert min(scores[doc_id] for doc_id, _ in asked["bm25"]) >= 0.35 * sum(WEIGHTS) - 1e-6


def test_retrievers_of_elasticsearch(fused):
    linear = read_json(fused / "elasticsearch/query.json")["retriever"]["linear"]
    assert linear["rank_window_size"] == DEPTH
    parts = [next(iter(part["retriever"])) for part in linear["retrievers"]]
    assert (parts, {part["normalizer"] for part in linear["retrievers"]}) == (["standard", "knn"], {"minmax"})


def test_faiss_as_the_readme_shows_it(world, fused, monkeypatch):
    code = re.search(r"```python\n(import json\nimport faiss.*?)```", (fused / "parquet/README.md").read_text(), re.S)
    monkeypatch.chdir(fused / "parquet")
    shown = {}
    exec(code[1], shown)  # noqa: S102
    assert shown["faiss"] is faiss
    assert shown["doc_ids"] == read_run(world / "dense.trec").by_query()["q1"][:10]


def test_reciprocal_ranks(world, deployed):
    output = deployed("bm25", "dense", method="rrf", k=7)
    assert run_check(output)[0] == 0
    (processor,) = read_json(output / "opensearch/pipeline.json")["phase_results_processors"]
    assert processor == {"score-ranker-processor": {"combination": {"technique": "rrf", "rank_constant": 7}}}
    assert read_json(output / "elasticsearch/query.json")["retriever"]["rrf"]["rank_constant"] == 7
    assert_results(output, world / "rrf.trec")
    path = output / "pgvector/query.sql"
    path.write_text(path.read_text("utf-8").replace("/ (7 +", "/ (99 +"), "utf-8")
    assert run_check(output)[0] == 1


def assert_results(folder, run):
    """The check expects the results of a run; its queries."""
    found, expected = read_json(folder / "check.json")["queries"], read_run(run).by_query()
    for one in found:
        assert [doc_id for doc_id, _ in one["expected"]] == expected[one["query_id"]][:10]
    return [one["query_id"] for one in found]


@pytest.mark.parametrize("part", ["bm25", "dense"])
def test_a_system_of_one_part(world, deployed, part):
    output = deployed(part, aggregate="max")
    assert run_check(output)[0] == 0
    assert not (output / "opensearch/pipeline.json").exists()
    assert not (output / "parquet/fusion.json").exists()
    assert "The experiment ranks documents" in (output / "README.md").read_text("utf-8")
    fields = read_json(output / "opensearch/index.json")["mappings"]["properties"]
    assert fields.keys() == ({"text"} if part == "bm25" else {"text", "vector"})
    assert assert_results(output, world / f"{part}.trec")


@pytest.mark.parametrize("parts", [["bm25"], ["dense", "bm25"]])
def test_a_part_may_answer_no_query(world, deployed, tmp_path, parts):
    """The check then has the queries that the other part answers, or none."""
    empty = tmp_path / "empty.trec"
    empty.write_bytes(b"")
    runs = [empty if part == "bm25" else world / f"{part}.trec" for part in parts]
    method = {"method": "linear", "weights": [*WEIGHTS]} if len(parts) > 1 else {}
    output = deployed(*parts, runs=runs, bm25=empty, **method)
    assert assert_results(output, world / "dense.trec") == [f"q{number}" for number in range(10) if method]
    said = "the expected results" if method else "no query to check"
    assert run_check(output) == (0, "".join(f"{target}: {said}\n" for target in TARGETS))


def test_tuned_weights_and_parameters(deployed, tmp_path, fused):
    grid = [{"weights": [0.65, 0.35], "value": 0.5}]
    tuned = {"measure": "RR@10", "relevance_level": 1, "queries": 3, "parts": ["dense", "bm25"], "grid": grid}
    write_artifact(tmp_path / "weights.json", tuned | {"weights": [0.65, 0.35], "value": 0.5, "best": 0.5})
    write_artifact(tmp_path / "parameters.json", {"k1": 1.25, "b": 0.125})
    files = {"tuned": tmp_path / "weights.json", "parameters": tmp_path / "parameters.json"}
    output = deployed("dense", "bm25", method="linear", **files)
    similarity = read_json(output / "opensearch/index.json")["settings"]["index"]["similarity"]
    assert similarity == {"tuned_bm25": {"type": "BM25", "k1": 1.25, "b": 0.125}}
    text = read_json(output / "elasticsearch/index.json")["mappings"]["properties"]["text"]
    assert text["similarity"] == "tuned_bm25"
    different = {name for name, content in contents(output).items() if contents(fused)[name] != content}
    # All others are the same, to the byte.
    assert different == {"README.md", "opensearch/index.json", "elasticsearch/index.json"}


@pytest.mark.parametrize(
    ("language", "analyzer", "postgres", "said"),
    [
        ("de", "german", "german", "The analyzer `german` is the one of Lucene that Anserini has"),
        ("ja", "kuromoji", "simple", "that Anserini has, in the plugin `analysis-kuromoji`"),
        ("te", "standard", "simple", "**The analyzer `standard` is not Anserini's**"),
    ],
)
def test_engines_analyse_the_language_of_the_index(deployed, language, analyzer, postgres, said):
    output = deployed("bm25", language=language)
    for target in TARGETS[:2]:
        made = read_json(output / target / "index.json")
        assert made["mappings"]["properties"]["text"]["analyzer"] == analyzer
        assert made["settings"]["index"].keys() == {"similarity", "number_of_shards"}
        assert said in (output / target / "README.md").read_text("utf-8")
    for file in ("schema.sql", "query.sql"):
        assert f"('{postgres}'," in (output / "pgvector" / file).read_text("utf-8")


def test_vectors_of_other_lengths_are_compared_by_inner_products(world, fused, deployed, tmp_path):
    def vector_of(folder, target):
        return read_json(folder / target / "index.json")["mappings"]["properties"]["vector"]

    assert vector_of(fused, "opensearch")["method"]["space_type"] == "cosinesimil"
    ids = rows_of(fused / "opensearch", "opensearch")[0]
    blocks = [(ids, 2 * stored_vectors(world))]
    write_shard(tmp_path / "all.arrow", blocks, count=len(ids), model="m", dimension=DIMENSION, storage="fp16")
    output = deployed("dense", vectors=tmp_path / "all.arrow", targets=TARGETS[:2])
    assert vector_of(output, "opensearch")["method"]["space_type"] == "innerproduct"
    assert vector_of(output, "elasticsearch")["similarity"] == "max_inner_product"


def test_ids_that_engines_refuse_are_refused_unless_there_are_other_targets(refused, deployed, tmp_path, world, capsys):
    ids = [f"{'x' * 500}ö{number:012d}" for number in range(3)]
    passages = write_rows(tmp_path / "passages.parquet", tables.PASSAGES, [(doc_id, "text") for doc_id in ids])
    engines = options_for(world, "bm25", passages=passages, targets=TARGETS[:2])
    assert "expected at most 512 bytes" in refused("deploy", **engines, output=tmp_path / "out")
    output = deployed("bm25", passages=passages)
    assert {path.name for path in output.iterdir() if path.is_dir()} == {"pgvector", "parquet"}
    assert "opensearch is not written: found the id 'xxx" in capsys.readouterr().err
    assert "more than 512 bytes: opensearch, elasticsearch." in (output / "README.md").read_text("utf-8")
    assert set(run_check(output)[1].split()) >= {"pgvector:", "parquet:"}


def test_zero_vectors_are_named_and_the_others_keep_the_cosine(world, fused, deployed, tmp_path):
    """Engines refuse the cosine of a zero vector, so such passages are indexed without one."""
    ids, vectors = rows_of(fused / "opensearch", "opensearch")[0], stored_vectors(world)
    found = {doc_id for ranking in read_run(world / "dense.trec") for doc_id in ranking.doc_ids[:10]}
    zero = next(row for row, doc_id in enumerate(ids) if doc_id not in found)
    vectors[zero] = 0
    write_shard(tmp_path / "all.arrow", [(ids, vectors)], count=len(ids), model="m", dimension=DIMENSION)
    output = deployed("dense", vectors=tmp_path / "all.arrow")
    similarity = read_json(output / "elasticsearch/index.json")["mappings"]["properties"]["vector"]["similarity"]
    assert similarity == "cosine"
    for target in TARGETS[:2]:
        assert [row for row, one in enumerate(rows_of(output / target, target)[2]) if one is None] == [zero]
        assert f"indexed without: {ids[zero]}." in (output / target / "README.md").read_text("utf-8")
    assert not any(rows_of(output / "pgvector", "pgvector")[2][zero])
    assert run_check(output)[0] == 0


def test_where_most_rankings_of_bm25_are_short_opensearch_gets_zero_as_their_minimum(world, deployed):
    output = deployed("dense", "bm25", method="linear", weights=[*WEIGHTS], depth=250)
    (processor,) = read_json(output / "opensearch/pipeline.json")["phase_results_processors"]
    bounds = processor["normalization-processor"]["normalization"]["parameters"]["lower_bounds"]
    # In the order of the queries: BM25, then vectors.
    assert bounds == [{"mode": "apply", "min_score": 0.0}, {"mode": "ignore"}]
    assert "OpenSearch 3.0 or newer" in (output / "opensearch/README.md").read_text("utf-8")
    assert "CASE WHEN count(*) OVER () < 250 THEN 0" in (output / "pgvector/query.sql").read_text("utf-8")


def test_long_passages_are_indexed_in_part_by_postgresql(world, deployed, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(writing, "ROWS", 1)
    texts = ["word " * 50_000, "ö" * writing.INDEXED]
    passages = write_rows(tmp_path / "passages.parquet", tables.PASSAGES, zip("ab", texts, strict=True))
    output = deployed("bm25", passages=passages, targets="pgvector") / "pgvector"
    assert "left(text, 200000)" in (output / "schema.sql").read_text("utf-8")
    assert "PostgreSQL indexes only the first 200000 characters of passages with more: 1" in capsys.readouterr().err
    assert "Of 1 passage, the first 200000 characters" in (output / "README.md").read_text("utf-8")
    assert (output / "passages.tsv").read_text("utf-8").splitlines()[1] == f"b\t{texts[1]}"


def test_a_query_whose_results_bm25_scores_alike_is_checked(world, deployed, tmp_path):
    """It is the eleventh; older versions of an engine get it wrong."""
    texts = tables.read_queries(world / "queries.parquet")
    last = {"q10": texts.pop("q10")}
    queries = write_rows(tmp_path / "queries.parquet", tables.QUERIES, (texts | last).items())
    output = deployed("dense", "bm25", method="linear", weights=[*WEIGHTS], queries=queries, targets="parquet")
    asked = read_json(output / "check.json")["queries"]
    assert [one["query_id"] for one in asked] == [*(f"q{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11)), "q10"]
    assert len({score for _, score in asked[-1]["bm25"]}) == 1 < len(asked[-1]["bm25"])
    assert run_check(output)[0] == 0
