"""Runs of all kinds of systems, and the tuning of their weights."""


rule bm25:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/bm25/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/bm25/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("bm25"),
    # As `bm25_index`: training waits for these.
    priority: 1
    group:
        of(groups.of_run)
    threads: run_threads
    resources:
        heap_mb=growing(2000),
        mem_mb=growing(3500),
        runtime=growing(240),
    params:
        code=code_of("retrieve bm25"),
        index=subpath(input.index, parent=True),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.retrieve bm25 --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --memory-mb {resources.heap_mb}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule retrieve:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/retrieve/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/retrieve/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("retrieve"),
    threads: min(GPU_THREADS, HALF)
    resources:
        gpu=gpus(1),
        # `--set-resources retrieve:gpu=4 retrieve:devices=4` divides the passages among four GPUs.
        devices=1,
        mem_mb=growing(4000, per_mb=2),
        runtime=growing(240),
    params:
        code=code_of("retrieve exact"),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.retrieve exact --queries {input.queries:q} --passages {input.passages:q} {params.options:q}"
        " --threads {threads} --gpus {resources.devices} --memory-mb {resources.mem_mb}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule retrieve_graph:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/retrieve_graph/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/retrieve_graph/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("retrieve_graph"),
    group:
        of(groups.of_run)
    threads: run_threads
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        code=code_of("retrieve graph"),
        index=subpath(input.index, parent=True),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.retrieve graph --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule retrieve_ivfpq:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/retrieve_ivfpq/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/retrieve_ivfpq/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("retrieve_ivfpq"),
    threads: run_threads
    resources:
        # Files of vectors are mapped; ids are in memory.
        mem_mb=growing(8000, per_mb=0.2),
        runtime=growing(720),
    params:
        code=code_of("retrieve ivfpq"),
        model=folder_of_model,
        index=subpath(input.index, parent=True),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.retrieve ivfpq --model {params.model:q} --index {params.index:q} --queries {input.queries:q}"
        " --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule retrieve_tokens:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/retrieve_tokens/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/retrieve_tokens/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("retrieve_tokens"),
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000, per_mb=1),
        runtime=growing(720),
    params:
        code=code_of("retrieve tokens"),
        model=folder_of_model,
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.retrieve tokens --model {params.model:q} --queries {input.queries:q} --passages {input.passages:q}"
        " {params.options:q} --threads {threads}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule retrieve_impacts:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/retrieve_impacts/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/retrieve_impacts/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("retrieve_impacts"),
    # As `bm25_index`: training waits for these.
    priority: 1
    group:
        of(groups.of_run)
    threads: run_threads
    resources:
        heap_mb=growing(2000),
        mem_mb=growing(3500),
        runtime=growing(240),
    params:
        code=code_of("retrieve impacts"),
        index=subpath(input.index, parent=True),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.retrieve impacts --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --memory-mb {resources.heap_mb}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule fuse:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/fuse/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/fuse/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("fuse"),
    group:
        of(groups.of_run)
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(240),
    params:
        code=code_of("fuse"),
        parts=of(params.parts),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.fuse --runs {input.runs:q} {params.options:q}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule rerank:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/rerank/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/rerank/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("rerank"),
    group:
        of(groups.of_run)
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(240),
    params:
        code=code_of("rerank"),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.rerank --candidates {input.candidates:q} --scores {input.scores:q} {params.options:q}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule import_run:
    input:
        unpack(of(inputs.of_system)),
    output:
        paths.RUN,
    log:
        "logs/{dataset}/import_run/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/import_run/{split}.{system}.tsv"
    wildcard_constraints:
        system=made_by("import_run"),
    group:
        of(groups.of_run)
    resources:
        mem_mb=growing(4000, per_mb=2),
        runtime=growing(240),
    params:
        code=code_of("import_run"),
        options=options(params.run),
    message:
        "Make the run of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.import_run --run {input.run:q} --queries {input.queries:q} --passages {input.passages:q}"
        " {params.options:q}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule tune_weights:
    input:
        unpack(of(inputs.for_tuning)),
        qrels=experiment.at(paths.QRELS, split="validation"),
    output:
        paths.WEIGHTS,
    log:
        "logs/{dataset}/tune_weights/{system}.log",
    benchmark:
        "benchmarks/{dataset}/tune_weights/{system}.tsv"
    wildcard_constraints:
        system=any_of(name for name, system in experiment.systems.items() if system.tune and system.parts()),
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(240),
    params:
        code=code_of("tune weights"),
        options=options(params.tuning, "splits.validation.relevance_level", "collection.aggregate"),
    message:
        "Choose the weights of {wildcards.system} by a grid search over validation queries"
    shell:
        "exec python -m cort.tune weights --runs {input.runs:q} --scores {input.scores:q} --qrels {input.qrels:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


use rule tune_weights as tune_weights_folds with:
    input:
        unpack(of(inputs.for_tuning)),
        qrels=paths.QRELS,
    output:
        paths.FOLD_WEIGHTS,
    log:
        "logs/{dataset}/tune_weights_folds/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/tune_weights_folds/{split}.{system}.tsv"
    params:
        code=code_of("tune weights"),
        options=options(params.tuning, "splits.{split}.relevance_level", "collection.aggregate"),
    message:
        "Choose the weights of {wildcards.system} by cross-validation on {wildcards.split}"
