"""The dense ranker: triples, training, vectors."""


rule triples:
    input:
        qrels=paths.QRELS,
        runs=partial(inputs.sources_of_negatives, config, "encoders"),
    output:
        triples=paths.TRIPLES,
        counts=paths.TRIPLE_COUNTS,
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        options=options(settings.examples("encoders.{encoder}", "triples"), "splits.{split}.relevance_level", "seed"),
    message:
        "Sample triples of {wildcards.split} for {wildcards.encoder}"
    shell:
        "python -m cort.triples --qrels {input.qrels:q} --run {input.runs:q} {params.options:q}"
        " --output {output.triples:q} --output-counts {output.counts:q} --log {log:q}"


rule import_triples:
    input:
        triples=setting("encoders.{encoder}.triples.file"),
        queries=paths.at(paths.QUERIES, config, split="train"),
        passages=paths.PASSAGES,
    output:
        triples=paths.TRIPLES.replace("{split}", "train"),
        counts=paths.TRIPLE_COUNTS.replace("{split}", "train"),
    wildcard_constraints:
        encoder=on_released_triples(config, "encoders"),
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(240),
    params:
        options=options(settings.released_examples("encoders.{encoder}", "triples"), "seed"),
    message:
        "Import the released triples of {wildcards.encoder}"
    shell:
        "python -m cort.import_triples --triples {input.triples:q} --queries {input.queries:q}"
        " --passages {input.passages:q} {params.options:q} --output {output.triples:q}"
        " --output-counts {output.counts:q} --log {log:q}"


# Released triples are for training only; validation triples are sampled.
ruleorder: import_triples > triples


rule train:
    input:
        base_model=base_model("encoders.{encoder}"),
        triples=paths.TRIPLES.replace("{split}", "train"),
        validation_triples=paths.TRIPLES.replace("{split}", "validation"),
        passages=tokens("encoders.{encoder}", "passages"),
        queries=tokens("encoders.{encoder}", "queries.train"),
        validation_queries=tokens("encoders.{encoder}", "queries.validation"),
        qrels=partial(inputs.judgements_for_loss, config, "train"),
        validation_qrels=partial(inputs.judgements_for_loss, config, "validation"),
        validation_run=partial(inputs.for_selection, config, "encoders", paths.RUN),
        teacher_scores=partial(inputs.teacher_scores, config, "train"),
        validation_teacher_scores=partial(inputs.teacher_scores, config, "validation"),
        start=partial(inputs.start, config),
    output:
        best=guarded(f"{paths.ENCODER}best/{paths.CARD}"),
        last=guarded(f"{paths.ENCODER}last/{paths.CARD}"),
        curve=f"{paths.ENCODER}curve.csv",
        selection=f"{paths.ENCODER}selection.json",
    wildcard_constraints:
        encoder=encoders_pattern(config, trained=True),
    threads: training_threads("encoders.{encoder}")
    resources:
        disk_mb=disk(sizes.training),
        gpu=gpus("encoders.{encoder}.training.gpus"),
        processes=setting("encoders.{encoder}.training.gpus"),
        checkpoint_seconds=600,
        mem_mb=times(16000, "encoders.{encoder}.training.gpus"),
        runtime=1440,
    params:
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output.curve, parent=True),
        options=options(
            settings.representation,
            settings.cleaning("encoders"),
            settings.objective("encoders"),
            settings.training("encoders.{encoder}"),
            "splits.train.relevance_level",
            "seed",
        ),
        start=lambda wildcards: [os.path.dirname(file) for file in inputs.start(config, wildcards)],
        checkpoints=f"{paths.CHECKPOINTS}/encoders/{{encoder}}",
    message:
        "Train the encoder {wildcards.encoder}"
    shell:
        "python -m cort.train --base-model {params.base_model:q} --triples {input.triples:q}"
        " --validation-triples {input.validation_triples:q} --passages {input.passages:q} --queries {input.queries:q}"
        " --validation-queries {input.validation_queries:q} --qrels {input.qrels:q}"
        " --validation-qrels {input.validation_qrels:q} {params.options:q} --validation-run {input.validation_run:q}"
        " --teacher-scores {input.teacher_scores:q} --validation-teacher-scores {input.validation_teacher_scores:q}"
        " --start {params.start:q} --threads {threads} --processes {resources.processes} --output {params.folder:q}"
        " --output-curve {output.curve:q} --output-selection {output.selection:q} --checkpoints {params.checkpoints:q}"
        " --checkpoint-every {resources.checkpoint_seconds}"
        " --events logs/{wildcards.dataset:q}/events/encoders/{wildcards.encoder:q} --log {log:q}"


rule import_encoder:
    input:
        weights=setting("encoders.{encoder}.released"),
        base_model=base_model("encoders.{encoder}"),
    output:
        best=f"{paths.ENCODER}best/{paths.CARD}",
        last=f"{paths.ENCODER}last/{paths.CARD}",
    wildcard_constraints:
        encoder=encoders_pattern(config, trained=False),
    localrule: True
    params:
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output[0], ancestor=2),
        options=options(settings.framing("encoders"), settings.cleaning("encoders")),
    message:
        "Import the released encoder {wildcards.encoder}"
    shell:
        "python -m cort.import_encoder --weights {input.weights:q} --base-model {params.base_model:q}"
        " {params.options:q} --output {params.folder:q} --log {log:q}"


rule encode:
    input:
        model=weights("encoders"),
        tokens=tokens("encoders.{encoder}", "passages"),
    output:
        paths.VECTORS,
    threads: GPU_THREADS
    resources:
        disk_mb=disk(sizes.vectors, 2),
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(720),
    params:
        model=subpath(input.model, parent=True),
        options=options(among("encoders.{encoder}", "precision", "storage")),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/embeddings/{{encoder}}",
    message:
        "Encode the passages with {wildcards.encoder}, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.encode vectors --model {params.model:q} --tokens {input.tokens:q} --kind passage"
        " --shard {wildcards.scatteritem} {params.options:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule encode_queries:
    input:
        model=weights("encoders"),
        tokens=tokens("encoders.{encoder}", "queries.{split}"),
        passages=shard_of_passages,
    output:
        paths.QUERY_VECTORS,
    threads: min(GPU_THREADS, MACHINE.half)
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        model=subpath(input.model, parent=True),
        options=options(among("encoders.{encoder}", "precision", "storage")),
    message:
        "Encode the queries of {wildcards.split} with {wildcards.encoder}"
    shell:
        "python -m cort.encode vectors --model {params.model:q} --tokens {input.tokens:q} --kind query"
        " --passages {input.passages:q} {params.options:q} --threads {threads} --output {output:q} --log {log:q}"
