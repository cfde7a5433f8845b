"""Build an experiment, and fail if a system is significantly worse than in a stored baseline.

Exits with 1 only if the loss is significant (with --loss: larger than that), with 2 if it cannot tell: something fails,
or queries, judgements or the measure are others, or fewer than 25. `make` itself turns 1 into 2, so CI calls this.

Usage: python -m workflow.gate --configfile my.yaml --baseline baseline.json [--system fused] [--loss 0.01] [--update]
"""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from statistics import fmean

from cort.config import paths
from cort.config.load import ConfigError, load
from cort.evaluation.comparisons import MIN_QUERIES, Tests
from cort.evaluation.gate import Baseline, decide
from cort.formats.artifacts import read_artifact, write_artifact
from cort.gate import lines, measured
from cort.reporting.format import fixed
from cort.runtime.errors import InputError, input_error
from workflow.command_line import new_parser
from workflow.verdict import build

LOSS, UNKNOWN = 1, 2


def run(args: Namespace) -> int:
    """Build, then write the baseline or compare with it.

    :raises InputError: if there is nothing to compare with.
    :raises CalledProcessError: if the build fails.
    """
    experiment, path = load(args.configfile), Path(args.baseline)
    known = None
    if path.exists():
        known = read_artifact(path, Baseline)
    elif not args.update:
        raise input_error(path, "no baseline", "one of an earlier build", "write it with UPDATE=1, and keep it")
    split = args.split or (known.split if known else next(iter(experiment.evaluated_splits), ""))
    if split not in experiment.evaluated_splits:
        judged = ", ".join(experiment.evaluated_splits) or "(there is none)"
        raise input_error("SPLIT", split or "no judged split", f"one of {judged}", "name one of these")
    system, names = args.system or (known.system if known else None), experiment.on_split(split)
    if system and system not in names:
        raise input_error("SYSTEM", system, f"one of {', '.join(names)}", "name one of these")
    systems = [system] if system else names
    needed = [experiment.at(paths.PER_QUERY, split=split, system=name) for name in systems]
    build(Path(args.configfile), *needed, *(experiment.at(file, split=split) for file in (paths.QUERIES, paths.QRELS)))
    now = measured(experiment, systems, split)
    if known is None or args.update:
        write_artifact(path, now)
        about = f"{now.system} on {now.split}, {now.measure} {fixed(fmean(now.values.values()))}"
        sys.stdout.write(f"{path}: {about} on {len(now.values):,} queries\n")
        return 0
    for what in ("split", "system", "measure", "digest"):
        if (found := getattr(now, what)) != (expected := getattr(known, what)):
            found, expected = ("other queries or judgements", "those") if what == "digest" else (found, expected)
            raise input_error(path, found, f"{expected} of the baseline", "compare like with like, or set UPDATE=1")
    settings = experiment.evaluation
    tests = Tests(settings.confidence, settings.resamples, settings.alpha, experiment.root.seed)
    decision = decide(known.values, now.values, args.loss, tests)
    if decision is None:
        few = f"{len(now.values)} queries"
        raise input_error(path, few, f"at least {MIN_QUERIES}", "judge more, and set UPDATE=1")
    sys.stdout.write("".join(f"{line}\n" for line in lines(known, now, decision, args.loss)))
    return LOSS if decision.lost else 0


def main(argv: list[str] | None = None) -> int:
    """Run; 1 after a significant loss, 2 if nothing can be told."""
    parser = new_parser("gate", __doc__)
    parser.add_argument("--baseline", required=True, help="JSON with the values of each query")
    parser.add_argument("--system", help="default: that of the baseline, or the best")
    parser.add_argument("--split", help="default: that of the baseline, or the first that is judged")
    parser.add_argument("--loss", type=float, default=0.0, help="loss of the mean that is accepted (default: 0)")
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    args = parser.parse_args(argv)
    try:
        if not 0 <= args.loss < 1:
            raise input_error("LOSS", args.loss, "a number from 0 to below 1", "give the loss of the mean")
        return run(args)
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
    except subprocess.CalledProcessError:
        # The build has said what is wrong.
        pass
    return UNKNOWN


if __name__ == "__main__":
    sys.exit(main())
