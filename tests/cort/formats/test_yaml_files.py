import pytest

from cort.formats.yaml_files import read_yaml
from cort.runtime.errors import InputError
from tests.support.common import refusal, write_file

BROKEN = {
    "a map in itself": ("a: &x\n  b: *x\n", "found an anchor within itself"),
    "unknown anchor": ("a: 1\nb: *x\n", "row 2: found no YAML (found undefined alias)"),
    "a text": ("dataset\n", "found no keys at its top level"),
    "a comment": ("# a\n", "found nothing, expected an experiment"),
    "a tab": ("a:\n\tb: 1\n", "row 2: found no YAML (found character that cannot start any token)"),
    "an open quote": ('a: 1\nb: "x\n', "row 2: found no YAML"),
    "invalid UTF-8": (b"a: 1\nb: \xff\n", "row 2: found no YAML (invalid leading UTF-8 octet)"),
    "a key twice": ("a: 1\nb: {c: 1,\n c: 2}\n", "row 3: found the key 'c' again (first in row 2)"),
    "merged twice": ("a: &x {b: 1}\nc:\n  <<: *x\n  <<: *x\n", "row 4: found the key '<<' again"),
    "code": ("b: 1\na: !!python/object/apply:os.system [ls]\n", "row 2: found no YAML (could not determine a"),
    "code of Snakemake's": ("__use_yte__: true\n", "row 1: found the key '__use_yte__'"),
    "octal": ("bm25:\n  k1: 020\n", "row 2: found bm25.k1: '020', which YAML takes for another number"),
    "sexagesimal": ("a: {b: [1:30]}\n", "found a.b.0: '1:30', which YAML takes for another number"),
    "underscores": ("a: 1_000\n", "found a: '1_000', which"),
    "infinite": ("a: .inf\n", "found a: '.inf', which"),
    "a date": ("a: 2020-01-01\n", "found a: '2020-01-01', which YAML takes for a date, expected"),
    "a date as a key": ("a: 1\n2020-01-01: 2\n", "row 2: found '2020-01-01', which YAML takes for a date"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_as_it_is_written_is_refused(tmp_path, name):
    content, words = BROKEN[name]
    path = write_file(tmp_path / "x.yaml", content)
    assert words in refusal(lambda path: read_yaml(path, "an experiment"), path)


def test_what_is_no_file_is_refused(tmp_path):
    for path, words in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):
        assert refusal(lambda path: read_yaml(path, "an experiment"), path).startswith(
            f"found no readable file ({words})"
        )


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
def test_what_is_meant_is_read(tmp_path, text, value):
    for content in (text, text.replace("\n", "\r\n")):
        for code in ("utf-8", "utf-8-sig", "utf-16"):
            (tmp_path / "x.yaml").write_bytes(content.encode(code))
            assert read_yaml(tmp_path / "x.yaml")["a"] == value


def test_what_an_alias_repeats_can_be_changed_alone(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &x {b: {c: [1]}}\nd: *x\ne: {<<: *x}\n")
    value = read_yaml(tmp_path / "x.yaml")
    value["a"]["b"]["c"].append(2)
    assert value == {"a": {"b": {"c": [1, 2]}}, "d": {"b": {"c": [1]}}, "e": {"b": {"c": [1]}}}


def test_every_mistake_is_a_line(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &x 020\nb: 1:30\nc: *x\nc: 2\n")
    with pytest.raises(InputError) as error:
        read_yaml(tmp_path / "x.yaml")
    assert [line.split(": found")[0][-5:] for line in str(error.value).split("\n")] == ["row 1", "row 2", "row 4"]
