"""Tables of the report: the columns of each kind of result, declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from cort.evaluation.agreement import Agreement
from cort.evaluation.comparisons import ALL, TOO_FEW, Comparison, Comparisons
from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.inspection import Finding
from cort.evaluation.measures import FIRST, Measures
from cort.evaluation.overlap import Overlap
from cort.models.truncation import Truncation
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
from cort.reporting.results import Input, Job, Latencies, by_split, names_of_measures
from cort.reporting.tables import Column as C
from cort.reporting.tables import Joined, Place, Table, joined, tabulate
from cort.retrieval.audits import Audit
from cort.systems.timing import PARTS
from cort.training.outcome import Selection

if TYPE_CHECKING:
    import pandas as pd

NO_LABELS: Mapping[str, str] = {}
#: what queries lack, by field of `Measures`
LACKS = {
    "without_results": "without results",
    "without_relevant": "without relevant",
    "short": "with fewer results than the largest cutoff",
}
ONE, TWO, FOUR = (partial(fixed, digits=number) for number in (1, 2, 4))


def mean_of(measure: str, of: str = "mean") -> C:
    """Declare the column of a measure."""
    means = attrgetter(of)
    return C(measure, lambda row: means(row).get(measure))


def against_baseline(rows: Mapping[str, Comparison], baseline: str) -> list[C]:
    """Declare the columns of a system's verdict and difference, by the comparisons of the systems."""

    def value(field: str) -> Callable[[Measures], object]:
        return lambda one: getattr(rows.get(one.system), field, None)

    return [
        C("verdict", lambda one: rows[one.system].verdict if one.system in rows else ""),
        C("difference", value("difference"), signed, f"against {baseline}"),
        C("low", value("difference_low"), signed, INTERVAL["low"]),
        C("high", value("difference_high"), signed, INTERVAL["high"]),
        C("p corrected", value("randomization_test_holm"), p_value),
    ]


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
        verdict, *tests = against_baseline(against, baseline) if against else [None]
        means = [*map(mean_of, shown)]
        columns = [C("split"), C("system"), verdict, *means[:1], *tests, *means[1:]]
        caption = f"{plural(block[0].queries, 'query', 'queries')}; the best in bold."
        if compared and against:
            others = family(next(iter(against.values())).family, compared)
            caption += (
                f" Verdict: whether {named(names[0])} differs significantly from {baseline}, by p corrected over "
                f"{others}; the interval is that of one comparison."
            )
        table = tabulate("", caption, [*filter(None, columns)], block, block="split")
        yield replace(table, bold=bold_of(table.frame, shown))


def systems_table(measures: Sequence[Measures], comparisons: Sequence[Comparisons] = ()) -> Table:
    """Tabulate all systems by all measures; the best of a split are bold, significant differences marked.

    Numbers of queries without results, and without a relevant passage, have a column unless all are 0.
    """
    names = by_cutoff(names_of_measures(measures))
    lacks = [C(name, heading=LACKS[name]) for name in LACKS if any(getattr(row, name) for row in measures)]
    columns = [C("split"), C("system"), C("queries"), C("relevant from", "relevance_level"), *lacks]
    differ = {
        (one.split, row.system, row.measure)
        for one in comparisons
        for row in one.comparisons
        if row.significant and row.baseline == one.baseline
    }
    marked = frozenset(
        (row, name) for row, one in enumerate(measures) for name in names if (one.split, one.system, name) in differ
    )
    note = legend(comparisons[0]) if marked else ""
    caption = f"means over the queries; the best of each column in bold. {note}".rstrip()
    table = tabulate("systems", caption, [*columns, *map(mean_of, names)], measures, block="split")
    return replace(table, bold=bold_of(table.frame, names), marked=marked, note=note)


