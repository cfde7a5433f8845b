"""What the steps of a rehearsal share: what a step is, and how much the parts are that do not grow with the size."""

from collections.abc import Callable
from pathlib import Path

DEV_QUERIES, TRAIN_QUERIES = 6_980, 808_731
DIMENSION, DEPTH, TRAINING_DEPTH = 128, 1_000, 100
# At every size: texts encoded or weighed, passages that queries are written about, examples trained on, queries of
# train searched, and queries searched in indexes of changed texts and by late interaction.
ENCODED, EXPANDED, EXAMPLES, SEARCHED, CHANGED_QUERIES, LATE_QUERIES = 16_384, 1_024, 240, 3_159, 1_000, 16
# One vector in so many is in the graph; of one passage in so many there are token vectors.
GRAPH, LATE = 256, 16
Prepare = Callable[[], object] | None


class Step:
    """One call of a stage, a module of cort/; its cost should be proportional to the number `n` of `unit`."""

    def __init__(
        self, name: str, n: float, unit: str, note: str = "", prepare: Prepare = None, /, **options: object
    ) -> None:
        self.name, self.n, self.unit, self.note, self.prepare, self.options = name, n, unit, note, prepare, options
        self.stage = name.split()[0]
        self.outputs = [Path(str(path)) for option, path in options.items() if option.startswith("output")]


def training_outputs(folder: Path) -> dict[str, Path]:
    """Options that say where a training writes."""
    return {"output": folder, "output_curve": folder / "curve.csv", "output_selection": folder / "selection.json"}


def first_shard(stage: str, passages: int, part: int, note: str = "", /, **options: object) -> Step:
    """Have a stage work on the first shard of the passages, of about `part`, by the model trained before."""
    shards = max(passages // part, 1)
    note = f"that model, shard 1 of {shards}{note}"
    return Step(stage, passages / shards, "passages", note, **options, shard=f"1-of-{shards}")
