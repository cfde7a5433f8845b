"""What jobs get: GPUs and threads of this machine or a cluster, memory and minutes. Speed alone depends on it."""

from workflow.machine import fix_shards, survey

MACHINE = survey(workflow)
SHARDS = fix_shards(
    workflow,
    "encode",
    folders=[f"results/{config['dataset']}/embeddings/{name}" for name in used_models(config, "encoders")],
    default=max(MACHINE.gpus or 0, 1),
)
GPU_THREADS = MACHINE.threads


def growing(base, per_mb=0):
    """Amount of a resource: `base`, and `per_mb` for each megabyte of input; the n-th attempt gets n times as much."""

    def get(wildcards, input, attempt):
        return round(attempt * (base + per_mb * (input.size_mb if per_mb else 0)))

    return get


def times(amount, *path):
    """Amount of a resource for each of as many as the config says at a path given like `setting`'s."""

    def get(wildcards):
        return amount * setting(*path)(wildcards)

    return get


def gpus(asked):
    """GPUs of a job that asks for some: a number, or the path of one in the config."""

    def get(wildcards):
        return MACHINE.gpus_for(asked if isinstance(asked, int) else setting(*asked)(wildcards))

    return get
