"""Published numbers beside ours: one table of numbers (config/papers.csv), joined with everything that was measured.

A number belongs to a system and a split of ours, and to a measure as ir_measures names it, or to `unjudged@10` (share
of the first 10 results without a judgement), `rank` (of the relevant passage of a split's only query), `latency` or
`latency@32` (milliseconds of a query, or of a batch of 32), or `saturation(RR@10)` (CoRT's footnote 4: the smallest
number of candidates at which doubling them adds less than 0.5 %). With `candidates`, it is the measure after re-ranking
so many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cort.config.experiment import Experiment
from cort.evaluation.curves import saturation
from cort.evaluation.measures import FIRST
from cort.reporting.format import signed, significant
from cort.reporting.found import Found
from cort.reporting.results import Latencies
from cort.reporting.tables import Format, Table
from cort.runtime.errors import input_error

if TYPE_CHECKING:
    import pandas as pd

PLACE = ["paper", "table", "row", "column"]
KEY = ["system", "split", "measure", "candidates"]
COLUMNS = [*PLACE, "value", *KEY, "note"]
# The measure that determines the rank of the only relevant passage.
RANKED = "RR@1000"
#: system, split, measure, number of candidates, our value
Value: TypeAlias = tuple[str, str, str, int, float | None]


def read_published(paths: Sequence[str | Path]) -> pd.DataFrame:
    """Read files of published numbers, in units of our measures; `candidates` is 0 where the number has none.

    :raises InputError: for other columns, a value that is no number, or a number that is there twice.
    """
    import pandas as pd

    frames = []
    for path in paths:
        try:
            frame = pd.read_csv(path, dtype=str, keep_default_na=False)
            if list(frame.columns) != COLUMNS:
                raise ValueError(f"the columns {', '.join(frame.columns)}")
            frame["value"] = frame["value"].astype(float)
            frame["candidates"] = frame["candidates"].replace("", "0").astype(int)
        except (OSError, ValueError, TypeError, LookupError) as error:
            expected = f"published numbers, with the columns {', '.join(COLUMNS)}"
            raise input_error(path, " ".join(str(error).split()), expected, "fix the file") from None
        frames.append(frame)
    published = pd.concat(frames, ignore_index=True)
    if (again := published.duplicated(PLACE)).any():
        place = ", ".join(published.loc[again.idxmax(), PLACE])
        raise input_error("papers", f"{place} again", "each number once", "drop one")
    return published


def values(found: Found) -> Iterator[Value]:
    """Yield everything of ours that a number may be compared with."""
    for one in found.measures:
        place = one.system, one.split
        yield from ((*place, name, 0, value) for name, value in one.mean.items())
        if one.judged and one.judged.results:
            yield (*place, f"unjudged@{FIRST}", 0, one.judged.unjudged / one.judged.results)
            if f"P@{FIRST}" not in one.mean:
                yield (*place, f"P@{FIRST}", 0, one.judged.mean.get(f"P@{FIRST}"))
        if one.queries == 1 and (reciprocal := one.mean.get(RANKED)):
            yield (*place, "rank", 0, 1 / reciprocal)
    for curve in found.depths:
        place = curve.system, curve.split
        for name, row in curve.measures.items():
            known = {depth: value for depth, value in zip(curve.depths, row, strict=True) if value is not None}
            yield from ((*place, name, depth, value) for depth, value in known.items())
            doubled = [depth for depth in known if depth & (depth - 1) == 0]
            yield (*place, f"saturation({name})", 0, saturation(doubled, [known[depth] for depth in doubled]))
    for timed in found.latencies:
        yield from mean_latencies(found.experiment, timed)


def mean_latencies(experiment: Experiment, timed: Latencies) -> Iterator[Value]:
    """Yield mean times in ms by system and batch size, as publications give them.

    For systems that retrieve by vectors, this is the time of the search alone, with the encoding as ENCODER-queries;
    for others, of all parts one after the other.
    """
    encoding: dict[tuple[str, str], float] = {}
    for row in (one for one in timed.rows if one.system in experiment.systems):
        system, measure = experiment.systems[row.system], "latency" if row.batch == 1 else f"latency@{row.batch}"
        means = {name: times["mean"] for name, times in row.milliseconds.items()}
        encoders = [name for section, name in system.models() if section == "encoders"]
        yield row.system, timed.split, measure, 0, means["search" if encoders else "sequential"]
        if system.divisible:
            encoding[f"{encoders[0]}-queries", measure] = means["tokenize"] + means["encode"]
    yield from ((name, timed.split, measure, 0, value) for (name, measure), value in encoding.items())


def join(published: pd.DataFrame, ours: Iterable[Value]) -> pd.DataFrame:
    """Add our values, `ours`, and the `difference` to published numbers; both are NaN where there is none."""
    import pandas as pd

    found = pd.DataFrame([*ours], columns=[*KEY, "ours"]).astype({"ours": float})
    joined = published.merge(found, how="left", on=KEY, validate="many_to_one")
    return joined.assign(difference=joined["ours"] - joined["value"])


def coverage(joined: pd.DataFrame) -> Table:
    """Count the published numbers of each paper, and those with a value of ours."""
    by_paper = joined.groupby("paper", sort=False)
    frame = by_paper.agg(numbers=("value", "size"), ours=("ours", "count")).reset_index()
    return Table("coverage", "Published numbers of each paper, and how many of them these results have.", frame)


def tables(joined: pd.DataFrame) -> list[Table]:
    """Show each table of a paper that has at least one number of ours."""
    shown = []
    for (paper, name), rows in joined.groupby(["paper", "table"], sort=False):
        if rows["ours"].notna().any():
            frame = rows.rename(columns={"value": "published"})
            frame = frame[["row", "column", "published", "ours", "difference", "system", "split", "measure", "note"]]
            formats: dict[str, Format] = dict.fromkeys(("published", "ours"), significant)
            formats["difference"] = partial(signed, digits=4)
            shown.append(Table("", f"{paper}, {name}", frame, formats))
    return shown
