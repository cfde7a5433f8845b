"""Indexes: their building, tuning and audits."""

from cort.config.lexical import GridSearch
from cort.config.models import Hnsw, Onng


rule bm25_index:
    input:
        passages=paths.PASSAGES,
        expansions=of(inputs.index_additions, "expanders"),
        term_weights=of(inputs.index_additions, "weighers"),
    output:
        # A file, not the folder: Snakemake cannot compare the content of folders.
        paths.LEXICAL_INDEX,
    log:
        "logs/{dataset}/bm25_index/{lexical}.log",
    benchmark:
        "benchmarks/{dataset}/bm25_index/{lexical}.tsv"
    # Training waits for it. Without priority, smaller jobs would take the cores one by one.
    priority: 1
    group:
        of(groups.of_index)
    threads: 8
    resources:
        mem_mb=growing(3000),
        heap_mb=growing(1500),
        runtime=growing(120),
    params:
        code=code_of("index bm25"),
        folder=subpath(output[0], parent=True),
        options=options(("lexical.{lexical}", "cleaning", "language")),
    message:
        "Index the passages for {wildcards.lexical}"
    shell:
        "exec python -m cort.index bm25 --passages {input.passages:q} --expansions {input.expansions:q}"
        " --term-weights {input.term_weights:q} {params.options:q} --threads {threads}"
        " --memory-mb {resources.heap_mb} --output {params.folder:q} --log {log:q}"


rule bm25_tune:
    input:
        index=paths.LEXICAL_INDEX,
        queries=experiment.at(paths.QUERIES, split="train"),
        qrels=experiment.at(paths.QRELS, split="train"),
        exclude=lambda wildcards: config["splits"].get("train", {}).get("exclude", []),
    output:
        paths.LEXICAL_PARAMETERS,
    log:
        "logs/{dataset}/bm25_tune/{lexical}.log",
    benchmark:
        "benchmarks/{dataset}/bm25_tune/{lexical}.tsv"
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        code=code_of("tune bm25"),
        index=subpath(input.index, parent=True),
        options=options(
            ("lexical.{lexical}.tune", GridSearch),
            "splits.train.relevance_level",
            "collection.aggregate",
            params.dropped,
            "depth",
            "seed",
        ),
    message:
        "Choose k1 and b of {wildcards.lexical} by a grid search over training queries"
    shell:
        "exec python -m cort.tune bm25 --index {params.index:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " {params.options:q} --threads {threads} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"


use rule bm25_tune as bm25_tune_folds with:
    input:
        index=paths.LEXICAL_INDEX,
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        exclude=of(inputs.excluded_results),
    output:
        paths.LEXICAL_FOLDS,
    log:
        "logs/{dataset}/bm25_tune_folds/{lexical}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/bm25_tune_folds/{lexical}.{split}.tsv"
    params:
        code=code_of("tune bm25"),
        index=subpath(input.index, parent=True),
        options=options(
            ("lexical.{lexical}.tune", GridSearch),
            "splits.{split}.relevance_level",
            "collection.aggregate",
            params.dropped,
            "depth",
            "seed",
        ),
    message:
        "Choose k1 and b of {wildcards.lexical} by cross-validation on {wildcards.split}"


rule impact_index:
    input:
        passages=shards(paths.IMPACTS),
    output:
        # A file, not the folder: Snakemake cannot compare the content of folders.
        paths.IMPACT_INDEX,
    log:
        "logs/{dataset}/impact_index/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/impact_index/{encoder}.tsv"
    threads: 8
    resources:
        mem_mb=growing(3000),
        heap_mb=growing(1500),
        runtime=growing(120),
    params:
        code=code_of("index impacts"),
        folder=subpath(output[0], parent=True),
    message:
        "Index the impacts of {wildcards.encoder}"
    shell:
        "exec python -m cort.index impacts --passages {input.passages:q} --threads {threads}"
        " --memory-mb {resources.heap_mb} --output {params.folder:q} --log {log:q}"


rule onng:
    input:
        passages=shards(paths.VECTORS),
    output:
        index_files("onng"),
    log:
        "logs/{dataset}/onng/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/onng/{encoder}.tsv"
    threads: 8
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(1440),
    params:
        code=code_of("index onng"),
        folder=subpath(output[0], parent=True),
        options=options(("encoders.{encoder}.onng", Onng)),
        checkpoints=f"{paths.CHECKPOINTS}/onng/{{encoder}}",
    message:
        "Build the ONNG index over the vectors of {wildcards.encoder}"
    shell:
        "exec python -m cort.index onng --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --output {params.folder:q} --checkpoints {params.checkpoints:q} --log {log:q}"


