"""Compare a whole experiment with a single script that does the same by hand (`single_script`).

Both rank a collection with BM25 and a released encoder, tune the weight of their linear fusion on validation queries,
and measure it on test queries; the workflow also writes a report, an explorer and more. Sides alternate; ratios are
medians of the ratios per round. Needs '.[peers]'.

Usage: python -m scripts.bench.end_to_end --data ../shared/data/nfcorpus --model FOLDER [--dtypes float32 bfloat16]
"""

import csv
import json
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scripts.bench import common

CONFIG = """
dataset: end-to-end
collection: {{passages: {data}/collection.tsv}}
splits:
  validation: {{queries: {data}/queries.dev.tsv, qrels: {data}/qrels.dev.tsv, without: test}}
  test: {{queries: {data}/queries.test.tsv, qrels: {data}/qrels.test.tsv}}
encoders: {{dense: {{pretrained: {model}}}}}
systems:
  bm25: {{retrieve: bm25}}
  dense: {{retrieve: dense}}
  fused: {{fuse: {{systems: [dense, bm25], method: linear, tune: nDCG@10}}}}
evaluation: {{measures: [nDCG@10, RR@10, R@100]}}
"""


class Side(NamedTuple):
    """The cost of a run, nDCG@10 of the fusion on test queries, and the seconds of its steps."""

    cost: common.Cost
    value: float
    steps: Mapping[str, float]


def build(data: Path, model: Path) -> Side:
    """Build the experiment in a new folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(CONFIG.format(data=data, model=model), encoding="utf-8")
        program = (Path(sys.executable).with_name("snakemake"), "--snakefile", common.ROOT / "Snakefile")
        cost = common.run(*program, "--cores", "all", "--configfile", "config.yaml", folder=folder)
        [path] = folder.glob("results/*/measures/test/fused.json")
        value = json.loads(path.read_text("utf-8"))["mean"]["nDCG@10"]
        steps = defaultdict[str, float](float)
        for table in folder.glob("benchmarks/**/*.tsv"):
            with open(table, encoding="utf-8") as rows:
                [row] = csv.DictReader(rows, delimiter="\t")
            steps[table.relative_to(folder).parts[2]] += float(row["s"])
    return Side(cost, value, steps)


def run_script(data: Path, model: Path, dtype: str) -> Side:
    """Run the single script."""
    module = "scripts.bench.single_script"
    cost = common.run(sys.executable, "-m", module, "--data", data, "--model", model, "--dtype", dtype)
    answer = json.loads(cost.output.splitlines()[-1])
    return Side(cost, answer["nDCG@10"], answer["steps"])


def main() -> None:
    """Measure and print."""
    args = common.parse(__doc__, data=Path, model=Path, dtypes=["float32", "bfloat16"], rounds=3)
    data, model = args.data.resolve(), args.model.resolve()
    sides = {f"script, {dtype}": partial(run_script, data, model, dtype) for dtype in args.dtypes}
    rounds = common.in_turns(args.rounds, {**sides, "workflow": partial(build, data, model)})
    ours = [side.cost.seconds for side in rounds["workflow"]]
    rows, steps = [], []
    for name, results in rounds.items():
        seconds = [side.cost.seconds for side in results]
        cpu = statistics.median(side.cost.cpu for side in results)
        row = [name, f"{statistics.median(seconds):.1f}", f"{cpu:.1f}", common.ratios(ours, seconds)]
        rows.append([*row, f"{results[0].value:.4f}"])
        longest = Counter(results[-1].steps).most_common()
        steps.append([name, ", ".join(f"{step} {seconds:.1f}" for step, seconds in longest)])
    common.print_table(["", "seconds", "CPU seconds", "workflow / this", "nDCG@10"], rows)
    common.print_table(["", "seconds of steps (rules run in parallel), last round"], steps)


if __name__ == "__main__":
    main()
