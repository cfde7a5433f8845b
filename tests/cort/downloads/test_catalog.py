import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cort.downloads import rehearsal
from cort.downloads.catalog import CATALOG, Tally, difference, load_catalog, problem_with
from cort.system.errors import InputError
from tests.support.common import ROOT

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
    """Address, size and MD5; without ir_datasets, nothing is compared."""
    ir_datasets = pytest.importorskip("ir_datasets")
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


def test_all_files_are_fetched_over_encrypted_connections():
    urls = [url for file in load_catalog().files.values() for url in file.urls]
    assert urls
    assert all(url.startswith("https://") for url in urls)


SUFFIXES = (".zip", ".tar.gz")


def test_every_raw_file_has_a_name_that_tells_its_form():
    files = load_catalog().files.keys() - load_catalog().archives
    # Predicted queries are read as the archives they are.
    files -= {name for name in files if name.startswith(("doc2query/", "doctttttquery/")) and name.endswith(SUFFIXES)}
    # Collections that ir_datasets reads.
    files -= {"msmarco-document/msmarco-docs.trec.gz", "msmarco-passage-v2/msmarco_v2_passage.tar"}
    assert all(name.removesuffix(".gz").endswith((".tsv", ".txt", ".jsonl", ".cbor", ".qrels")) for name in files)


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
    # The same content in chunks.
    tally = Tally(file)
    for start in range(0, len(content), 1_000):
        tally.add(content[start : start + 1_000])
    assert difference(tally, file) is None
    for wrong in (content[:-1] + b"\n\n", content + b"x\n", content[: len(content) // 2]):
        (tmp_path / "wrong").write_bytes(wrong)
        assert problem_with(tmp_path / "wrong", file) is not None


GOOD = {"urls": ["https://x/y"], "size": 1, "md5": "0" * 32}
BROKEN = {
    "no urls": ({"size": 1, "md5": "0" * 32}, "found neither, expected urls, or archive and member"),
    "no checksum": ({"urls": ["https://x/y"], "size": 1}, "found no checksum"),
    "no checksum of what does not check itself": (
        {"urls": ["https://x/y"], "size": 1, "no_checksum": "none is published"},
        "found no_checksum, expected it only for .xz",
    ),
    "no size": ({"urls": ["https://x/y"], "md5": "0" * 32}, "found no size"),
    "short checksum": ({**GOOD, "md5": "00"}, "found the md5 '00', expected 32"),
    "a number": ({**GOOD, "md5": 7}, "found the md5 7, expected 32 hexadecimal digits"),
    "no member": ({"archive": "a/b", "size": 1}, "found neither"),
    "unknown archive": ({"archive": "a/c", "member": "x"}, "found the archive a/c, expected one with urls"),
    "unknown key": ({"url": "https://x/y"}, "found no valid catalogue (KeyError('a/b: url'))"),
    "no lines": ({**GOOD, "lines": 0}, "found lines 0, expected"),
    "a text of urls": ({**GOOD, "urls": "https://x/y"}, "a/b: urls that are not a list of http://"),
    "a file": ({**GOOD, "urls": ["file:///etc/passwd"]}, "a/b: urls that are not a list of http://"),
    "junk": ({**GOOD, "urls": ["http://[x/y", 3]}, "a/b: urls that are not a list of http://"),
    "no mapping": (3, "found no valid catalogue"),
}


@pytest.mark.parametrize(("entry", "words"), BROKEN.values(), ids=BROKEN)
def test_mistakes_in_a_catalogue_are_named(tmp_path, entry, words):
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump({"files": {"a/b": entry}}), "utf-8")
    with pytest.raises(InputError) as error:
        load_catalog(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["plain", "A/b", "a/../b", "a/b/c", "a/.b"])
def test_names_are_a_source_and_a_file(tmp_path, name):
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump({"files": {name: GOOD}}), "utf-8")
    with pytest.raises(InputError, match="expected SOURCE/FILE"):
        load_catalog(path)


def test_invalid_yaml_is_one_line(tmp_path):
    (tmp_path / "catalog.yaml").write_text("files: [", "utf-8")
    with pytest.raises(InputError, match=r"row 1: found no YAML .*, expected a catalogue"):
        load_catalog(tmp_path / "catalog.yaml")


HERE = "http://127.0.0.1:1/a"


def rehearse(folder, *urls):
    files = {"a/b": {"urls": [*urls], "size": 3, "md5": "0" * 32}}
    (folder / rehearsal.FILE).write_text(yaml.safe_dump({"files": files}), "utf-8")


def test_a_catalogue_in_the_working_folder_is_the_one_in_use_and_none_is_shipped(tmp_path, monkeypatch):
    assert not (ROOT / rehearsal.FILE).exists()
    monkeypatch.chdir(tmp_path)
    assert (rehearsal.is_on(), "msmarco/collection.tsv" in load_catalog().files) == (False, True)
    rehearse(tmp_path, HERE)
    assert (rehearsal.is_on(), list(load_catalog().files)) == (True, ["a/b"])
    # One that is asked for is the one meant.
    assert "msmarco/collection.tsv" in load_catalog(CATALOG).files


@pytest.mark.parametrize("url", ["http://example.org/a", "https://127.0.0.1:1/a", "http://127.0.0.1.example.org:1/a"])
def test_a_rehearsal_with_files_from_elsewhere_is_refused(tmp_path, url):
    rehearse(tmp_path, HERE, url)
    with pytest.raises(InputError) as error:
        load_catalog(tmp_path / rehearsal.FILE)
    [line] = str(error.value).splitlines()
    assert f"a/b: found {url!r}, expected http://127.0.0.1:PORT/ in a rehearsal; remove the file" in line


def test_downloads_of_a_rehearsal_are_kept_apart(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from cort.settings import paths; print(paths.KEPT)"
    for kept in ("results/.downloads", "results/.rehearsal"):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == kept
        rehearse(tmp_path, HERE)
