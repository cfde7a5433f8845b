"""What a report shows: a table for each kind of result, and panels of figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cort.evaluation.agreement import Agreement
from cort.evaluation.comparisons import ALL, TOO_FEW, Comparison, Comparisons
from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.inspection import Finding
from cort.evaluation.measures import FIRST, Measures
from cort.evaluation.overlap import Overlap
from cort.models.truncation import Truncation
from cort.reporting.figures import Line, Panel, lines_of, round_numbers, thin
from cort.reporting.format import (
    INTERVAL,
    MISSING,
    NO_SHARES,
    Shares,
    best,
    by_cutoff,
    count,
    disagreement,
    duration,
    family,
    fixed,
    memory,
    memory_of,
    named,
    needed,
    p_value,
    percent,
    plural,
    signed,
)
from cort.reporting.results import Job, Latencies
from cort.reporting.tables import Format, Place, Table, frame_of
from cort.retrieval.audits import Audit
from cort.systems.timing import PARTS
from cort.training.outcome import Selection

if TYPE_CHECKING:
    import pandas as pd

TOTALS = ("sequential", "concurrent")
STATISTICS = ("p50", "p95", "p99", "mean")
DIFFERENCES = dict.fromkeys(("difference", "low", "high"), signed)
NO_LABELS: Mapping[str, str] = {}
#: what queries lack, by field of `Measures`
LACKS = {
    "without_results": "without results",
    "without_relevant": "without relevant",
    "short": "with fewer results than the largest cutoff",
}


def names_of_measures(measures: Iterable[Measures]) -> list[str]:
    """List all measures, in the order in which they first appear."""
    return list(dict.fromkeys(name for system in measures for name in system.mean))


def by_split(measures: Iterable[Measures]) -> dict[str, list[Measures]]:
    """Group measures by split, in the order in which these first appear."""
    groups: dict[str, list[Measures]] = {}
    for one in measures:
        groups.setdefault(one.split, []).append(one)
    return groups


def bold_of(frame: pd.DataFrame, columns: Iterable[str]) -> frozenset[Place]:
    """Find the best systems of each split by each measure."""
    places = set[Place]()
    for _, rows in frame.groupby("split", sort=False):
        for column in columns:
            chosen = {*best(dict(zip(rows["system"], rows[column], strict=True)))}
            places |= {(row, column) for row in rows.index if frame["system"][row] in chosen}
    return frozenset(places)


def answer_tables(measures: Sequence[Measures], comparisons: Sequence[Comparisons], baseline: str) -> Iterator[Table]:
    """Tabulate, for each split, systems against the baseline by the first measure, and the last measure."""
    by = {one.split: one for one in comparisons}
    for split, block in by_split(measures).items():
        names = names_of_measures(block)
        shown = list(dict.fromkeys([*names[:1], *names[-1:]]))
        compared = by.get(split)
        against = compared.against(baseline, names[0]) if compared and names else {}
        rows: list[list[object]] = []
        for one in block:
            row = against.get(one.system)
            found = (row.difference, row.difference_low, row.difference_high) if row else (None, None, None)
            p = row.randomization_test_holm if row else None
            means = [one.mean.get(name) for name in shown]
            cells = [row.verdict if row else "", *means[:1], *found, p] if against else means[:1]
            rows.append([split, one.system, *cells, *means[1:]])
        columns = ["verdict", *shown[:1], "difference", "low", "high", "p corrected"] if against else shown[:1]
        frame = frame_of(rows, ["split", "system", *columns, *shown[1:]])
        caption = f"{plural(block[0].queries, 'query', 'queries')}; the best in bold."
        if compared and against:
            others = family(next(iter(against.values())).family, compared)
            caption += (
                f" Verdict: whether {named(names[0])} differs significantly from {baseline}, by p corrected over "
                f"{others}; the interval is that of one comparison."
            )
        headings = INTERVAL | {"difference": f"against {baseline}"}
        formats = DIFFERENCES | {"p corrected": p_value}
        yield Table("", caption, frame, formats, headings, "split", bold_of(frame, shown))


def systems_table(measures: Sequence[Measures], comparisons: Sequence[Comparisons] = ()) -> Table:
    """Tabulate all systems by all measures; the best of a split are bold, significant differences marked.

    Numbers of queries without results, and without a relevant passage, have a column unless all are 0.
    """
    names = by_cutoff(names_of_measures(measures))
    lacks = [name for name in LACKS if any(getattr(row, name) for row in measures)]
    columns = ["split", "system", "queries", "relevant from", *lacks, *names]
    frame = frame_of(
        [
            [one.split, one.system, one.queries, one.relevance_level, *(getattr(one, name) for name in lacks)]
            + [one.mean.get(name) for name in names]
            for one in measures
        ],
        columns,
    )
    differ = {
        (one.split, row.system, row.measure)
        for one in comparisons
        for row in one.comparisons
        if row.significant and row.baseline == one.baseline
    }
    marked = frozenset(
        (row, name)
        for row, (split, system) in enumerate(zip(frame["split"], frame["system"], strict=True))
        for name in names
        if (split, system, name) in differ
    )
    note = legend(comparisons[0]) if marked else ""
    caption = f"means over the queries; the best of each column in bold. {note}".rstrip()
    bold = bold_of(frame, names)
    return Table("systems", caption, frame, {}, LACKS, block="split", bold=bold, marked=marked, note=note)


def paper_table(systems: Table, labels: Mapping[str, str], comparisons: Sequence[Comparisons] = ()) -> Table:
    """Make of the table of systems that of a paper: labels of systems, splits with their queries, and measures."""
    frame, names = systems.frame, [name for name in systems.columns[4:] if name not in LACKS]
    split = frame["split"] + ", " + frame["queries"].map(lambda queries: plural(queries, "query", "queries"))
    named = frame.assign(split=split, system=frame["system"].map(labels))[["split", "system", *names]]
    note = legend(comparisons[0], labels) if systems.note else ""
    return replace(systems, frame=named, note=note, caption=systems.caption.replace(systems.note, note))


def legend(compared: Comparisons, labels: Mapping[str, str] = NO_LABELS) -> str:
    """Explain the mark of a significant difference."""
    baseline = labels.get(compared.baseline, compared.baseline)
    corrected = "comparisons" if ALL in compared.sizes() else f"comparisons with {baseline}"
    return (
        f"* differs significantly from {baseline}: p of the paired randomisation test "
        f"({count(compared.resamples)} random signs), corrected by Holm's method over the {corrected} of the split, "
        f"for each measure by itself, is at most {compared.alpha:g}."
    )


def comparisons_table(
    comparisons: Sequence[Comparisons], links: Mapping[tuple[str, str, str], str], shares: Shares = NO_SHARES
) -> Table:
    """Tabulate all comparisons; `links` lead to the explorer, by split, system and baseline."""
    columns = ["split", "system", "against", "verdict", "measure", "mean", "its mean", "difference", "low", "high"]
    columns += ["p", "p corrected", "corrected over", "won", "tied", "lost", "remark"]
    rows: list[list[object]] = []
    linked = {}
    for split in comparisons:
        for row in split.comparisons:
            if link := links.get((split.split, row.system, row.baseline)):
                linked[len(rows), "against"] = link
            rows.append(
                [
                    split.split,
                    row.system,
                    row.baseline,
                    row.verdict,
                    named(row.measure),
                    row.mean,
                    row.baseline_mean,
                    row.difference,
                    row.difference_low,
                    row.difference_high,
                    row.randomization_test,
                    row.randomization_test_holm,
                    family(row.family, split),
                    row.won,
                    row.tied,
                    row.lost,
                    (remark(row, split) + memory_of(row, shares)).removeprefix("; "),
                ]
            )
    caption = (
        "each system against its parts, its encoder before training, the baseline, and the systems it was to be "
        "compared with: the bootstrap interval of each difference by itself; p of the paired randomisation test, and "
        "corrected by Holm's method over the comparisons named, for each measure by itself, which decides the verdict; "
        "queries won and lost."
    )
    formats = DIFFERENCES | dict.fromkeys(columns[10:12], p_value)
    return Table("comparisons", caption, frame_of(rows, columns), formats, INTERVAL, "split", links=linked)


def remark(row: Comparison, compared: Comparisons) -> str:
    """Say what a verdict lacks, or why it seems to contradict its interval."""
    if row.verdict == TOO_FEW:
        return needed(row)
    return disagreement(row, compared) if row.disagrees else ""


def lengths_table(comparisons: Iterable[Comparisons]) -> Table:
    """Tabulate the shortest lists that reach the recall of the baseline's longest."""
    columns = ["split", "system", "shortest list", "its recall", "baseline", "baseline's list", "baseline's recall"]
    rows = [
        [one.split, row.system, row.depth, row.recall, one.baseline, row.baseline_depth, row.baseline_recall]
        for one in comparisons
        for row in one.list_lengths
    ]
    caption = "how many passages a system needs to reach the recall of the baseline's whole list."
    return Table("lists", caption, frame_of(rows, columns), block="split")


