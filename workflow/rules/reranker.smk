"""The cross-encoder: pairs, training, scores, re-ranked runs."""


rule pairs:
    input:
        script="cort/pairs.py",
        qrels="results/{dataset}/collection/qrels.{split}.parquet",
        run=teacher_of("rerankers", "pairs"),
    output:
        pairs="results/{dataset}/pairs/{reranker}.{split}.parquet",
        counts="results/{dataset}/pairs/{reranker}.{split}.json",
    log:
        "logs/{dataset}/pairs/{reranker}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/pairs/{reranker}.{split}.tsv"
    conda:
        "../envs/cort.yaml"
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        module=as_py_module(),
        options=options(
            ("rerankers", "{reranker}", "pairs"),
            "first_rank",
            "last_rank",
            "minimum_results",
            "maximum_queries",
            "negatives",
        ),
        relevance_level=setting("splits", "{split}", "relevance_level"),
        epochs=get_epochs("rerankers"),
        seed=setting("seed"),
    message:
        "Sample pairs of {wildcards.split} for {wildcards.reranker}"
    shell:
        "python -m {params.module} --qrels {input.qrels:q} --run {input.run:q} {params.options:q}"
        " --relevance-level {params.relevance_level} --epochs {params.epochs} --seed {params.seed}"
        " --output {output.pairs:q} --output-counts {output.counts:q} --log {log:q}"


rule train_reranker:
    input:
        script="cort/train_reranker.py",
        base_model=base_model_of("rerankers"),
        pairs="results/{dataset}/pairs/{reranker}.train.parquet",
        validation_pairs="results/{dataset}/pairs/{reranker}.validation.parquet",
        passages=tokens_of("rerankers", "passages"),
        queries=tokens_of("rerankers", "queries.train"),
        validation_queries=tokens_of("rerankers", "queries.validation"),
        validation_run=for_selection("rerankers", "runs/validation/{system}.trec"),
        validation_qrels=for_selection("rerankers", "collection/qrels.validation.parquet"),
    output:
        best=guarded(
            multiext(
                "results/{dataset}/rerankers/{reranker}/best/",
                *MODEL_FILES,
                "reranker.json",
            )
        ),
        last=guarded(
            multiext(
                "results/{dataset}/rerankers/{reranker}/last/",
                *MODEL_FILES,
                "reranker.json",
            )
        ),
        curve="results/{dataset}/rerankers/{reranker}/curve.csv",
    log:
        "logs/{dataset}/train_reranker/{reranker}.log",
    benchmark:
        "benchmarks/{dataset}/train_reranker/{reranker}.tsv"
    conda:
        "../envs/cort.yaml"
    threads: 8
    resources:
        gpu=gpus(("rerankers", "{reranker}", "training", "gpus")),
        processes=setting("rerankers", "{reranker}", "training", "gpus"),
        checkpoint_seconds=600,
        mem_mb=times(16000, "rerankers", "{reranker}", "training", "gpus"),
        runtime=1440,
    params:
        module=as_py_module(),
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output.curve, parent=True),
        options=options(("rerankers", "{reranker}"), "query_length", "max_length"),
        relevance_level=setting("splits", "train", "relevance_level"),
        training=options(("rerankers", "{reranker}", "training"), *TRAINING_NAMES),
        seed=setting("seed"),
    message:
        "Train the re-ranker {wildcards.reranker}"
    shell:
        "python -m {params.module} --base-model {params.base_model:q} --pairs {input.pairs:q}"
        " --validation-pairs {input.validation_pairs:q} --passages {input.passages:q} --queries {input.queries:q}"
        " --validation-queries {input.validation_queries:q} --validation-run {input.validation_run:q}"
        " --validation-qrels {input.validation_qrels:q} --relevance-level {params.relevance_level}"
        " {params.options:q} {params.training:q}"
        " --seed {params.seed} --threads {threads} --processes {resources.processes} --output {params.folder:q}"
        " --output-curve {output.curve:q}"
        # Not an output: Snakemake deletes those of a job that ended early, and a retry goes on from here.
        " --checkpoints results/{wildcards.dataset:q}/checkpoints/rerankers/{wildcards.reranker:q}"
        " --checkpoint-every {resources.checkpoint_seconds} --events logs/{wildcards.dataset:q}/events/{wildcards.reranker:q}"
        " --log {log:q}"


rule score:
    input:
        script="cort/score.py",
        model=checkpoint_of("rerankers"),
        candidates=get_all_candidates,
        queries=tokens_of("rerankers", "queries.{split}"),
        passages=tokens_of("rerankers", "passages"),
    output:
        "results/{dataset}/scores/{reranker}/{split}.parquet",
    log:
        "logs/{dataset}/score/{reranker}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/score/{reranker}.{split}.tsv"
    conda:
        "../envs/cort.yaml"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(720),
    params:
        module=as_py_module(),
        model=subpath(input.model, parent=True),
        options=options(("rerankers", "{reranker}"), "depth", "precision"),
    message:
        "Score the candidates of {wildcards.split} with {wildcards.reranker}, each pair once"
    shell:
        "python -m {params.module} --model {params.model:q} --candidates {input.candidates:q} {params.options:q}"
        " --queries {input.queries:q} --passages {input.passages:q} --threads {threads} --output {output:q}"
        " --checkpoints results/{wildcards.dataset:q}/checkpoints/scores/{wildcards.reranker:q}/{wildcards.split} --log {log:q}"


rule score_triples:
    input:
        script="cort/score.py",
        model=checkpoint_of("rerankers"),
        triples="results/{dataset}/triples/{encoder}.{split}.parquet",
        queries=tokens_of("rerankers", "queries.{split}"),
        passages=tokens_of("rerankers", "passages"),
    output:
        "results/{dataset}/scores/{reranker}/triples/{encoder}.{split}.parquet",
    log:
        "logs/{dataset}/score_triples/{reranker}.{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/score_triples/{reranker}.{encoder}.{split}.tsv"
    conda:
        "../envs/cort.yaml"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        module=as_py_module(),
        model=subpath(input.model, parent=True),
        options=options(("rerankers", "{reranker}"), "precision"),
    message:
        "Score the triples of {wildcards.encoder} for {wildcards.split} with {wildcards.reranker}, each pair once"
    shell:
        "python -m {params.module} --model {params.model:q} --triples {input.triples:q} {params.options:q}"
        " --queries {input.queries:q} --passages {input.passages:q} --threads {threads} --output {output:q}"
        " --checkpoints results/{wildcards.dataset:q}/checkpoints/scores/{wildcards.reranker:q}/triples/{wildcards.encoder:q}.{wildcards.split} --log {log:q}"


rule rerank:
    input:
        script="cort/rerank.py",
        candidates=get_candidates,
        scores=get_scores,
    output:
        "results/{dataset}/runs/{split}/{system}.trec",
    log:
        "logs/{dataset}/rerank/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/rerank/{split}.{system}.tsv"
    wildcard_constraints:
        system=names_of_kind(config, "rerank"),
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        depth=setting("systems", "{system}", "depth"),
    message:
        "Re-rank {wildcards.split} for {wildcards.system}"
    shell:
        "python -m {params.module} --candidates {input.candidates:q} --scores {input.scores:q}"
        " --depth {params.depth} --tag {wildcards.system:q} --output {output:q} --log {log:q}"
