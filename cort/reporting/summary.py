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
        if best is not None:
            place = f"{dataset}, {split} ({plural(block[0].queries, 'query', 'queries')})"
            base = next((one for one in block if one.system == baseline), None)
            found.append(f"On {place}, {_sentence(best, base)}.")
    return found


def _contender(block: Sequence[Measures], baseline: str | None, contender: str | None) -> Measures | None:
    """Pick the system named, or the best by the first measure but for the baseline; the first of several equals."""
    name = next(iter(names_of_measures(block)), "")
    candidates = [one for one in block if one.system == contender or (contender is None and one.system != baseline)]
    known = [(value, one) for one in candidates if (value := one.mean.get(name)) is not None]
    return max(known, key=lambda pair: pair[0], default=(None, None))[1]


def _sentence(best: Measures, base: Measures | None) -> str:
    """Say what changes from `base` to `best`: the first measure, then recall at its lowest and highest cutoff."""
    name, after = next(iter(best.mean.items()))
    before = base.mean.get(name) if base is not None else None
    if base is None or after is None or before is None:
        return f"{best.system} reaches {measure_label(name)} {fixed(after)}"
    text = f"{best.system} {_change(measure_label(name), before, after, base.system)}"
    ours, theirs = _recall(best), _recall(base)
    gains = [f"{signed(ours[k] - theirs[k])} at {count(k)}" for k in sorted(ours) if k > 1 and k in theirs]
    if gains:
        text += f" and changes recall by {' and by '.join(dict.fromkeys((gains[0], gains[-1])))}"
    longest = max(theirs, default=0)
    enough = min((k for k in ours if longest and ours[k] >= theirs[longest]), default=longest)
    if enough < longest:
        # As in section 4.2.1 of the CoRT paper.
        held = f"the relevant passages as the top {count(longest)} of {base.system}"
        text += f"; its top {count(enough)} hold at least as many of {held}"
    return text


def _change(label: str, before: float, after: float, base: str) -> str:
    if round(before, 3) == round(after, 3):
        return f"leaves {label} at {fixed(after)} ({base} has the same)"
    verb = "raises" if after > before else "lowers"
    return f"{verb} {label} from {fixed(before)} ({base}) to {fixed(after)}"


def _recall(one: Measures) -> dict[int, float]:
    """Recall by cutoff."""
    return {k: value for name, value in one.mean.items() if (k := recall_cutoff(name)) and value is not None}