def judged_table(measures: Sequence[Measures]) -> Table:
    """Tabulate how many of the top results are unjudged, and the measures with and without them."""
    known = [(one, one.judged) for one in measures if one.judged]
    names = by_cutoff(name for _, judged in known for name in judged.mean)
    columns = ["split", "system", "queries", "judgements", "relevant", f"top {FIRST}", "unjudged", "share", *names]
    rows = [
        [
            one.split,
            one.system,
            one.queries,
            judged.judgements,
            judged.relevant,
            judged.results,
            judged.unjudged,
            judged.unjudged / judged.results if judged.results else None,
            *map(judged.mean.get, names),
        ]
        for one, judged in known
    ]
    caption = (
        f"results among the first {FIRST} of all queries without a judgement, which count as not relevant, and "
        "measures after they are removed from the rankings (judged only)."
    )
    return Table("judged", caption, frame_of(rows, columns), {"share": percent}, block="split")


def deeply_judged(measures: Sequence[Measures]) -> list[Measures]:
    """Select the splits with at least `FIRST` judgements per query, negative ones among them.

    If queries have one relevant passage and no other judgement, as in MS MARCO's dev, nearly all results are unjudged.
    """
    return [
        one
        for one in measures
        if (judged := one.judged) and judged.judgements >= FIRST * one.queries and judged.relevant < judged.judgements
    ]


