"""What a searcher opens, and how long its searches take."""


# Names of files alone: none has to be there, and none makes it run again. (With ancient results as input it would
# wait for them, but Snakemake does not look at the params of a job while what it waits for runs again.)
rule manifest:
    output:
        paths.MANIFEST,
    localrule: True
    params:
        options=lambda wildcards: manifest_options(config, shards_of),
    message:
        "List what a searcher of {wildcards.dataset} opens"
    shell:
        "python -m cort.manifest --dataset {wildcards.dataset:q} {params.options:q} --output {output:q} --log {log:q}"


rule latency:
    input:
        manifest=paths.MANIFEST,
        queries=paths.QUERIES,
        opened=lambda wildcards: searched_files(config, shards_of),
    output:
        paths.LATENCY,
    wildcard_constraints:
        # Others were put there by somebody, or made by an experiment that shares these results.
        split=any_of([config["latency"]["split"]] if "latency" in config else []),
    # Nothing else may run meanwhile.
    threads: MACHINE.cores or 8
    resources:
        gpu=gpus("latency.gpus"),
        mem_mb=growing(8000, per_mb=2),
        heap_mb=growing(2000),
        runtime=growing(480),
    params:
        options=options("latency.split", "latency.systems", "depth", number="latency.queries"),
    message:
        "Measure how long searches of {wildcards.split} take"
    shell:
        "python -m cort.latency --manifest {input.manifest:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --gpus {resources.gpu} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"
