"""Tuning on the queries of a split themselves, by cross-validation."""

from __future__ import annotations

from cort.runtime.keys import section, setting


@section
class Folds:
    """What is tuned for, and in how many folds."""

    measure: str = setting(help="what to maximise", metavar="NAME", measures=True)
    """Measure that the best weights maximise."""
    folds: int = setting(help="tune for each fold on the queries of the others", metavar="N", ge=2, le=1000)
    """Parts of a split's judged queries, drawn with the seed; values for each are chosen on the others."""