def overlap_table(overlaps: Sequence[Overlap]) -> Table:
    """Tabulate all pairs of systems on the splits without judgements."""
    columns = ["split", "system", "other", "queries", "depth", "overlap", "same first", "alone", "other alone"]
    rows = []
    for one in overlaps:
        alone = dict(zip(one.systems, one.alone, strict=True))
        rows += [
            [
                one.split,
                pair.first,
                pair.second,
                one.queries,
                one.depth,
                pair.overlap,
                pair.same_first,
                alone[pair.first],
                alone[pair.second],
            ]
            for pair in one.pairs
        ]
    caption = (
        "no judgements, so there are no measures. Mean share of the top results (depth) that two systems have in "
        "common; share of queries with the same first result; results per query that no other system has there."
    )
    return Table("overlap", caption, frame_of(rows, columns), block="split")


def agreement_table(agreements: Iterable[Agreement]) -> Table:
    """Tabulate how far labels of two splits agree."""
    columns = ["first", "second", "pairs", "kappa", "weighted kappa", "queries", "systems", "measure"]
    columns += ["tau", "low", "high"]
    rows = [
        [
            one.first,
            one.second,
            one.pairs,
            one.kappa,
            one.weighted_kappa,
            one.queries,
            one.systems,
            named(one.measure) if one.measure else MISSING,
            *(one.tau or (None, None, None)),
        ]
        for one in agreements
        if one.pairs
    ]
    caption = (
        "Pairs of a query and a document that two splits judge: Cohen's kappa on relevant or not, and the kappa of "
        "their grades with quadratic weights. Kendall's tau-b of the rankings of systems on the queries of both, with "
        "its 95 % bootstrap interval."
    )
    return Table("agreement", caption, frame_of(rows, columns), headings=INTERVAL)


