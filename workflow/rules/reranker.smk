"""Re-rankers: pairs, training, scores, re-ranked runs; token vectors for late interaction as a first stage."""


rule pairs:
    input:
        qrels=paths.QRELS,
        runs=partial(inputs.sources_of_negatives, config, "rerankers"),
    output:
        pairs=paths.PAIRS,
        counts=paths.PAIR_COUNTS,
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        options=options(settings.examples("rerankers.{reranker}", "pairs"), "splits.{split}.relevance_level", "seed"),
    message:
        "Sample pairs of {wildcards.split} for {wildcards.reranker}"
    shell:
        "python -m cort.pairs --qrels {input.qrels:q} --run {input.runs:q} {params.options:q}"
        " --output {output.pairs:q} --output-counts {output.counts:q} --log {log:q}"


rule import_pairs:
    input:
        triples=setting("rerankers.{reranker}.pairs.file"),
        queries=paths.at(paths.QUERIES, config, split="train"),
        passages=paths.PASSAGES,
    output:
        pairs=paths.PAIRS.replace("{split}", "train"),
        counts=paths.PAIR_COUNTS.replace("{split}", "train"),
    wildcard_constraints:
        reranker=on_released_triples(config, "rerankers"),
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(240),
    params:
        options=options(settings.released_examples("rerankers.{reranker}", "pairs"), "seed"),
    message:
        "Import the released triples of {wildcards.reranker}"
    shell:
        "python -m cort.import_triples --triples {input.triples:q} --form pairs --queries {input.queries:q}"
        " --passages {input.passages:q} {params.options:q} --output {output.pairs:q}"
        " --output-counts {output.counts:q} --log {log:q}"


# Released triples are for training only; validation pairs are sampled.
ruleorder: import_pairs > pairs


rule train_reranker:
    input:
        base_model=base_model("rerankers.{reranker}"),
        pairs=paths.PAIRS.replace("{split}", "train"),
        validation_pairs=paths.PAIRS.replace("{split}", "validation"),
        passages=tokens("rerankers.{reranker}", "passages"),
        queries=tokens("rerankers.{reranker}", "queries.train"),
        validation_queries=tokens("rerankers.{reranker}", "queries.validation"),
        validation_run=partial(inputs.for_selection, config, "rerankers", paths.RUN),
        validation_qrels=partial(inputs.for_selection, config, "rerankers", paths.QRELS),
    output:
        best=guarded(f"{paths.RERANKER}best/{paths.CARD}"),
        last=guarded(f"{paths.RERANKER}last/{paths.CARD}"),
        curve=f"{paths.RERANKER}curve.csv",
        selection=f"{paths.RERANKER}selection.json",
    threads: training_threads("rerankers.{reranker}")
    resources:
        disk_mb=disk(sizes.training),
        gpu=gpus("rerankers.{reranker}.training.gpus"),
        processes=setting("rerankers.{reranker}.training.gpus"),
        checkpoint_seconds=600,
        mem_mb=times(16000, "rerankers.{reranker}.training.gpus"),
        runtime=1440,
    params:
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output.curve, parent=True),
        options=options(
            settings.framing("rerankers"),
            settings.cleaning("rerankers"),
            settings.objective("rerankers"),
            settings.training("rerankers.{reranker}"),
            "splits.train.relevance_level",
            "seed",
        ),
        checkpoints=f"{paths.CHECKPOINTS}/rerankers/{{reranker}}",
    message:
        "Train the re-ranker {wildcards.reranker}"
    shell:
        "python -m cort.train_reranker --base-model {params.base_model:q} --pairs {input.pairs:q}"
        " --validation-pairs {input.validation_pairs:q} --passages {input.passages:q} --queries {input.queries:q}"
        " --validation-queries {input.validation_queries:q} --validation-run {input.validation_run:q}"
        " --validation-qrels {input.validation_qrels:q} {params.options:q} --threads {threads}"
        " --processes {resources.processes} --output {params.folder:q} --output-curve {output.curve:q}"
        " --output-selection {output.selection:q}"
        " --checkpoints {params.checkpoints:q} --checkpoint-every {resources.checkpoint_seconds}"
        " --events logs/{wildcards.dataset:q}/events/rerankers/{wildcards.reranker:q} --log {log:q}"