def paper_table(systems: Table, labels: Mapping[str, str], comparisons: Sequence[Comparisons] = ()) -> Table:
    """Make of the table of systems that of a paper: labels of systems, splits with their queries, and measures."""
    frame, names = systems.frame, [name for name in systems.columns[4:] if name not in LACKS]
    split = frame["split"] + ", " + frame["queries"].map(lambda queries: plural(queries, "query", "queries"))
    labelled = frame.assign(split=split, system=frame["system"].map(labels))[["split", "system", *names]]
    note = legend(comparisons[0], labels) if systems.note else ""
    return replace(systems, frame=labelled, note=note, caption=systems.caption.replace(systems.note, note))


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

    def remark(one: Joined) -> str:
        """Say what a verdict lacks, or why it seems to contradict its interval."""
        row: Comparison = one.row
        said = needed(row) if row.verdict == TOO_FEW else disagreement(row, one.whole) if row.disagrees else ""
        return (said + memory_of(row, shares)).removeprefix("; ")

    columns = [
        *(
            C("split"),
            C("system"),
            C("against", "baseline"),
            C("verdict"),
            C("measure", lambda row: named(row.measure)),
        ),
        *(C("mean"), C("its mean", "baseline_mean"), C("difference", form=signed)),
        *(C(name, f"difference_{name}", signed, heading) for name, heading in INTERVAL.items()),
        C("p", "randomization_test", p_value),
        C("p corrected", "randomization_test_holm", p_value),
        C("corrected over", lambda one: family(one.row.family, one.whole)),
        *(C("won"), C("tied"), C("lost"), C("remark", remark)),
    ]
    caption = (
        "each system against its parts, its encoder before training, the baseline, and the systems it was to be "
        "compared with: the bootstrap interval of each difference by itself; p of the paired randomisation test, and "
        "corrected by Holm's method over the comparisons named, for each measure by itself, which decides the verdict; "
        "queries won and lost."
    )
    rows = joined(comparisons, "comparisons")
    places = ((place, links.get((row.split, row.system, row.baseline))) for place, row in enumerate(rows))
    linked = {(place, "against"): link for place, link in places if link}
    return tabulate("comparisons", caption, columns, rows, block="split", links=linked)


def lengths_table(comparisons: Iterable[Comparisons]) -> Table:
    """Tabulate the shortest lists that reach the recall of the baseline's longest."""
    columns = [C("split"), C("system"), C("shortest list", "depth"), C("its recall", "recall"), C("baseline")]
    columns += [C("baseline's list", "baseline_depth"), C("baseline's recall", "baseline_recall")]
    caption = "how many passages a system needs to reach the recall of the baseline's whole list."
    return tabulate("lists", caption, columns, joined(comparisons, "list_lengths"), block="split")


def judged_table(measures: Sequence[Measures]) -> Table:
    """Tabulate how many of the top results are unjudged, and the measures with and without them."""
    known = [one for one in measures if one.judged]
    columns = [C("split"), C("system"), C("queries"), C("judgements", "judged.judgements")]
    columns += [C("relevant", "judged.relevant"), C(f"top {FIRST}", "judged.results")]
    columns += [C("unjudged", "judged.unjudged"), C("share", share_unjudged, percent)]
    columns += [
        mean_of(name, "judged.mean")
        for name in by_cutoff(name for one in known if one.judged for name in one.judged.mean)
    ]
    caption = (
        f"results among the first {FIRST} of all queries without a judgement, which count as not relevant, and "
        "measures after they are removed from the rankings (judged only)."
    )
    return tabulate("judged", caption, columns, known, block="split")


def share_unjudged(one: Measures) -> float | None:
    """Return which share of the top results is unjudged; None without results."""
    return one.judged.unjudged / one.judged.results if one.judged and one.judged.results else None


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

    def alone(field: str) -> Callable[[Joined], object]:
        return lambda pair: pair.whole.alone[pair.whole.systems.index(getattr(pair, field))]

    columns = [C("split"), C("system", "first"), C("other", "second"), C("queries"), C("depth"), C("overlap")]
    columns += [C("same first"), C("alone", alone("first")), C("other alone", alone("second"))]
    caption = (
        "no judgements, so there are no measures. Mean share of the top results (depth) that two systems have in "
        "common; share of queries with the same first result; results per query that no other system has there."
    )
    return tabulate("overlap", caption, columns, joined(overlaps, "pairs"), block="split")