def depths_table(depths: Sequence[Depths]) -> Table:
    """Tabulate where measures saturate with the number of re-ranked candidates."""
    columns = ["split", "system", "measure", "saturates at", "value there", "deepest", "value at deepest"]
    rows = []
    for one in depths:
        for name, values in one.measures.items():
            depth = one.saturation.get(name)
            there = None if depth is None else values[one.depths.index(depth)]
            rows.append([one.split, one.system, named(name), depth, there, one.depths[-1], values[-1]])
    caption = "number of re-ranked candidates whose doubling adds less than 0.5 %, with the measure there and at most."
    return Table("depths", caption, frame_of(rows, columns), block="split")


def depth_panels(depths: Sequence[Depths], looks: dict[str, int]) -> list[Panel]:
    """Plot quality after re-ranking against the number of candidates: one panel per split and measure."""
    import pandas as pd

    panels = []
    for split, name in dict.fromkeys((one.split, name) for one in depths for name in one.measures):
        curves = {one.system: one for one in depths if one.split == split and name in one.measures}
        series = {system: pd.Series(one.measures[name], one.depths, dtype=float) for system, one in curves.items()}
        frame, label = pd.DataFrame(series).sort_index(), named(name)
        lines = [replace(line, drop=curves[line.label].saturation.get(name)) for line in lines_of(frame, looks)]
        panels.append(Panel(f"{label}, {split}", "re-ranked candidates per query", label, lines, [*frame.index]))
    return [panel for panel in panels if panel.lines]


def consistency_table(factors: Sequence[Consistency]) -> Table:
    """Tabulate RepBERT's consistency factor."""
    columns = ["split", "system", "reference", "n", "C(n)"]
    rows = [
        [one.split, one.system, one.reference, depth, value]
        for one in factors
        for depth, value in zip(one.depths, one.consistency, strict=True)
    ]
    caption = "consistency factor: the share of a system's top n that the reference has in its top 1,000."
    return Table("consistency", caption, frame_of(rows, columns), block="split")


def recall_panels(measures: Sequence[Measures], looks: dict[str, int]) -> list[Panel]:
    """Plot recall against the cutoff: one panel per split with at least two cutoffs, one line per system."""
    import pandas as pd

    panels = []
    for split, block in by_split(measures).items():
        means = {one.system: pd.Series(one.mean, dtype=float) for one in block}
        frame = pd.DataFrame(means).filter(regex=r"^R@", axis=0)
        frame.index = [int(name[2:]) for name in frame.index]
        if len(frame := frame.sort_index()) > 1:
            title = f"{split} ({plural(block[0].queries, 'query', 'queries')})"
            lines = lines_of(frame, looks)
            panels.append(Panel(title, "cutoff k (passages per query)", "recall@k", lines, [*frame.index]))
    return panels


def audits_table(audits: Sequence[Audit]) -> Table:
    """Tabulate all searches, those of the exact one first."""
    names = list(dict.fromkeys(name for one in audits for exact in one.exact for name in exact.measures))
    columns = ["split", "encoder", "depth", "index", "width", "recall of exact", "mean (ms)", "median (ms)"]
    columns += ["times faster", "index (MB)", *(f"loss of {named(name)}" for name in names)]
    rows: list[list[object]] = []
    for place in dict.fromkeys((one.split, one.encoder) for one in audits):
        group = [one for one in audits if (one.split, one.encoder) == place]
        for exact in group[0].exact:
            times = exact.milliseconds
            start = [*place, exact.depth]
            rows.append([*start, "exact", MISSING, 1.0, times.mean, times.median, None, None, *[None] * len(names)])
            for one in group:
                size = one.storage_bytes and one.storage_bytes / 1e6
                # Exact search is timed anew in each audit, perhaps on another machine.
                base = next((each.milliseconds.mean for each in one.exact if each.depth == exact.depth), times.mean)
                for found in (found for found in one.searches if found.depth == exact.depth):
                    own, width = found.milliseconds, f"{one.parameter} {found.width:g}"
                    faster = base / own.mean if own.mean > 0 else None
                    rows.append([*start, one.index, width, found.recall, own.mean, own.median, faster, size])
                    rows[-1] += map(found.loss.get, names)
    caption = (
        "recall of the exact top results, and milliseconds per query, one after the other in one thread; losses are "
        "relative to the exact ranking of the same depth."
    )
    digits = {"recall of exact": 4, "mean (ms)": 2, "median (ms)": 2, "times faster": 1, "index (MB)": 0}
    formats = {name: partial(fixed, digits=number) for name, number in digits.items()}
    formats |= {column: partial(fixed, digits=4) for column in columns[10:]}
    return Table("audits", caption, frame_of(rows, columns), formats, block="split")