rule encode_tokens:
    input:
        model=weights("rerankers"),
        tokens=tokens("rerankers.{reranker}", "passages"),
    output:
        paths.LATE_VECTORS,
    threads: GPU_THREADS
    resources:
        disk_mb=disk(sizes.token_vectors, 2),
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        model=subpath(input.model, parent=True),
        options=options(among("rerankers.{reranker}", "precision")),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/token_embeddings/{{reranker}}",
    message:
        "Encode the passage tokens with {wildcards.reranker}, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.encode tokens --model {params.model:q} --tokens {input.tokens:q}"
        " --shard {wildcards.scatteritem} {params.options:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule score:
    input:
        model=weights("rerankers"),
        candidates=partial(inputs.all_candidates, config),
        queries=tokens("rerankers.{reranker}", "queries.{split}"),
        passages=tokens("rerankers.{reranker}", "passages"),
    output:
        paths.SCORES,
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(720),
    params:
        model=subpath(input.model, parent=True),
        options=options(among("rerankers.{reranker}", "depth", "precision")),
        checkpoints=f"{paths.CHECKPOINTS}/scores/{{reranker}}/{{split}}",
    message:
        "Score the candidates of {wildcards.split} with {wildcards.reranker}"
    shell:
        "python -m cort.score --model {params.model:q} --candidates {input.candidates:q} {params.options:q}"
        " --queries {input.queries:q} --passages {input.passages:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule score_triples:
    input:
        model=weights("rerankers"),
        triples=paths.TRIPLES,
        queries=tokens("rerankers.{reranker}", "queries.{split}"),
        passages=tokens("rerankers.{reranker}", "passages"),
    output:
        paths.TRIPLE_SCORES,
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        model=subpath(input.model, parent=True),
        options=options("rerankers.{reranker}.precision"),
        checkpoints=f"{paths.CHECKPOINTS}/scores/{{reranker}}/triples/{{encoder}}.{{split}}",
    message:
        "Score the {wildcards.split} triples of {wildcards.encoder} with {wildcards.reranker}"
    shell:
        "python -m cort.score --model {params.model:q} --triples {input.triples:q} {params.options:q}"
        " --queries {input.queries:q} --passages {input.passages:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule rerank_tune:
    input:
        unpack(partial(inputs.for_tuning, config)),
        qrels=paths.at(paths.QRELS, config, split="validation"),
    output:
        paths.WEIGHTS,
    wildcard_constraints:
        system=made_by(config, "rerank_tune"),
    localrule: True
    params:
        options=options(settings.tuning, "splits.validation.relevance_level", "collection.aggregate"),
    message:
        "Choose the weight of the re-ranker in {wildcards.system} by a grid search over validation queries"
    shell:
        "python -m cort.tune weights --runs {input.candidates:q} --scores {input.scores:q} --qrels {input.qrels:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


use rule rerank_tune as rerank_tune_folds with:
    input:
        unpack(partial(inputs.for_tuning, config)),
        qrels=paths.QRELS,
    output:
        paths.FOLD_WEIGHTS,
    params:
        options=options(settings.tuning, "splits.{split}.relevance_level", "collection.aggregate"),
    message:
        "Choose the weight of the re-ranker in {wildcards.system} by cross-validation on {wildcards.split}"


rule rerank:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "rerank"),
    localrule: True
    resources:
        disk_mb=disk(sizes.run),
    params:
        options=options(settings.of_system),
    message:
        "Re-rank {wildcards.split} for {wildcards.system}"
    shell:
        "python -m cort.rerank --candidates {input.candidates:q} --scores {input.scores:q}"
        " {params.options:q} --tag {wildcards.system:q} --output {output:q} --log {log:q}"
