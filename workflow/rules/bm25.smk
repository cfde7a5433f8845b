"""The term-based ranker."""


rule bm25_index:
    input:
        script="cort/bm25_index.py",
        passages="results/{dataset}/collection/passages.parquet",
    output:
        # One named file: the time of a folder changes when it is copied, and nothing compares its content.
        "results/{dataset}/bm25/index/manifest.json",
    log:
        "logs/{dataset}/bm25_index.log",
    benchmark:
        "benchmarks/{dataset}/bm25_index/bm25_index.tsv"
    conda:
        "../envs/cort.yaml"
    threads: 8
    resources:
        mem_mb=growing(3000),
        heap_mb=growing(1500),
        runtime=growing(120),
    params:
        module=as_py_module(),
        folder=subpath(output[0], parent=True),
        cleaning=setting("bm25", "cleaning"),
    message:
        "Index the passages for BM25"
    shell:
        "python -m {params.module} --passages {input.passages:q} --cleaning {params.cleaning} --threads {threads} --memory-mb {resources.heap_mb}"
        " --output {params.folder:q} --log {log:q}"


rule bm25_tune:
    input:
        script="cort/bm25_tune.py",
        index="results/{dataset}/bm25/index/manifest.json",
        queries="results/{dataset}/collection/queries.train.parquet",
        qrels="results/{dataset}/collection/qrels.train.parquet",
    output:
        "results/{dataset}/bm25/parameters.json",
    log:
        "logs/{dataset}/bm25_tune.log",
    benchmark:
        "benchmarks/{dataset}/bm25_tune/bm25_tune.tsv"
    conda:
        "../envs/cort.yaml"
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        module=as_py_module(),
        index=subpath(input.index, parent=True),
        k1=setting("bm25", "tune", "k1"),
        b=setting("bm25", "tune", "b"),
        options=options(("bm25", "tune"), "samples", "sample_size", "measure"),
        relevance_level=setting("splits", "train", "relevance_level"),
        depth=setting("depth"),
        seed=setting("seed"),
    message:
        "Choose k1 and b of BM25 by a grid search over training queries"
    shell:
        "python -m {params.module} --index {params.index:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " --k1 {params.k1} --b {params.b} {params.options:q} --relevance-level {params.relevance_level}"
        " --depth {params.depth} --seed {params.seed} --threads {threads} --memory-mb {resources.heap_mb}"
        " --output {output:q} --log {log:q}"


rule bm25:
    input:
        script="cort/bm25.py",
        index="results/{dataset}/bm25/index/manifest.json",
        queries="results/{dataset}/collection/queries.{split}.parquet",
        parameters=get_tuned,
    output:
        "results/{dataset}/runs/{split}/{system}.trec",
    log:
        "logs/{dataset}/bm25/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/bm25/{split}.{system}.tsv"
    wildcard_constraints:
        system=names_of_kind(config, "bm25"),
    conda:
        "../envs/cort.yaml"
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        module=as_py_module(),
        index=subpath(input.index, parent=True),
        parameters=get_bm25_parameters,
        depth=get_depth,
    message:
        "Retrieve {wildcards.split} with {wildcards.system}"
    shell:
        "python -m {params.module} --index {params.index:q} --queries {input.queries:q} {params.parameters:q}"
        " --depth {params.depth} --threads {threads} --memory-mb {resources.heap_mb} --tag {wildcards.system:q}"
        " --output {output:q} --log {log:q}"
