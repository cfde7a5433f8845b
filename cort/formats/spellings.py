"""Ids that a collection has in another spelling: percent-encoded or not, with accents composed or not.

A document of a folder is known by its path, of which an id encodes some characters; whoever judges writes the path.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow
from cort.formats.fields import spellings_of

#: tells for each id whether the collection has it
Known = Callable[[pa.Array], pa.Array]


def respell(table: pa.Table, known: Known) -> tuple[pa.Table, int, pa.Array]:
    """Write the ids of documents that are not known as the collection does, where it has one of their spellings.

    :return: also the number of these ids, and those that are not known in any spelling.
    """
    ids, kind = pc.unique(table["doc_id"]), table["doc_id"].type
    absent = ids.filter(pc.invert(known(ids)))
    # Most ids have no other spelling.
    others = {one: [other for other in spellings_of(one) if other != one] for one in absent.to_pylist()}
    candidates = pa.array(sorted({other for spelled in others.values() for other in spelled}), "string")
    found = {*candidates.filter(known(candidates)).to_pylist()} if len(candidates) else set()
    changes = {one: next(filter(found.__contains__, spelled)) for one, spelled in others.items() if found & {*spelled}}
    if not changes:
        return table, 0, absent
    places = pc.index_in(table["doc_id"], value_set=pa.array([*changes], kind))
    doc_ids = pc.coalesce(pc.take(pa.array([*changes.values()], kind), places), table["doc_id"])
    place = table.schema.get_field_index("doc_id")
    lost = pc.invert(pc.is_in(absent, value_set=pa.array([*changes], kind)))
    return table.set_column(place, "doc_id", doc_ids), len(changes), absent.filter(lost)
