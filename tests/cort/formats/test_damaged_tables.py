"""A table of which one byte has changed on the disk is refused, wherever the byte is in its pages."""

from functools import partial

import pyarrow.parquet as pq
import pytest

from cort.formats import tables
from cort.online.passages import Passages
from tests.support.common import refusal, table_of

ROWS = {
    "passages": (tables.PASSAGES, [(f"d{row}", f"text {row % 7}") for row in range(500)]),
    "scores": (tables.SCORES, [(f"q{row % 9}", f"d{row}", row / 8) for row in range(500)]),
    "qrels": (tables.QRELS, [(f"q{row % 9}", f"d{row}", row % 3) for row in range(500)]),
}


def batches(path, schema):
    return [*tables.iter_batches(path, schema)]


def searched(path, schema):
    return Passages(path).texts(["d3"])


@pytest.mark.parametrize(
    ("name", "read"), [*((name, tables.read_table) for name in ROWS), ("passages", batches), ("passages", searched)]
)
def test_one_changed_byte_of_any_column_is_told(tmp_path, name, read):
    schema, rows = ROWS[name]
    path = tmp_path / "table.parquet"
    tables.write_table(path, table_of(schema, rows))
    whole = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    read(path, schema)
    for column in columns:
        end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
        path.write_bytes(whole[: end - 2] + bytes([whole[end - 2] ^ 1]) + whole[end - 1 :])
        complaint = refusal(partial(read, schema=schema), path)
        assert complaint.startswith("found unreadable bytes (could not verify page integrity, CRC checksum")
        assert complaint.endswith("expected a complete parquet file; delete it and let it be built again")
