"""The term-based ranker."""


rule bm25_index:
    input:
        passages=paths.PASSAGES,
    output:
        # One named file: the time of a folder changes when it is copied, and nothing compares its content.
        paths.BM25_INDEX,
    threads: 8
    resources:
        mem_mb=growing(3000),
        heap_mb=growing(1500),
        runtime=growing(120),
    params:
        folder=subpath(output[0], parent=True),
        options=options("bm25.cleaning"),
    message:
        "Index the passages for BM25"
    shell:
        "python -m cort.bm25_index --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --memory-mb {resources.heap_mb} --output {params.folder:q} --log {log:q}"


rule bm25_tune:
    input:
        index=paths.BM25_INDEX,
        queries=paths.at(paths.QUERIES, config, split="train"),
        qrels=paths.at(paths.QRELS, config, split="train"),
    output:
        paths.BM25_PARAMETERS,
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(all_of("bm25.tune"), "splits.train.relevance_level", "depth", "seed"),
    message:
        "Choose k1 and b of BM25 by a grid search over training queries"
    shell:
        "python -m cort.bm25_tune --index {params.index:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " {params.options:q} --threads {threads} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"


rule bm25:
    input:
        index=paths.BM25_INDEX,
        queries=paths.QUERIES,
        parameters=partial(inputs.tuned_parameters, config),
    output:
        paths.RUN,
    wildcard_constraints:
        system=names_of_kind(config, "bm25"),
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(settings.bm25_parameters, settings.depth),
    message:
        "Retrieve {wildcards.split} with {wildcards.system}"
    shell:
        "python -m cort.bm25 --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --memory-mb {resources.heap_mb} --tag {wildcards.system:q} --output {output:q}"
        " --log {log:q}"
