"""Jobs of a plan: `python -m tests.support.jobs FILE OPTIONS` writes those of a command line of Snakemake to a file."""

import json
import sys
from pathlib import Path

from workflow.snakemake_api import Job, plan


def job(rule="evaluate", **fields):
    """Make a job; names that are no fields of it are wildcards."""
    own = {name: fields.pop(name) for name in list(fields) if name in Job.__dataclass_fields__}
    return Job(rule=rule, wildcards=fields, **own)


if __name__ == "__main__":
    jobs, _ = plan(sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps([{**vars(one), "reason": None, "record": None} for one in jobs]), "utf-8")
