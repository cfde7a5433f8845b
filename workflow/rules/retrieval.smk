"""Systems that turn vectors or other runs into runs."""


rule onng:
    input:
        script="cort/onng.py",
        passages=gather.encode("results/{{dataset}}/embeddings/{{encoder}}/passages.{scatteritem}.arrow"),
    output:
        multiext("results/{dataset}/onng/{encoder}/", *ONNG_FILES),
    log:
        "logs/{dataset}/onng/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/onng/{encoder}.tsv"
    conda:
        "../envs/cort.yaml"
    threads: 8
    resources:
        checkpoint_seconds=600,
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(1440),
    params:
        module=as_py_module(),
        folder=subpath(output[0], parent=True),
        options=options(("encoders", "{encoder}", "onng"), "edges", "outgoing", "incoming"),
    message:
        "Build the ONNG index over the vectors of {wildcards.encoder}"
    shell:
        "python -m {params.module} --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --output {params.folder:q}"
        # Not an output: Snakemake deletes those of a job that ended early, and a retry goes on from here.
        " --checkpoints results/{wildcards.dataset:q}/checkpoints/onng/{wildcards.encoder:q}"
        " --checkpoint-every {resources.checkpoint_seconds} --log {log:q}"


rule hnsw:
    input:
        script="cort/hnsw.py",
        passages=gather.encode("results/{{dataset}}/embeddings/{{encoder}}/passages.{scatteritem}.arrow"),
    output:
        multiext("results/{dataset}/hnsw/{encoder}/", *HNSW_FILES),
    log:
        "logs/{dataset}/hnsw/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/hnsw/{encoder}.tsv"
    conda:
        "../envs/cort.yaml"
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(1440),
    params:
        module=as_py_module(),
        folder=subpath(output[0], parent=True),
        options=options(("encoders", "{encoder}", "hnsw"), "M", "ef_construction"),
    message:
        "Build the HNSW index over the vectors of {wildcards.encoder}"
    shell:
        "python -m {params.module} --passages {input.passages:q} {params.options:q} --output {params.folder:q}"
        " --log {log:q}"


rule audit:
    input:
        script="cort/audit.py",
        queries="results/{dataset}/embeddings/{encoder}/queries.{split}.arrow",
        passages=gather.encode("results/{{dataset}}/embeddings/{{encoder}}/passages.{scatteritem}.arrow"),
        qrels="results/{dataset}/collection/qrels.{split}.parquet",
        index="results/{dataset}/{index}/{encoder}/meta.json",
    output:
        "results/{dataset}/audit/{split}/{encoder}.{index}.json",
    log:
        "logs/{dataset}/audit/{split}.{encoder}.{index}.log",
    benchmark:
        "benchmarks/{dataset}/audit/{split}.{encoder}.{index}.tsv"
    conda:
        "../envs/cort.yaml"
    # What is timed has one thread; the others keep a small machine free of other jobs meanwhile.
    threads: 8
    resources:
        mem_mb=growing(4000, per_mb=6),
        runtime=growing(720),
    params:
        module=as_py_module(),
        index=subpath(input.index, parent=True),
        settings=get_audit_settings,
        seed=setting("seed"),
    message:
        "Measure the index {wildcards.index} of {wildcards.encoder} on {wildcards.split} against exact search"
    shell:
        "python -m {params.module} --queries {input.queries:q} --passages {input.passages:q} --qrels {input.qrels:q}"
        " --kind {wildcards.index} --index {params.index:q} {params.settings:q} --seed {params.seed}"
        " --encoder {wildcards.encoder:q} --split {wildcards.split} --threads {threads} --output {output:q} --log {log:q}"


rule retrieve:
    input:
        script="cort/retrieve.py",
        queries=get_query_vectors,
        passages=get_vectors,
    output:
        "results/{dataset}/runs/{split}/{system}.trec",
    log:
        "logs/{dataset}/retrieve/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/retrieve/{split}.{system}.tsv"
    wildcard_constraints:
        system=names_of_kind(config, "exact"),
    conda:
        "../envs/cort.yaml"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        # `--set-resources retrieve:gpu=4 retrieve:devices=4` has four GPUs share the passages.
        devices=1,
        mem_mb=growing(4000, per_mb=2),
        runtime=growing(240),
    params:
        module=as_py_module(),
        depth=get_depth,
    message:
        "Retrieve {wildcards.split} with {wildcards.system}, exactly"
    shell:
        "python -m {params.module} --queries {input.queries:q} --passages {input.passages:q} --depth {params.depth}"
        " --threads {threads} --gpus {resources.devices} --memory-mb {resources.mem_mb} --tag {wildcards.system:q}"
        " --output {output:q} --log {log:q}"


rule retrieve_graph:
    input:
        script="cort/retrieve_graph.py",
        queries=get_query_vectors,
        index=get_index,
        audit=get_audit,
    output:
        "results/{dataset}/runs/{split}/{system}.trec",
    log:
        "logs/{dataset}/retrieve_graph/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/retrieve_graph/{split}.{system}.tsv"
    wildcard_constraints:
        system=names_of_kind(config, *GRAPHS),
    conda:
        "../envs/cort.yaml"
    threads: 8
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        module=as_py_module(),
        kind=get_kind,
        index=subpath(input.index, parent=True),
        width=get_width,
        depth=get_depth,
    message:
        "Retrieve {wildcards.split} with {wildcards.system}, through a graph index"
    shell:
        "python -m {params.module} --kind {params.kind} --index {params.index:q} {params.width:q}"
        " --queries {input.queries:q} --depth {params.depth} --threads {threads} --tag {wildcards.system:q}"
        " --output {output:q} --log {log:q}"


rule fuse:
    input:
        script="cort/fuse.py",
        runs=get_fused,
    output:
        "results/{dataset}/runs/{split}/{system}.trec",
    log:
        "logs/{dataset}/fuse/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/fuse/{split}.{system}.tsv"
    wildcard_constraints:
        system=names_of_kind(config, "interleave", "fuse"),
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        method=get_fusion,
        depth=get_depth,
        # Their order counts, and inputs in another order make nothing run again.
        order=get_order,
    message:
        "Merge the runs of {wildcards.system} on {wildcards.split}"
    shell:
        "python -m {params.module} --method {params.method} --runs {input.runs:q} --depth {params.depth}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule import_run:
    input:
        script="cort/import_run.py",
        run=get_published_run,
        queries="results/{dataset}/collection/queries.{split}.parquet",
        passages="results/{dataset}/collection/passages.parquet",
    output:
        "results/{dataset}/runs/{split}/{system}.trec",
    log:
        "logs/{dataset}/import_run/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/import_run/{split}.{system}.tsv"
    wildcard_constraints:
        system=names_of_kind(config, "run"),
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        depth=get_depth,
    message:
        "Import the published run {wildcards.system} for {wildcards.split}"
    shell:
        "python -m {params.module} --run {input.run:q} --queries {input.queries:q} --passages {input.passages:q}"
        " --depth {params.depth} --tag {wildcards.system:q} --output {output:q} --log {log:q}"
