"""State that what some rules made stays valid under today's code: nothing is computed, no file of theirs changes.

Snakemake's records of the rules' outputs get today's code; settings that differ are still a reason to run again.
What was accepted, and when, is kept in results/<dataset>/accepted.json, which `provenance` records.

Usage: python -m workflow.accept train encode [--configfile config/pydocs.yaml]
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from snakemake.exceptions import WorkflowError

from cort.system.errors import input_error
from cort.system.files import write_text
from workflow import paths, snakemake_api
from workflow.experiment.checks import ConfigError, load
from workflow.lock import claim
from workflow.params import code_of, read_code


def accept(dataset: str, rules: list[str]) -> dict[str, int]:
    """Give the records of the rules' outputs today's code; the number of outputs that had another, by rule.

    :raises ValueError: when a rule has made nothing, so that there is nothing to accept.
    """
    folder = paths.DATASET.format(dataset=dataset)
    records = [(path, record) for path, output, record in snakemake_api.records() if output.startswith(f"{folder}/")]
    found = [(path, record) for path, record in records if record]
    known = sorted({record["rule"] for _, record in found})
    if unknown := [rule for rule in rules if rule not in known]:
        names = ", ".join(known) or "(none has made anything)"
        raise ValueError(f"RULES: found {unknown[0]}, expected one of {names}; name a rule that made files of {folder}")
    accepted = read_accepted(dataset)
    counts = dict.fromkeys(rules, 0)
    for path, record in found:
        old = next(filter(None, map(read_code, record["params"] or [])), None)
        if record["rule"] not in counts or old is None or old == (new := code_of(_stage_of(old))):
            continue
        change, entries = {"old": old, "new": new}, accepted.setdefault(record["rule"], [])
        if not any(entry | change == entry for entry in entries):
            entries.append(change | {"date": datetime.now(UTC).isoformat(timespec="seconds")})
        record["params"] = sorted(repr(new) if read_code(param) else param for param in record["params"])
        write_text(path, json.dumps(record))
        counts[record["rule"]] += 1
    if any(counts.values()):
        write_text(paths.ACCEPTED.format(dataset=dataset), json.dumps(accepted, indent=2) + "\n")
    return counts


def read_accepted(dataset: str) -> dict[str, list[dict[str, Any]]]:
    """Read what was accepted before, by rule.

    :raises InputError: when the file is broken.
    """
    path = Path(paths.ACCEPTED.format(dataset=dataset))
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_bytes())
        if all(isinstance(entry, dict) for entries in found.values() for entry in entries):
            return dict(found)
    except (OSError, ValueError, AttributeError, TypeError):
        pass
    fix = "restore it from a copy, or delete it, which loses what was accepted before"
    raise input_error(path, "no JSON of what was accepted", "what an earlier `make accept` wrote", fix)


def _stage_of(code: dict[str, str]) -> str:
    """Name the stage whose code it is: the one in it, as no stage imports another."""
    return next(path.stem for path in map(PurePath, code) if path.match("cort/*.py") and path.stem != "__init__")


def main(argv: list[str] | None = None) -> int:
    """Accept, and say what; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workflow.accept", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rules", nargs="+", metavar="RULE")
    parser.add_argument("--configfile", default="config/pydocs.yaml")
    args = parser.parse_args(argv)
    try:
        dataset = load(args.configfile)["dataset"]
        # A workflow at work writes these records, too.
        claim(dataset)
        counts = accept(dataset, args.rules)
    except (ConfigError, ValueError, WorkflowError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for rule, count in counts.items():
        words = f"{count} files stay valid under today's code" if count else "nothing was made by other code"
        sys.stdout.write(f"{rule}: {words}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
