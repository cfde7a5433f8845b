"""The dense ranker: triples, training, vectors."""


rule triples:
    input:
        script="cort/triples.py",
        qrels="results/{dataset}/collection/qrels.{split}.parquet",
        run=teacher_of("encoders", "triples"),
    output:
        triples="results/{dataset}/triples/{encoder}.{split}.parquet",
        counts="results/{dataset}/triples/{encoder}.{split}.json",
    log:
        "logs/{dataset}/triples/{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/triples/{encoder}.{split}.tsv"
    conda:
        "../envs/cort.yaml"
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        module=as_py_module(),
        options=options(
            ("encoders", "{encoder}", "triples"),
            "first_rank",
            "last_rank",
            "minimum_results",
            "maximum_queries",
        ),
        relevance_level=setting("splits", "{split}", "relevance_level"),
        epochs=get_epochs("encoders"),
        seed=setting("seed"),
    message:
        "Sample triples of {wildcards.split} for {wildcards.encoder}"
    shell:
        "python -m {params.module} --qrels {input.qrels:q} --run {input.run:q} {params.options:q}"
        " --relevance-level {params.relevance_level} --epochs {params.epochs} --seed {params.seed}"
        " --output {output.triples:q} --output-counts {output.counts:q} --log {log:q}"


rule train:
    input:
        script="cort/train.py",
        base_model=base_model_of("encoders"),
        triples="results/{dataset}/triples/{encoder}.train.parquet",
        validation_triples="results/{dataset}/triples/{encoder}.validation.parquet",
        passages=tokens_of("encoders", "passages"),
        queries=tokens_of("encoders", "queries.train"),
        validation_queries=tokens_of("encoders", "queries.validation"),
        qrels=judgements_for_loss("train"),
        validation_qrels=judgements_for_loss("validation"),
        validation_run=for_selection("encoders", "runs/validation/{system}.trec"),
        teacher_scores=teacher_scores("train"),
        validation_teacher_scores=teacher_scores("validation"),
        start=get_start,
    output:
        best=guarded(
            multiext(
                "results/{dataset}/encoders/{encoder}/best/",
                *MODEL_FILES,
                "projection.safetensors",
                "cort.json",
            )
        ),
        last=guarded(
            multiext(
                "results/{dataset}/encoders/{encoder}/last/",
                *MODEL_FILES,
                "projection.safetensors",
                "cort.json",
            )
        ),
        curve="results/{dataset}/encoders/{encoder}/curve.csv",
    log:
        "logs/{dataset}/train/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/train/{encoder}.tsv"
    wildcard_constraints:
        encoder=encoders_pattern(config, trained=True),
    conda:
        "../envs/cort.yaml"
    threads: 8
    resources:
        gpu=gpus(("encoders", "{encoder}", "training", "gpus")),
        processes=setting("encoders", "{encoder}", "training", "gpus"),
        checkpoint_seconds=600,
        mem_mb=times(16000, "encoders", "{encoder}", "training", "gpus"),
        runtime=1440,
    params:
        module=as_py_module(),
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output.curve, parent=True),
        options=options(
            ("encoders", "{encoder}"),
            "pooling",
            "dimension",
            "query_length",
            "passage_length",
            "similarity",
            "projection",
            "query_segment",
            "passage_segment",
            "loss",
            "margin",
            "temperature",
        ),
        start=lambda wildcards: [str(Path(file).parent) for file in [get_start(wildcards)] if file],
        relevance_level=setting("splits", "train", "relevance_level"),
        training=options(("encoders", "{encoder}", "training"), *TRAINING_NAMES),
        seed=setting("seed"),
    message:
        "Train the encoder {wildcards.encoder}"
    shell:
        "python -m {params.module} --base-model {params.base_model:q} --triples {input.triples:q}"
        " --validation-triples {input.validation_triples:q} --passages {input.passages:q} --queries {input.queries:q}"
        " --validation-queries {input.validation_queries:q} --qrels {input.qrels:q}"
        " --validation-qrels {input.validation_qrels:q} --relevance-level {params.relevance_level} {params.options:q}"
        " --validation-run {input.validation_run:q} --teacher-scores {input.teacher_scores:q}"
        " --validation-teacher-scores {input.validation_teacher_scores:q} --start {params.start:q} {params.training:q}"
        " --seed {params.seed} --threads {threads} --processes {resources.processes} --output {params.folder:q}"
        " --output-curve {output.curve:q}"
        # Not an output: Snakemake deletes those of a job that ended early, and a retry goes on from here.
        " --checkpoints results/{wildcards.dataset:q}/checkpoints/encoders/{wildcards.encoder:q}"
        " --checkpoint-every {resources.checkpoint_seconds} --events logs/{wildcards.dataset:q}/events/{wildcards.encoder:q}"
        " --log {log:q}"