def agreement_table(agreements: Iterable[Agreement]) -> Table:
    """Tabulate how far labels of two splits agree."""

    def tau(place: int) -> Callable[[Agreement], float | None]:
        return lambda one: one.tau[place] if one.tau else None

    columns = [C("first"), C("second"), C("pairs"), C("kappa"), C("weighted kappa"), C("queries"), C("systems")]
    columns += [C("measure", lambda one: named(one.measure) if one.measure else MISSING), C("tau", tau(0))]
    columns += [C(name, tau(place), heading=text) for place, (name, text) in enumerate(INTERVAL.items(), start=1)]
    caption = (
        "Pairs of a query and a document that two splits judge: Cohen's kappa on relevant or not, and the kappa of "
        "their grades with quadratic weights. Kendall's tau-b of the rankings of systems on the queries of both, with "
        "its 95 % bootstrap interval."
    )
    return tabulate("agreement", caption, columns, [one for one in agreements if one.pairs])


def depths_table(depths: Sequence[Depths]) -> Table:
    """Tabulate where measures saturate with the number of re-ranked candidates."""
    columns = [C("split"), C("system"), C("measure"), C("saturates at"), C("value there"), C("deepest")]
    rows = []
    for one in depths:
        for name, values in one.measures.items():
            depth = one.saturation.get(name)
            there = None if depth is None else values[one.depths.index(depth)]
            rows.append([one.split, one.system, named(name), depth, there, one.depths[-1], values[-1]])
    caption = "number of re-ranked candidates whose doubling adds less than 0.5 %, with the measure there and at most."
    return tabulate("depths", caption, [*columns, C("value at deepest")], rows, block="split")


def consistency_table(factors: Sequence[Consistency]) -> Table:
    """Tabulate RepBERT's consistency factor."""
    rows = [
        [one.split, one.system, one.reference, depth, value]
        for one in factors
        for depth, value in zip(one.depths, one.consistency, strict=True)
    ]
    caption = "consistency factor: the share of a system's top n that the reference has in its top 1,000."
    columns = [C("split"), C("system"), C("reference"), C("n"), C("C(n)")]
    return tabulate("consistency", caption, columns, rows, block="split")


def audits_table(audits: Sequence[Audit]) -> Table:
    """Tabulate all searches, those of the exact one first."""
    names = list(dict.fromkeys(name for one in audits for exact in one.exact for name in exact.measures))
    columns = [C("split"), C("encoder"), C("depth"), C("index"), C("width"), C("recall of exact", form=FOUR)]
    columns += [C("mean (ms)", form=TWO), C("median (ms)", form=TWO), C("times faster", form=ONE)]
    columns += [C("index (MB)", form=count), *(C(f"loss of {named(name)}", form=FOUR) for name in names)]
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
                    cells = [one.index, width, found.recall, own.mean, own.median, faster, size]
                    rows.append([*start, *cells, *map(found.loss.get, names)])
    caption = (
        "recall of the exact top results, and milliseconds per query, one after the other in one thread; losses are "
        "relative to the exact ranking of the same depth."
    )
    return tabulate("audits", caption, columns, rows, block="split")


