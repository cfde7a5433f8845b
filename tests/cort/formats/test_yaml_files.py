import time

import pytest

from cort.formats.yaml_files import MOST_BYTES, read_yaml
from cort.system.errors import InputError

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 1000))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9))

BROKEN = {
    "billion laughs": (LAUGHS, "more than 20,000 values"),
    "anchors in a chain": (CHAIN, "row 1: found more than 32 levels"),
    "merged without end": (MERGES, "more than 20,000 values"),
    "a map in itself": ("a: &x\n  b: *x\n", "row 1: found more than 32 levels"),
    "a list in itself": ("a: 1\nb: &x [*x]\n", "row 2: found more than 32 levels"),
    "deep lists": ("a: " + "[" * 100_000, "row 1: found more than 32 levels"),
    "deep maps": ("\n".join(" " * n + "a:" for n in range(500)), "row 33: found more than 32 levels"),
    "a deep map in a row": ("a: " + "{a: " * 100_000, "row 1: found more than 32 levels"),
    "deep dashes": ("- " * 100_000, "row 1: found more than 32 levels"),
    "a huge text": ("a: " + "x" * MOST_BYTES, "found more than 1,000,000 bytes"),
    "many values": ("a: [" + "1," * 400_000 + "]", "more than 20,000 values"),
    "unknown anchor": ("a: 1\nb: *x\n", "row 2: found no YAML (found undefined alias)"),
    "a list": ("- a\n", "found no keys at its top level"),
    "a text": ("dataset\n", "found no keys at its top level"),
    "nothing": ("", "found nothing, expected an experiment"),
    "a comment": ("# a\n", "found nothing, expected an experiment"),
    "two documents": ("a: 1\n---\nb: 2\n", "row 2: found no YAML"),
    "a tab": ("a:\n\tb: 1\n", "row 2: found no YAML (found character that cannot start any token)"),
    "an open list": ("a: [1\nb: 2\n", "row 2: found no YAML"),
    "an open quote": ('a: 1\nb: "x\n', "row 2: found no YAML"),
    "NUL": ("a: 1\nb: x\0y\n", r"row 2: found the control character '\x00'"),
    "NUL as an escape": ('a: 1\nb: {c: "x\\0"}\n', r"row 2: found b.c: 'x\x00', expected no control characters"),
    "invalid UTF-8": (b"a: 1\nb: \xff\n", "row 2: found the byte 0xff, expected UTF-8"),
    "UTF-16": ("a: 1\n".encode("utf-16"), "found UTF-16"),
    "UTF-16 without a mark": ("a: 1\n".encode("utf-16-be"), "found UTF-16"),
    "UTF-32": ("a: 1\n".encode("utf-32"), "found UTF-16"),
    "a key twice": (
        "a: 1\nb: {c: 1,\n c: 2}\n",
        "row 3: found the key 'c' again (first in row 2), expected each key once; rename or remove one",
    ),
    "merged twice": ("a: &x {b: 1}\nc:\n  <<: *x\n  <<: *x\n", "row 4: found the key '<<' again"),
    "code": ("a: !!python/object/apply:os.system [ls]\n", "found a with the tag 'python/object/apply:os.system'"),
    "a name of Python": ("a: !!python/name:os.system\n", "row 1: found a: '' with the tag"),
    "a set": ("a: !!set {b}\n", "found a with the tag 'set'"),
    "bytes": ("a: !!binary aGk=\n", "found a: 'aGk=' with the tag 'binary'"),
    "code of Snakemake's": ("__use_yte__: true\n", "row 1: found the key '__use_yte__'"),
    "a list as a key": ("? [a]\n: 1\n", "row 1: found a key that is not text"),
    "a key with a newline": ('"a\\n": 1\n', r"row 1: found the key 'a\n'"),
    "a merge of nothing": ("a:\n  <<: 3\n", "row 2: found no YAML (expected a mapping"),
    "octal": ("bm25:\n  k1: 020\n", "row 2: found bm25.k1: '020', which YAML takes for another number"),
    "sexagesimal": ("a: {b: [1:30]}\n", "found a.b.0: '1:30', which YAML takes for another number"),
    "a sexagesimal fraction": ("a: 1:30.5\n", "found a: '1:30.5', which YAML takes for another number"),
    "hexadecimal": ("a: 0x10\n", "found a: '0x10', which"),
    "binary": ("a: 0b10\n", "found a: '0b10', which"),
    "underscores": ("a: 1_000\n", "found a: '1_000', which"),
    "underscores in a fraction": ("a: 1_0.5\n", "found a: '1_0.5', which"),
    "infinite": ("a: .inf\n", "found a: '.inf', which"),
    "infinite by size": ("a: 1.0e+999\n", "found a: '1.0e+999', which"),
    "not a number": ("a: .NaN\n", "found a: '.NaN', which"),
    "a very long number": ("a: " + "9" * 5000 + "\n", "which YAML takes for another number"),
    "a date": ("a: 2020-01-01\n", "found a: '2020-01-01', which YAML takes for a date, expected"),
    "no date": ("a: 2020-99-99\n", "found a: '2020-99-99', which YAML takes for a date"),
    "a date as a key": ("a: 1\n2020-01-01: 2\n", "row 2: found '2020-01-01', which YAML takes for a date"),
    "a number by its tag": ("a: !!int x\n", "found a: 'x', which"),
    "a truth by its tag": ("a: !!bool x\n", "found a: 'x', which"),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_as_it_is_written_is_refused_within_a_second(tmp_path, content, words):
    path = tmp_path / "x.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    start = time.process_time()
    with pytest.raises(InputError) as error:
        read_yaml(path, "an experiment")
    assert time.process_time() - start < 1
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_what_is_no_file_is_refused(tmp_path):
    for path, words in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):
        with pytest.raises(InputError) as error:
            read_yaml(path, "an experiment")
        assert str(error.value) == f"{path}: found no readable file ({words}), expected an experiment; fix the name"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: [1, -2, +3, 0, 1.5, .5, 2.0e-5, 1., -0.0]", [1, -2, 3, 0, 1.5, 0.5, 2e-5, 1.0, 0.0]),
        ("a: [yes, No, ON, off, true, False]", [True, False, True, False, True, False]),
        ("a: [~, null, ]", [None, None]),
        ("a: ['020', '1:30', \"2020-01-01\"]", ["020", "1:30", "2020-01-01"]),
        ("a: [1e5, 0o17, 1.2.3, '']", ["1e5", "0o17", "1.2.3", ""]),
        ("a: {b: &x {c: 1}, d: {<<: *x, e: 2}}", {"b": {"c": 1}, "d": {"c": 1, "e": 2}}),
        ("b: &x {c: 1, d: 2}\na: {<<: *x, d: 3}", {"c": 1, "d": 3}),
        ("a: |\n  two\n  lines\n", "two\nlines\n"),
        ("a: naïve — 漢字", "naïve — 漢字"),
    ],
)
@pytest.mark.parametrize("form", ["plain", "CRLF", "BOM"])
def test_what_is_meant_is_read(tmp_path, text, value, form):
    content = text.replace("\n", "\r\n").encode() if form == "CRLF" else text.encode()
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbf" + content if form == "BOM" else content)
    assert read_yaml(tmp_path / "x.yaml")["a"] == value


def test_every_mistake_is_a_line(tmp_path):
    (tmp_path / "x.yaml").write_text("a: 020\nb: 1:30\nc: 1\nc: 2\n")
    with pytest.raises(InputError) as error:
        read_yaml(tmp_path / "x.yaml")
    assert [line.split(": found")[0][-5:] for line in str(error.value).split("\n")] == ["row 1", "row 2", "row 4"]