rule import_encoder:
    input:
        script="cort/import_encoder.py",
        weights=setting("encoders", "{encoder}", "released"),
        base_model=base_model_of("encoders"),
    output:
        best=multiext(
            "results/{dataset}/encoders/{encoder}/best/",
            *MODEL_FILES,
            "projection.safetensors",
            "cort.json",
        ),
        last=multiext(
            "results/{dataset}/encoders/{encoder}/last/",
            *MODEL_FILES,
            "projection.safetensors",
            "cort.json",
        ),
    log:
        "logs/{dataset}/import_encoder/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/import_encoder/{encoder}.tsv"
    wildcard_constraints:
        encoder=encoders_pattern(config, trained=False),
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output[0], ancestor=2),
        options=options(
            ("encoders", "{encoder}"),
            "pooling",
            "dimension",
            "query_length",
            "passage_length",
            "similarity",
            "projection",
            "query_segment",
            "passage_segment",
        ),
    message:
        "Take in the released encoder {wildcards.encoder}"
    shell:
        "python -m {params.module} --weights {input.weights:q} --base-model {params.base_model:q}"
        " {params.options:q} --output {params.folder:q} --log {log:q}"


rule encode:
    input:
        script="cort/encode.py",
        model=checkpoint_of("encoders"),
        tokens=tokens_of("encoders", "passages"),
    output:
        "results/{dataset}/embeddings/{encoder}/passages.{scatteritem}.arrow",
    log:
        "logs/{dataset}/encode/{encoder}.{scatteritem}.log",
    benchmark:
        "benchmarks/{dataset}/encode/{encoder}.{scatteritem}.tsv"
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
        options=options(("encoders", "{encoder}"), "precision", "storage"),
    message:
        "Encode the passages with {wildcards.encoder}, shard {wildcards.scatteritem}"
    shell:
        "python -m {params.module} --model {params.model:q} --tokens {input.tokens:q} --kind passage"
        " --shard {wildcards.scatteritem} {params.options:q} --threads {threads} --output {output:q}"
        # All shards in one folder: blocks are the same however many shards there are.
        " --checkpoints results/{wildcards.dataset:q}/checkpoints/embeddings/{wildcards.encoder:q} --log {log:q}"


rule encode_queries:
    input:
        script="cort/encode.py",
        model=checkpoint_of("encoders"),
        tokens=tokens_of("encoders", "queries.{split}"),
    output:
        "results/{dataset}/embeddings/{encoder}/queries.{split}.arrow",
    log:
        "logs/{dataset}/encode_queries/{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/encode_queries/{encoder}.{split}.tsv"
    conda:
        "../envs/cort.yaml"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        module=as_py_module(),
        model=subpath(input.model, parent=True),
        options=options(("encoders", "{encoder}"), "precision", "storage"),
    message:
        "Encode the queries of {wildcards.split} with {wildcards.encoder}"
    shell:
        "python -m {params.module} --model {params.model:q} --tokens {input.tokens:q} --kind query"
        " {params.options:q} --threads {threads} --output {output:q} --log {log:q}"