def trainings_table(
    curves: Mapping[str, pd.DataFrame], selections: Mapping[str, Selection], last_models: Sequence[str]
) -> Table:
    """Tabulate the training runs in numbers, and which model is kept of each."""
    columns = [C("training"), C("updates"), C("epochs", form=ONE), C("last loss", form=FOUR)]
    columns += [C("best validation loss", form=FOUR), C("chosen by"), C("not re-ranked", form=FOUR)]
    columns += [C("before training", form=FOUR), C("best", form=FOUR), C("kept"), C("examples per second", form=ONE)]
    rows = []
    for name, curve in curves.items():
        losses, validation = curve["loss"].dropna(), curve["validation_loss"].dropna()
        # The mean of the last part, because the loss of a single batch says little.
        last = losses.iloc[-max(1, len(losses) // 40) :].mean() if len(losses) else None
        chosen = selections.get(name)
        values = [named(chosen.metric), chosen.unranked, chosen.start, chosen.best] if chosen else ["", *[None] * 3]
        cells = [
            name,
            int(curve.index.max()),
            curve["epoch"].max(),
            last,
            validation.min() if len(validation) else None,
        ]
        rows.append([*cells, *values, kept(chosen, name in last_models), curve["examples_per_second"].median()])
    caption = (
        "The last loss is the mean over the last fortieth of the updates. The model kept is chosen by its validation "
        "loss (lower is better) or a validation measure; not re-ranked: candidates in the order of the first stage."
    )
    return tabulate("trainings", caption, columns, rows)


def kept(chosen: Selection | None, is_last: bool) -> str:
    """Say which model of a training is kept."""
    if is_last or chosen is None:
        return "the last model" + (", as configured (checkpoint: last)" if is_last else "")
    text = f"after update {count(chosen.best_step)}" if chosen.best_step else "the initial model: no update was better"
    return text if chosen.better_than_unranked else f"{text}; no better than not re-ranking"


def truncations_table(truncations: Iterable[tuple[str, str, Truncation]]) -> Table:
    """Tabulate how much of its texts each model truncates."""
    columns = [C("model"), C("texts"), C("number"), C("mean tokens", form=ONE), C("limit")]
    columns += [C(f"truncated {unit}", form=percent) for unit in ("texts", "tokens")]
    rows = [
        [name, text, one.texts, one.mean_tokens, one.limit, one.cut_texts, one.cut_tokens]
        for name, text, one in truncations
    ]
    caption = (
        "Texts longer than the limit of a model, in tokens without special tokens. The limit for passages of a "
        "cross-encoder assumes a query of mean length."
    )
    return tabulate("truncations", caption, columns, rows)


def filters_table(filters: Mapping[str, Mapping[str, int]]) -> Table:
    """Tabulate counts of kept and dropped examples."""
    rows = [[name, kind.replace("_", " "), number] for name, own in filters.items() for kind, number in own.items()]
    caption = "Documents, judgements and examples that filters kept and dropped."
    return tabulate("filters", caption, [C("of"), C("outcome"), C("number")], rows)


def latency_table(latencies: Sequence[Latencies]) -> Table:
    """Tabulate the medians of the parts and all statistics of the totals."""

    def time_of(part: str, statistic: str) -> Callable[[Joined], float | None]:
        return lambda row: row.milliseconds.get(part, {}).get(statistic)

    columns = [C("split"), C("system"), C("vectors on", "device"), C("queries at a time", "batch"), C("searches")]
    columns += [C(part, time_of(part, "p50"), ONE) for part in PARTS]
    columns += [
        C(f"{total} {name}", time_of(total, name), ONE)
        for total in ("sequential", "concurrent")
        for name in ("p50", "p95", "p99", "mean")
    ]
    caption = (
        "milliseconds of a search after a warm-up: medians of the parts, the total with all parts in sequence "
        "(sequential), and as deployed, with BM25 running in parallel with the dense ranker (concurrent). "
    )
    caption += "; ".join(
        f"Top {one.depth} of {plural(one.queries, 'query', 'queries')} on {one.machine}" for one in latencies
    )
    return tabulate("latency", caption, columns, joined(latencies, "rows"), block="split")


def stages_table(jobs: Sequence[Job]) -> Table:
    """Tabulate wall time and memory per stage."""
    columns = [C("stage", "rule"), C("jobs"), C("total (s)", "seconds", duration, "total")]
    columns += [C("longest job (s)", "longest", duration, "longest job")]
    columns += [C("peak memory (MB)", "peak_mb", memory, "peak memory")]
    caption = "Wall time of the jobs of a stage and of its longest job, and the peak memory of a single job."
    return tabulate("stages", caption, columns, jobs)


def findings_table(findings: Sequence[Finding]) -> Table:
    """Tabulate what is in the data; the ids of what is odd are in another table."""
    links = {(row, "ids"): "../collection/inspection.csv" for row, one in enumerate(findings) if one.kind}
    caption = "What is in the data, and a link to the ids of what is odd."
    return tabulate("", caption, [C("found", "text"), C("ids", "kind")], findings, links=links)


def inputs_table(inputs: Sequence[Input]) -> Table:
    """Tabulate the input files."""
    columns = [C("file", "path"), C("bytes"), C("SHA-256", lambda one: f"{one.sha256[:16]}…")]
    return tabulate("", "Input files.", columns, inputs)
