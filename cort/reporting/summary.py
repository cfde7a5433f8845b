"""The result in one sentence per split, made from the numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

from cort.evaluation.measures import Measures
from cort.reporting.labels import count, fixed, measure_label, plural, recall_cutoff, signed
from cort.reporting.tables import by_split, names_of_measures


def headlines(
    dataset: str, measures: Sequence[Measures], baseline: str | None = None, contender: str | None = None
) -> list[str]:
    """Say for each split what the contender adds to the baseline.

    :param baseline: None says only which system is best.
    :param contender: None takes the system that is best by the first measure.
    """
    found = []
    for split, block in by_split(measures).items():
        best = _contender(block, baseline, contender)
        if best is None:
            continue
        place = f"{dataset}, {split} ({plural(block[0].queries, 'query', 'queries')})"
        base = next((one for one in block if one.system == baseline), None)
        found.append(f"On {place}, {_leader(best) if base is None else _sentence(best, base)}.")
    return found


def _contender(block: Sequence[Measures], baseline: str | None, contender: str | None) -> Measures | None:
    """Pick the system named, or the best by the first measure but for the baseline; the first of several equals."""
    candidates = [one for one in block if one.system == contender or (contender is None and one.system != baseline)]
    name = _first_measure(block)
    known = [(one.mean.get(name), one) for one in candidates]
    ranked = sorted(((value, one) for value, one in known if value is not None), key=lambda pair: -pair[0])
    return ranked[0][1] if ranked else None


def _first_measure(block: Sequence[Measures]) -> str:
    return next(iter(names_of_measures(block)), "")


def _leader(best: Measures) -> str:
    name = _first_measure([best])
    return f"{best.system} reaches {measure_label(name)} {fixed(best.mean[name])}"


def _sentence(best: Measures, base: Measures) -> str:
    """Say what changes from `base` to `best`: the first measure, then recall at its lowest and highest cutoff."""
    name = _first_measure([best])
    after, before = best.mean[name], base.mean.get(name)
    if after is None or before is None:
        return _leader(best)
    parts = [f"{best.system} {_change(measure_label(name), before, after, base.system)}"]
    gains = _recall_gains(best, base)
    if gains:
        ends = gains if len(gains) == 1 else [gains[0], gains[-1]]
        parts.append(f"changes recall by {' and by '.join(f'{signed(gain)} at {count(k)}' for k, gain in ends)}")
    text = " and ".join(parts)
    reach = _shorter_list(best, base)
    return f"{text}; {reach}" if reach else text


def _change(label: str, before: float, after: float, base: str) -> str:
    if round(before, 3) == round(after, 3):
        return f"leaves {label} at {fixed(after)} ({base} has the same)"
    verb = "raises" if after > before else "lowers"
    return f"{verb} {label} from {fixed(before)} ({base}) to {fixed(after)}"


def _recall_gains(best: Measures, base: Measures) -> list[tuple[int, float]]:
    found = []
    for name, after in best.mean.items():
        cutoff, before = recall_cutoff(name), base.mean.get(name)
        if cutoff is not None and cutoff > 1 and after is not None and before is not None:
            found.append((cutoff, after - before))
    return sorted(found)


def _shorter_list(best: Measures, base: Measures) -> str:
    """Say whether a shorter list of the one holds at least what the longest list of the other holds (section 4.2.1)."""
    known = [(k, value) for name, value in base.mean.items() if (k := recall_cutoff(name)) and value is not None]
    if not known:
        return ""
    longest, held = max(known)
    enough = [
        k for name, value in best.mean.items() if (k := recall_cutoff(name)) and value is not None and value >= held
    ]
    if not enough or min(enough) >= longest:
        return ""
    return (
        f"its top {count(min(enough))} hold at least as many of the relevant passages as the top {count(longest)} "
        f"of {base.system}"
    )