rule hnsw:
    input:
        passages=shards(paths.VECTORS),
    output:
        index_files("hnsw"),
    log:
        "logs/{dataset}/hnsw/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/hnsw/{encoder}.tsv"
    threads: 8
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(1440),
    params:
        code=code_of("index hnsw"),
        folder=subpath(output[0], parent=True),
        options=options(("encoders.{encoder}.hnsw", Hnsw)),
        checkpoints=f"{paths.CHECKPOINTS}/hnsw/{{encoder}}",
    message:
        "Build the HNSW index over the vectors of {wildcards.encoder}"
    shell:
        "exec python -m cort.index hnsw --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --output {params.folder:q} --checkpoints {params.checkpoints:q} --log {log:q}"


rule ivfpq:
    input:
        passages=of(inputs.vectors_of_index),
    output:
        index_files("ivfpq"),
    log:
        "logs/{dataset}/ivfpq/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/ivfpq/{encoder}.tsv"
    threads: 8
    resources:
        mem_mb=growing(4000, per_mb=0.5),
        runtime=growing(1440),
    params:
        code=code_of("index ivfpq"),
        folder=subpath(output[0], parent=True),
        options=options(params.ivfpq, "seed"),
    message:
        "Build the IVF-PQ index over the vectors of {wildcards.encoder}"
    shell:
        "exec python -m cort.index ivfpq --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --output {params.folder:q} --log {log:q}"


rule audit:
    input:
        queries=paths.QUERY_VECTORS,
        passages=shards(paths.VECTORS),
        qrels=of(inputs.judgements),
        index=f"{paths.GRAPH}meta.json",
    output:
        paths.AUDIT,
    log:
        "logs/{dataset}/audit/{split}.{encoder}.{index}.log",
    benchmark:
        "benchmarks/{dataset}/audit/{split}.{encoder}.{index}.tsv"
    wildcard_constraints:
        index="|".join(GRAPHS),
    # The measured search has one thread; the others keep other jobs from disturbing it.
    threads: 8
    resources:
        mem_mb=growing(4000, per_mb=6),
        runtime=growing(720),
    params:
        code=code_of("audit graph"),
        index=subpath(input.index, parent=True),
        options=options(
            params.audit, "splits.{split}.relevance_level", "collection.aggregate", "seed", sample="audit.queries"
        ),
    message:
        "Audit the index {wildcards.index} of {wildcards.encoder} on {wildcards.split} against exact search"
    shell:
        "exec python -m cort.audit graph --queries {input.queries:q} --passages {input.passages:q} --qrels {input.qrels:q}"
        " --kind {wildcards.index} --index {params.index:q} {params.options:q} --encoder {wildcards.encoder:q}"
        " --split {wildcards.split} --threads {threads} --output {output:q} --log {log:q}"


rule audit_ivfpq:
    input:
        unpack(of(inputs.of_audit)),
        qrels=of(inputs.judgements),
        index=f"{paths.GRAPH}meta.json",
    output:
        paths.AUDIT,
    log:
        "logs/{dataset}/audit_ivfpq/{split}.{encoder}.{index}.log",
    benchmark:
        "benchmarks/{dataset}/audit_ivfpq/{split}.{encoder}.{index}.tsv"
    wildcard_constraints:
        index="ivfpq",
    # The measured search has one thread; the others keep other jobs from disturbing it.
    threads: 8
    resources:
        mem_mb=growing(8000, per_mb=1),
        runtime=growing(720),
    params:
        code=code_of("audit ivfpq"),
        model=folder_of_model,
        index=subpath(input.index, parent=True),
        options=options(
            params.audit,
            params.exact,
            "audit.candidates",
            "splits.{split}.relevance_level",
            "collection.aggregate",
            "seed",
            sample="audit.queries",
        ),
    message:
        "Audit the index {wildcards.index} of {wildcards.encoder} on {wildcards.split} against exact search"
    shell:
        "exec python -m cort.audit ivfpq --model {params.model:q} --queries {input.queries:q} --passages {input.passages:q}"
        " --qrels {input.qrels:q} --kind {wildcards.index} --index {params.index:q} {params.options:q}"
        " --encoder {wildcards.encoder:q} --split {wildcards.split} --threads {threads} --output {output:q} --log {log:q}"
