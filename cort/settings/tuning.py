"""Tuning on the queries of a split themselves, by cross-validation."""

from __future__ import annotations

from cort.settings.fields import section, setting

#: fewest and most folds
FEWEST, MOST = 2, 1000


@section
class Folds:
    """What is tuned for, and in how many folds."""

    measure: str = setting(measures=True)
    """Measure that the best weights maximise."""
    folds: int = setting(ge=FEWEST, le=MOST)
    """Parts of the judged queries of a split, drawn with the seed. The weights of a part's queries are chosen on the
    other parts."""
