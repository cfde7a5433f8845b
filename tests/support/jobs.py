"""Jobs of a plan."""

from workflow.planning.dryrun import Job


def job(rule="evaluate", outputs=(), inputs=(), threads=1, gpus=0, benchmark="", **wildcards):
    return Job(0, rule, wildcards, tuple(inputs), tuple(outputs), threads, {"gpu": gpus}, "", benchmark, "python")
