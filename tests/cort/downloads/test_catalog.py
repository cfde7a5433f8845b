import json
import re
from pathlib import Path

import pytest

from cort.downloads.catalog import load_catalog, problem_with

# Copies of published files by the catalogue's name.
COPIES = {
    "msmarco/queries.dev.small.tsv": "queries.dev.small.tsv",
    "msmarco/queries.eval.small.tsv": "queries.eval.small.tsv",
    "msmarco/qrels.dev.small.tsv": "qrels.dev.small.tsv",
    "trec-dl/qrels.2019.txt": "qrels.dl19-passage.txt",
    "trec-dl/qrels.2020.txt": "qrels.dl20-passage.txt",
}


def test_counts_are_those_of_the_papers():
    counts = {name: file.lines for name, file in load_catalog().files.items()}
    assert counts["msmarco/collection.tsv"] == 8_841_823
    assert counts["msmarco/queries.dev.small.tsv"] == 6_980
    assert counts["msmarco/qrels.dev.small.tsv"] == 7_437
    assert counts["msmarco/qrels.train.tsv"] == 532_761
    assert counts["msmarco/top1000.dev.tsv"] == 6_668_967
    # All queries there are.
    assert sum(counts[f"msmarco/queries.{split}.tsv"] for split in ("train", "dev", "eval")) == 1_010_916


def test_facts_of_larger_collections_are_those_of_ir_datasets():
    """Address, size and MD5."""
    import ir_datasets

    folder = Path(ir_datasets.__file__).parent / "etc"
    known = [*_downloads(json.loads((folder / "downloads.json").read_text("utf-8")))]
    known = {one["url"]: (one["size_hint"], one["expected_md5"]) for one in known if "size_hint" in one}
    larger = re.compile(r"msmarco-|trec-dl/(.*202[123]|qrels\.docs)")
    files = [file for name, file in load_catalog().files.items() if larger.match(name)]
    assert len(files) == 21
    assert [(file.size, file.md5) for file in files] == [known[file.urls[0]] for file in files]
    counts = json.loads((folder / "metadata.json").read_text("utf-8"))
    for source in ("msmarco-document", "msmarco-passage-v2"):
        (collection,) = [file for file in files if file.records and file.name.startswith(f"{source}/")]
        assert collection.records == counts[source]["docs"]["count"]
        for file in files:
            if file.lines and file.name.startswith(f"{source}/"):
                split = file.name.split(".")[1]
                assert file.lines == counts[f"{source}/{split}"]["queries"]["count"]


def _downloads(tree):
    for value in tree.values():
        if isinstance(value, dict):
            yield from [value] if "url" in value else _downloads(value)


SUMS = {"md5": "[0-9a-f]{32}", "sha256": "[0-9a-f]{64}"}


def test_entries_of_the_catalogue_are_complete():
    catalog = load_catalog()
    for file in catalog.files.values():
        assert re.fullmatch(r"[a-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*", file.name)
        assert bool(file.urls) != bool(file.archive) and bool(file.archive) == bool(file.member), file.name
        assert all(re.fullmatch(r"https://[A-Za-z0-9.-]+/[!-~]*", url) for url in file.urls), file.name
        assert not file.archive or catalog.files[file.archive].urls, file.name
        if file.urls:
            # Only .xz checks itself.
            known = file.md5 or file.sha256 or (file.no_checksum and file.name.endswith(".xz"))
            assert file.about and known, file.name
        sums = {name: getattr(file, name) for name in SUMS}
        assert all(value is None or re.fullmatch(SUMS[name], value) for name, value in sums.items()), file.name
        numbers = (file.bytes, file.size, file.lines, file.records)
        assert all(value is None or (isinstance(value, int) and value > 0) for value in numbers), file.name
    assert all(isinstance(value, str) for host in catalog.headers.values() for value in host.values())


def test_every_raw_file_has_a_name_that_tells_its_form():
    files = load_catalog().files.keys() - load_catalog().archives
    # Predicted queries are read as the archives they are, collections by ir_datasets.
    archives = r"doc.*query/.*\.(zip|tar\.gz)|msmarco-document/msmarco-docs\.trec\.gz"
    archives += r"|msmarco-passage-v2/msmarco_v2_passage\.tar|trec-car/paragraphCorpus\.v2\.0\.tar\.xz"
    named = re.compile(rf"{archives}|.*\.(tsv|txt|jsonl|qrels)(\.gz)?")
    assert [name for name in files if not named.fullmatch(name)] == []


def shared(name):
    for parent in Path(__file__).resolve().parents:
        path = parent / "shared" / "data" / "msmarco-meta" / COPIES[name]
        if path.exists():
            return path
    return pytest.skip("no copy of the published file here")


@pytest.mark.parametrize("name", COPIES)
def test_checksums_and_counts_hold_for_the_published_files(name, tmp_path):
    file, content = load_catalog().find(name), shared(name).read_bytes()
    assert problem_with(shared(name), file) is None
    for wrong in (content[:-1] + b"\n\n", content + b"x\n", content[: len(content) // 2]):
        (tmp_path / "wrong").write_bytes(wrong)
        assert problem_with(tmp_path / "wrong", file) is not None
