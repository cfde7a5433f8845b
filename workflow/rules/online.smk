"""The settings that searches read beside the results, and how long searches take."""


rule resolve:
    output:
        paths.EXPERIMENT,
    localrule: True
    params:
        options=options(report_settings.whole_config),
        shards=SHARDS,
    message:
        "Write the settings of {wildcards.dataset} with all defaults"
    shell:
        "python -m cort.resolve {params.options:q} --shards {params.shards} --output {output:q} --log {log:q}"


rule latency:
    input:
        queries=paths.QUERIES,
        opened=lambda wildcards: inputs.searched(config, SHARDS),
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
        options=options("latency.split", "latency.systems", "depth", report_settings.measured, number="latency.queries"),
        shards=SHARDS,
    message:
        "Measure how long searches of {wildcards.split} take"
    shell:
        "python -m cort.latency --queries {input.queries:q} {params.options:q} --shards {params.shards}"
        " --threads {threads} --gpus {resources.gpu} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"
