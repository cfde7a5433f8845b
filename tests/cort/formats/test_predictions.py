import itertools

import pytest

from cort.formats.expansions import iter_predictions
from cort.system.errors import InputError
from tests.support.archives import tar_of, zip_of
from tests.support.common import write_file

LINES = ["who is a", "", "where is c  when is c"]


def write_samples(path, samples, **changed):
    """Write query `s<sample>p<part>l<line>` for each line; `changed` replaces the text of a file, None drops it."""
    files = [("predictions/", "")]
    for sample, part in itertools.product(range(samples), range(2)):
        text = "".join(f"s{sample}p{part}l{line}\n" for line in range(2))
        name = f"predicted_queries_topk_sample{sample:03d}.txt{part:03d}-1004000"
        files.append((name, changed.get(f"s{sample}p{part}", text)))
    path.write_bytes(zip_of(*((name, text) for name, text in files if text is not None)))
    return path


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".tar.gz"])
def test_a_line_has_all_queries_of_a_passage(tmp_path, suffix):
    path, text = tmp_path / f"pred-test_topk10{suffix}", "\n".join(LINES) + "\n"
    if suffix == ".tar.gz":
        path.write_bytes(tar_of(("pred-test_topk10.txt", text)))
    else:
        write_file(path, text)
    assert list(iter_predictions(path)) == [["who is a"], [], ["where is c  when is c"]]


@pytest.mark.parametrize("samples", [1, 2, 12])
def test_the_first_samples_of_each_part_stand_side_by_side(tmp_path, samples):
    path = write_samples(tmp_path / "samples.zip", 12)
    expected = [[f"s{s}p{p}l{n}" for s in range(samples)] for p in range(2) for n in range(2)]
    assert list(iter_predictions(path, samples)) == expected


def test_an_empty_prediction_is_none(tmp_path):
    path = write_samples(tmp_path / "samples.zip", 2, s1p0="\n  \n")
    assert list(iter_predictions(path, 2))[:2] == [["s0p0l0"], ["s0p0l1"]]


@pytest.mark.parametrize(
    ("samples", "changed", "words"),
    [
        (4, {}, "found 3 samples, expected at least 4 of each part, in files named"),
        (3, {"s1p1": None}, "found 2 samples, expected at least 3 of each part"),
        (2, {"s1p1": "one\n"}, "found a damaged archive (zip() argument 2 is shorter"),
        (2, {"s1p1": "1\n2\n3\n"}, "found a damaged archive (zip() argument 2 is longer"),
        (2, {"s0p1": b"1\n\xff\n"}, "sample000.txt001-1004000: row 2: found invalid UTF-8 at byte"),
    ],
)
def test_samples_that_do_not_fit_together_are_refused(tmp_path, samples, changed, words):
    path = write_samples(tmp_path / "samples.zip", 3, **changed)
    with pytest.raises(InputError, match=r"^.*samples\.zip: .*$") as error:
        list(iter_predictions(path, samples))
    assert words in str(error.value)


TAR, SAMPLE = tar_of(("p", "1\n")), ("x_sample0.txt0", "1\n")
DAMAGED = {
    "two files": ("p.tar.gz", tar_of(("a", "1\n"), ("b", "2\n")), "found a second file, 'b', expected one file"),
    "half a tar": ("p.tar.gz", TAR[: len(TAR) // 2], "found a damaged archive"),
    "half a zip": ("p.zip", zip_of(SAMPLE)[:60], "found a damaged archive"),
    "checksum": ("p.tar.gz", TAR[:-8] + bytes([TAR[-8] ^ 1]) + TAR[-7:], "found a damaged archive (CRC check failed"),
    "cut": ("p.tar.gz", TAR[:-8], "found a damaged archive (Compressed file ended"),
    "UTF-16": ("p.tar.gz", tar_of(("p", "1".encode("utf-16"))), "p.tar.gz: p: found UTF-16 text, expected UTF-8 text"),
}


@pytest.mark.parametrize(("name", "content", "words"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_and_ambiguous_archives_are_refused(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        list(iter_predictions(tmp_path / name, 1 if name == "p.zip" else None))
    assert words in str(error.value)


def test_files_that_macos_adds_and_byte_order_marks_are_ignored(tmp_path):
    files = {"__MACOSX/d/._p": b"\0\5", "d/._p": b"\0\5", "d/.DS_Store": b"\0\0", "d/p": "\ufeff1\r\n".encode()}
    (tmp_path / "p.tar.gz").write_bytes(tar_of(*files.items()))
    assert list(iter_predictions(tmp_path / "p.tar.gz")) == [["1"]]
    names = ["__MACOSX/._x_sample0.txt0", "d/._x_sample1.txt0", "d/x_sample2.txt0"]
    texts = [b"\0\5", b"\0\5", "\ufeff1\r\n".encode()]
    (tmp_path / "p.zip").write_bytes(zip_of(*zip(names, texts, strict=True)))
    assert list(iter_predictions(tmp_path / "p.zip", 1)) == [["1"]]
