import itertools

import pytest

from cort.formats.expansions import iter_predictions
from tests.support.archives import zip_of


def write_samples(path, samples, **changed):
    """Write query `s<sample>p<part>l<line>` for each line; `changed` replaces the text of a file, None drops it."""
    files = [("predictions/", "")]
    for sample, part in itertools.product(range(samples), range(2)):
        text = "".join(f"s{sample}p{part}l{line}\n" for line in range(2))
        name = f"predicted_queries_topk_sample{sample:03d}.txt{part:03d}-1004000"
        files.append((name, changed.get(f"s{sample}p{part}", text)))
    path.write_bytes(zip_of(*((name, text) for name, text in files if text is not None)))
    return path


@pytest.mark.parametrize("samples", [1, 2, 12])
def test_the_first_samples_of_each_part_stand_side_by_side(tmp_path, samples):
    path = write_samples(tmp_path / "samples.zip", 12)
    expected = [[f"s{s}p{p}l{n}" for s in range(samples)] for p in range(2) for n in range(2)]
    assert list(iter_predictions(path, samples)) == expected


def test_an_empty_prediction_is_none(tmp_path):
    path = write_samples(tmp_path / "samples.zip", 2, s1p0="\n  \n")
    assert list(iter_predictions(path, 2))[:2] == [["s0p0l0"], ["s0p0l1"]]


def test_files_that_macos_adds_to_samples_and_byte_order_marks_are_ignored(tmp_path):
    names = ["__MACOSX/._x_sample0.txt0", "d/._x_sample1.txt0", "d/x_sample2.txt0"]
    texts = [b"\0\5", b"\0\5", "\ufeff1\r\n".encode()]
    (tmp_path / "p.zip").write_bytes(zip_of(*zip(names, texts, strict=True)))
    assert list(iter_predictions(tmp_path / "p.zip", 1)) == [["1"]]
