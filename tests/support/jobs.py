"""Jobs of a plan."""

from workflow.planning.dryrun import Job


def job(rule="evaluate", outputs=(), inputs=(), threads=1, gpus=0, benchmark="", **fields):
    """Make a job; names that are no fields of it are wildcards."""
    own = {name: fields.pop(name) for name in ("planned", "reason", "params", "record") if name in fields}
    named = {"rule": rule, "inputs": inputs, "outputs": outputs, "threads": threads, "benchmark": benchmark}
    return Job(**named, resources={"gpu": gpus}, wildcards=fields, **own)
