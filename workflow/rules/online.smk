"""What a searcher opens, and how long its searches take."""


rule manifest:
    input:
        # Names of files alone: none has to be there, and none makes it run again. (With ancient results as input it would
        # wait for them, but Snakemake does not look at the params of a job while what it waits for runs again.)
        script="cort/manifest.py",
    output:
        "results/{dataset}/manifest.json",
    log:
        "logs/{dataset}/manifest.log",
    benchmark:
        "benchmarks/{dataset}/manifest/manifest.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        options=get_manifest_options,
    message:
        "List what a searcher of {wildcards.dataset} opens"
    shell:
        "python -m {params.module} --dataset {wildcards.dataset:q} {params.options:q} --output {output:q} --log {log:q}"


rule latency:
    input:
        script="cort/latency.py",
        manifest="results/{dataset}/manifest.json",
        queries="results/{dataset}/collection/queries.{split}.parquet",
        opened=get_searched_files,
    output:
        "results/{dataset}/latency/{split}.json",
    log:
        "logs/{dataset}/latency/{split}.log",
    benchmark:
        "benchmarks/{dataset}/latency/{split}.tsv"
    conda:
        "../envs/cort.yaml"
    # Nothing else may run meanwhile.
    threads: MACHINE.cores or 8
    resources:
        gpu=gpus(("latency", "gpus")),
        mem_mb=growing(8000, per_mb=2),
        heap_mb=growing(2000),
        runtime=growing(480),
    params:
        module=as_py_module(),
        options=options(("latency",), "split"),
        number=setting("latency", "queries"),
        systems=setting("latency", "systems"),
        depth=setting("depth"),
    message:
        "Measure how long searches of {wildcards.split} take"
    shell:
        "python -m {params.module} --manifest {input.manifest:q} --queries {input.queries:q} {params.options:q}"
        " --number {params.number} --systems {params.systems:q} --depth {params.depth} --threads {threads}"
        " --gpus {resources.gpu} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"