def audit_panels(table: Table) -> list[Panel]:
    """Plot recall against time: a panel per split, encoder and depth, a line per index and one for exact search."""
    panels = []
    for (split, encoder, depth), rows in table.frame.groupby(["split", "encoder", "depth"], sort=False):
        exact, searches = rows[rows["index"] == "exact"], rows[rows["index"] != "exact"]
        if searches.empty:
            continue
        lines = [Line("exact search", [*exact["mean (ms)"]] * 2, [min(0.99, *searches["recall of exact"]), 1.0], 0)]
        for look, (name, own) in enumerate(searches.groupby("index", sort=False), start=1):
            own = own.sort_values("mean (ms)", kind="stable")
            lines.append(Line(str(name).upper(), [*own["mean (ms)"]], [*own["recall of exact"]], look))
        ticks = round_numbers([x for line in lines for x in line.x])
        title = f"{encoder}, {split}, top {count(depth)}"
        panels.append(Panel(title, "ms per query, one thread", "recall of exact search", lines, ticks))
    return panels


def trainings_table(
    curves: Mapping[str, pd.DataFrame], selections: Mapping[str, Selection], last_models: Sequence[str]
) -> Table:
    """Tabulate the training runs in numbers, and which model is kept of each."""
    columns = ["training", "updates", "epochs", "last loss", "best validation loss", "chosen by", "not re-ranked"]
    columns += ["before training", "best", "kept", "examples per second"]
    rows = []
    for name, curve in curves.items():
        losses, validation = curve["loss"].dropna(), curve["validation_loss"].dropna()
        # The mean of the last part, because the loss of a single batch says little.
        last = losses.iloc[-max(1, len(losses) // 40) :].mean() if len(losses) else None
        chosen = selections.get(name)
        values = [named(chosen.metric), chosen.unranked, chosen.start, chosen.best] if chosen else ["", *[None] * 3]
        rows.append(
            [
                name,
                int(curve.index.max()),
                curve["epoch"].max(),
                last,
                validation.min() if len(validation) else None,
                *values,
                kept(chosen, name in last_models),
                curve["examples_per_second"].median(),
            ]
        )
    caption = (
        "The last loss is the mean over the last fortieth of the updates. The model kept is chosen by its validation "
        "loss (lower is better) or a validation measure; not re-ranked: candidates in the order of the first stage."
    )
    formats = {column: partial(fixed, digits=4) for column in (*columns[3:5], *columns[6:9])}
    formats |= {"epochs": partial(fixed, digits=1), "examples per second": partial(fixed, digits=1)}
    return Table("trainings", caption, frame_of(rows, columns), formats)


def kept(chosen: Selection | None, is_last: bool) -> str:
    """Say which model of a training is kept."""
    if is_last or chosen is None:
        return "the last model" + (", as configured (checkpoint: last)" if is_last else "")
    text = f"after update {count(chosen.best_step)}" if chosen.best_step else "the initial model: no update was better"
    return text if chosen.better_than_unranked else f"{text}; no better than not re-ranking"


def training_panels(curves: Mapping[str, pd.DataFrame]) -> list[Panel]:
    """Plot raw and smoothed training loss and validation loss: one panel per training."""
    panels = []
    for name, curve in curves.items():
        loss, validation = curve["loss"].dropna(), curve["validation_loss"].dropna()
        smooth = loss.rolling(len(loss) // 40 + 1, center=True, min_periods=1).mean()
        drawn = [("", loss, "faint", 1), ("training loss (moving mean)", smooth, "line", 1)]
        drawn += [("validation loss", validation, "points", 2)]
        thinned = [(label, thin(values), kind, look) for label, values, kind, look in drawn if len(values)]
        lines = [Line(label, [*values.index], [*values], look, kind) for label, values, kind, look in thinned]
        panels += [Panel(name, "update step", "loss", lines)] if lines else []
    return panels


def truncations_table(truncations: Iterable[tuple[str, str, Truncation]]) -> Table:
    """Tabulate how much of its texts each model truncates."""
    columns = ["model", "texts", "number", "mean tokens", "limit", "truncated texts", "truncated tokens"]
    rows = [
        [name, text, one.texts, one.mean_tokens, one.limit, one.cut_texts, one.cut_tokens]
        for name, text, one in truncations
    ]
    caption = (
        "Texts longer than the limit of a model, in tokens without special tokens. The limit for passages of a "
        "cross-encoder assumes a query of mean length."
    )
    formats: dict[str, Format] = dict.fromkeys(("truncated texts", "truncated tokens"), percent)
    formats["mean tokens"] = partial(fixed, digits=1)
    return Table("truncations", caption, frame_of(rows, columns), formats)


def filters_table(filters: Mapping[str, Mapping[str, int]]) -> Table:
    """Tabulate counts of kept and dropped examples."""
    rows = [
        (name, outcome.replace("_", " "), number) for name, own in filters.items() for outcome, number in own.items()
    ]
    caption = "Documents, judgements and examples that filters kept and dropped."
    return Table("filters", caption, frame_of(rows, ["of", "outcome", "number"]))


def latency_table(latencies: Sequence[Latencies]) -> Table:
    """Tabulate the medians of the parts and all statistics of the totals."""
    columns = ["split", "system", "vectors on", "queries at a time", "searches", *PARTS]
    columns += [f"{total} {name}" for total in TOTALS for name in STATISTICS]
    rows = [
        [one.split, row.system, row.device, row.batch, row.searches]
        + [row.milliseconds.get(part, {}).get("p50") for part in PARTS]
        + [row.milliseconds.get(total, {}).get(name) for total in TOTALS for name in STATISTICS]
        for one in latencies
        for row in one.rows
    ]
    caption = (
        "milliseconds of a search after a warm-up: medians of the parts, the total with all parts in sequence "
        "(sequential), and as deployed, with BM25 running in parallel with the dense ranker (concurrent). "
    )
    caption += "; ".join(
        f"Top {one.depth} of {plural(one.queries, 'query', 'queries')} on {one.machine}" for one in latencies
    )
    formats = {column: partial(fixed, digits=1) for column in columns[5:]}
    return Table("latency", caption, frame_of(rows, columns), formats, block="split")


def stages_table(jobs: Sequence[Job]) -> Table:
    """Tabulate wall time and memory per stage."""
    columns = ["stage", "jobs", "total (s)", "longest job (s)", "peak memory (MB)"]
    formats = {"total (s)": duration, "longest job (s)": duration, "peak memory (MB)": memory}
    headings = {"total (s)": "total", "longest job (s)": "longest job", "peak memory (MB)": "peak memory"}
    caption = "Wall time of the jobs of a stage and of its longest job, and the peak memory of a single job."
    return Table("stages", caption, frame_of(jobs, columns), formats, headings)


def findings_table(findings: Sequence[Finding]) -> Table:
    """Tabulate what is in the data; the ids of what is odd are in another table."""
    frame = frame_of([[one.text, one.kind] for one in findings], ["found", "ids"])
    links = {(row, "ids"): "../collection/inspection.csv" for row, one in enumerate(findings) if one.kind}
    return Table("", "What is in the data, and a link to the ids of what is odd.", frame, links=links)


def inputs_table(inputs: Sequence[tuple[str, int, str]]) -> Table:
    """Tabulate the input files."""
    rows = [(path, size, f"{digest[:16]}…") for path, size, digest in inputs]
    return Table("", "Input files.", frame_of(rows, ["file", "bytes", "SHA-256"]))
