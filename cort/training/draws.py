"""Which negatives of a query a training uses: the first ones in a random order of the epoch.

The order is that of hashes of the seed, the epoch, query_id and doc_id, so it depends on nothing else that a run has. A
run that keeps only what will be drawn (`kept`) therefore gives the same examples as the whole one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.config.models import Pairs as PairSettings
from cort.config.models import Triples
from cort.config.training import Epochs
from cort.formats.ids import Words, hashes, positions
from cort.formats.pairs import Pairs, match
from cort.formats.records import Integers
from cort.formats.runs import Run
from cort.runtime.sections import same_as


class DrawOptions(Epochs):
    """Options that say which results of a run are drawn."""

    first_rank: int = same_as(Triples, "first_rank")
    last_rank: int = same_as(Triples, "last_rank")
    negatives: int = same_as(PairSettings, "negatives")


def first_rows(
    groups: Integers, needed: Integers, query_ids: pa.Array, doc_ids: pa.Array, seed: int, epoch: int
) -> tuple[Integers, Integers]:
    """Return rows by group, and within it in the order of an epoch: of each group the first ones, `needed` or all.

    :param groups: of each row, the position of its query in `query_ids`; not decreasing.
    :returns: rows, and where those of each group begin; some groups have more than needed.
    """
    start = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    numbers = _mixed(_mixed(hashes(query_ids) ^ start)[groups] ^ hashes(doc_ids))
    # Sorting all rows takes several times as long: nearly always, the first ones have numbers below a limit.
    sizes = np.bincount(groups, minlength=len(needed))
    limits = (needed + 3 * np.sqrt(needed) + 2) / np.maximum(sizes, 1)
    likely = numbers * 2.0**-64 <= limits[groups]
    missed = np.bincount(groups[likely], minlength=len(needed)) < np.minimum(needed, sizes)
    rows = np.flatnonzero(likely | missed[groups])
    # Rows with equal numbers stay in the order of their ranks.
    rows = rows[np.lexsort((numbers[rows], groups[rows]))]
    return rows, np.searchsorted(groups[rows], np.arange(len(needed)))


def draw_negatives(
    pools: pa.RecordBatch, chosen: Integers, turns: Integers, count: int, seed: int, epoch: int
) -> Integers:
    """Draw `count` distinct negatives for each of the chosen pools, by its turn among those that share the pool.

    Those of one pool are drawn without repetition, as long as it has enough.

    :param turns: of each chosen pool, from 0.
    :returns: positions in ``pools["negatives"].values``, (chosen, count); -1 where a pool has no more.
    """
    sizes = np.diff(pools["negatives"].offsets.to_numpy()).astype(np.int64)
    groups, needed = np.repeat(np.arange(len(pools)), sizes), np.zeros(len(pools), np.int64)
    np.maximum.at(needed, chosen, (turns + 1) * count)
    rows, starts = first_rows(groups, needed, pools["query_id"], pools["negatives"].values, seed, epoch)
    columns = np.arange(count)
    places = (turns[:, None] * count + columns) % sizes[chosen][:, None]
    return np.where(columns < sizes[chosen][:, None], rows[starts[chosen][:, None] + places], -1)


def kept(run: Run, judged: Pairs, draws: DrawOptions, seed: int, every_positive: bool = False) -> Run:
    """Keep what trainings with these draws use of a run, with its ranks: judged results, negatives, the last rank.

    :param judged: the judgements of all queries.
    :param every_positive: whether negatives are drawn for each positive of a query, not for one.
    """
    ranks, queries = run.ranks(), run.query_numbers()
    inside = (ranks >= draws.first_rank) & (ranks <= draws.last_rank)
    is_judged = match(run.pairs(), judged) >= 0
    query_ids = pa.array(run.query_ids, "string")
    owners = positions(judged.query_ids, query_ids)
    positives = np.bincount(owners[owners >= 0], minlength=len(run))
    needed = draws.negatives * (positives if every_positive else np.minimum(positives, 1))
    found: npt.NDArray[np.bool_] = inside & is_judged
    others = np.flatnonzero(inside & ~is_judged)
    groups, doc_ids = queries[others], run.doc_ids.take(pa.array(others))
    for epoch in range(draws.epochs):
        rows, starts = first_rows(groups, needed, query_ids, doc_ids, seed, epoch)
        places = np.arange(len(rows)) - starts[groups[rows]]
        found[others[rows[places < needed[groups[rows]]]]] = True
    # How long the ranking is decides whether its query is trained on.
    found[run.offsets[1:][np.diff(run.offsets) > 0] - 1] = True
    return replace(run, given_ranks=ranks).filter(found)


def _mixed(numbers: Words) -> Words:
    """Spread the bits of numbers over all 64 (the last step of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
