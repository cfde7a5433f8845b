"""Collect the queries that a split for training must not have: those of the splits that systems are measured on.

Reads:  queries of splits, as `cort.split` writes them
Writes: apart.parquet: split and text of each query
Usage:  python -m cort.apart --splits validation test --queries validation.parquet test.parquet --output apart.parquet
"""

import sys

import pyarrow as pa

from cort.formats.tables import APART, QUERIES, read_table, write_table
from cort.system import cli
from cort.system.options import optional, options_class, required


@options_class
class Options:
    """Options of this stage."""

    splits: tuple[str, ...] = optional((), "names of the splits, in the order of the files", "NAME")
    queries: tuple[str, ...] = optional((), "a table of queries per split", "PARQUET")
    output: str = required("PARQUET")


def stage(options: Options) -> None:
    """Join the tables."""
    tables = [read_table(path, QUERIES)["text"] for path in options.queries]
    parts = [pa.table([[name] * len(texts), texts], APART) for name, texts in zip(options.splits, tables, strict=True)]
    write_table(options.output, pa.concat_tables([APART.empty_table(), *parts]))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
