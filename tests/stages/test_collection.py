import threading

import pyarrow.parquet as pq
import pytest

from cort import collection
from cort.formats.passages import ahead
from cort.formats.tables import PASSAGES, ROW_GROUP, read_table
from tests.support.common import logged

pytestmark = pytest.mark.usefixtures("record_messages")


def run(tmp_path, text, name="collection.tsv"):
    source, output = tmp_path / name, tmp_path / "out" / "passages.parquet"
    source.write_text(text, encoding="utf-8")
    return collection.main(["--passages", str(source), "--output", str(output)]), source, output


def test_passages_keep_the_order_of_the_file(tmp_path, caplog):
    status, source, output = run(tmp_path, "9\t b c\n10\tä\na\tx\n")
    assert status == 0
    assert read_table(output, PASSAGES).to_pydict() == {"doc_id": ["9", "10", "a"], "text": ["b c", "ä", "x"]}
    assert f"3 passages from {source}" in logged(caplog)


def test_row_groups_are_bounded_and_bytes_repeat(tmp_path):
    text = "".join(f"{number}\ttext {number}\n" for number in range(ROW_GROUP + 1))
    _, _, output = run(tmp_path, text)
    metadata = pq.read_metadata(output)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [ROW_GROUP, 1]
    first = output.read_bytes()
    run(tmp_path, text)
    assert output.read_bytes() == first


MANY = "".join(f"{number}\tx\n" for number in range(ROW_GROUP + 10))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("c.tsv", "a\tx\nb\tx\nc\tx\nb\ty\nc\ty\n", "row 4: found doc_id 'b' again (it is already in row 2), expected"),
        ("c.jsonl", '{"_id": "a", "text": "x"}\n' * 2, "row 2: found doc_id 'a' again (it is already in row 1), exp"),
        ("c.tsv", "", "found an empty file, expected one passage per line; name the file that holds the passages"),
        ("c.tsv", "a\tx\nb\t\n", "row 2: found an empty text, expected at least one character; remove the row"),
        ("c.tsv", MANY + "7\tx\n", f"row {ROW_GROUP + 11}: found doc_id '7' again (it is already in row 8)"),
    ],
)
def test_bad_collections_leave_nothing_and_an_earlier_table_behind(tmp_path, caplog, name, text, complaint):
    for before in (b"", run(tmp_path, "a\tx\n")[2].read_bytes()):
        output = tmp_path / "out" / "passages.parquet"
        output.write_bytes(before) if before else output.unlink()
        caplog.clear()
        status, source, output = run(tmp_path, text, name)
        assert status == 1
        (line,) = logged(caplog, "ERROR")
        assert line.startswith(f"{source}: {complaint}")
        assert [path.read_bytes() for path in output.parent.glob("[!.]*")] == ([before] if before else [])


def test_items_and_errors_of_a_thread_come_in_order():
    threads = []

    def items():
        for number in range(3):
            threads.append(threading.current_thread())
            yield number
        raise ValueError("later")

    seen = []
    with pytest.raises(ValueError, match="later"):
        for item in ahead(items()):
            seen.append(item)
    assert seen == [0, 1, 2]
    assert threading.current_thread() not in threads
