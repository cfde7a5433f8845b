"""Training of encoders and re-rankers: negatives, examples, models."""

from cort.config.learners import EncoderLoss, RerankerLoss
from cort.config.models import (
    Filters,
    Head,
    Lengths,
    Representation,
    Scored,
    Selection,
    Sparse,
    Sparsity,
    TokenSettings,
)
from cort.config.training import Optimization


rule negatives:
    input:
        qrels=paths.QRELS,
        searched=of(inputs.searched_for_negatives),
    output:
        paths.NEGATIVES,
    log:
        "logs/{dataset}/negatives/{model}.{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/negatives/{model}.{split}.{system}.tsv"
    threads: MOST_THREADS
    resources:
        gpu=gpus(of(groups.gpus_of_negatives)),
        mem_mb=growing(16000, per_mb=2),
        runtime=growing(720),
    params:
        code=code_of("negatives"),
        options=options(params.negatives, "seed"),
    message:
        "Search {wildcards.split} with {wildcards.system} for negatives of {wildcards.model}"
    shell:
        "exec python -m cort.negatives --qrels {input.qrels:q} {params.options:q} --threads {threads}"
        " --memory-mb {resources.mem_mb} --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule triples:
    input:
        qrels=paths.QRELS,
        runs=of(inputs.sources_of_negatives, "encoders"),
    output:
        triples=paths.TRIPLES,
        counts=paths.TRIPLE_COUNTS,
    log:
        "logs/{dataset}/triples/{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/triples/{encoder}.{split}.tsv"
    group:
        of(groups.of_samples, "encoders")
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        code=code_of("triples"),
        options=options(
            (
                "encoders.{encoder}.triples",
                "first_rank",
                "last_rank",
                "minimum_results",
                "maximum_queries",
                "negatives",
            ),
            params.epochs,
            "splits.{split}.relevance_level",
            "seed",
        ),
    message:
        "Sample triples of {wildcards.split} for {wildcards.encoder}"
    shell:
        "exec python -m cort.triples --qrels {input.qrels:q} --run {input.runs:q} {params.options:q}"
        " --output {output.triples:q} --output-counts {output.counts:q} --log {log:q}"


# Released triples are for training only; validation examples are sampled.
ruleorder: import_triples > triples
ruleorder: import_pairs > pairs


rule import_triples:
    input:
        triples=setting("encoders.{encoder}.triples.file"),
        queries=experiment.at(paths.QUERIES, split="train"),
        passages=paths.PASSAGES,
    output:
        triples=paths.TRIPLES.replace("{split}", "train"),
        counts=paths.TRIPLE_COUNTS.replace("{split}", "train"),
    log:
        "logs/{dataset}/import_triples/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/import_triples/{encoder}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "triples.file"),
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(240),
    params:
        code=code_of("import_triples"),
        options=options(("encoders.{encoder}.triples", Selection), "encoders.{encoder}.training.epochs", "seed"),
    message:
        "Import the released triples of {wildcards.encoder}"
    shell:
        "exec python -m cort.import_triples --triples {input.triples:q} --queries {input.queries:q}"
        " --passages {input.passages:q} {params.options:q} --output {output.triples:q}"
        " --output-counts {output.counts:q} --log {log:q}"


rule train:
    input:
        base_model=of(inputs.base_model, "encoders"),
        triples=paths.TRIPLES.replace("{split}", "train"),
        validation_triples=paths.TRIPLES.replace("{split}", "validation"),
        passages=tokens("encoders.{encoder}", "passages"),
        queries=tokens("encoders.{encoder}", "queries.train"),
        validation_queries=tokens("encoders.{encoder}", "queries.validation"),
        qrels=of(inputs.judgements_for_loss, "train"),
        validation_qrels=of(inputs.judgements_for_loss, "validation"),
        validation_run=of(inputs.for_selection, "encoders", paths.RUN),
        teacher_scores=of(inputs.teacher_scores, "train"),
        validation_teacher_scores=of(inputs.teacher_scores, "validation"),
        start=of(inputs.start),
    output:
        best=guarded(f"{paths.ENCODER}best/{paths.CARD}"),
        last=guarded(f"{paths.ENCODER}last/{paths.CARD}"),
        curve=f"{paths.ENCODER}curve.csv",
        selection=f"{paths.ENCODER}selection.json",
    log:
        "logs/{dataset}/train/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/train/{encoder}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "training"),
    threads: training_threads("encoders.{encoder}")
    resources:
        gpu=gpus("encoders.{encoder}.training.gpus"),
        processes=setting("encoders.{encoder}.training.gpus"),
        mem_mb=times(16000, "encoders.{encoder}.training.gpus"),
        runtime=1440,
    params:
        code=code_of("train"),
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output.curve, parent=True),
        options=options(
            ("encoders.{encoder}", Representation, Lengths, Sparse, Sparsity, EncoderLoss),
            ("encoders.{encoder}.training", Optimization),
            params.lora,
            ("encoders.{encoder}.triples", "negatives"),
            params.nested_sizes,
            params.cleaning,
            "splits.train.relevance_level",
            "seed",
            query_encoder="encoders.{encoder}.queries",
        ),
        start=lambda wildcards: [os.path.dirname(file) for file in inputs.start(experiment, wildcards)],
        checkpoints=f"{paths.CHECKPOINTS}/encoders/{{encoder}}",
    message:
        "Train the encoder {wildcards.encoder}"
    shell:
        "exec python -m cort.train --base-model {params.base_model:q} --triples {input.triples:q}"
        " --validation-triples {input.validation_triples:q} --passages {input.passages:q} --queries {input.queries:q}"
        " --validation-queries {input.validation_queries:q} --qrels {input.qrels:q}"
        " --validation-qrels {input.validation_qrels:q} {params.options:q} --validation-run {input.validation_run:q}"
        " --teacher-scores {input.teacher_scores:q} --validation-teacher-scores {input.validation_teacher_scores:q}"
        " --start {params.start:q} --threads {threads} --processes {resources.processes} --output {params.folder:q}"
        " --output-curve {output.curve:q} --output-selection {output.selection:q} --checkpoints {params.checkpoints:q}"
        " --data {wildcards.dataset:q}"
        " --events logs/{wildcards.dataset:q}/events/encoders/{wildcards.encoder:q} --log {log:q}"


rule import_encoder:
    input:
        weights=setting("encoders.{encoder}.released"),
        base_model=of(inputs.base_model, "encoders"),
    output:
        best=f"{paths.ENCODER}best/{paths.CARD}",
        last=f"{paths.ENCODER}last/{paths.CARD}",
    log:
        "logs/{dataset}/import_encoder/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/import_encoder/{encoder}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "training", wanted=False),
    resources:
        mem_mb=growing(4000, per_mb=4),
        runtime=growing(30),
    params:
        code=code_of("import_encoder"),
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output[0], ancestor=2),
        options=options(("encoders.{encoder}", Representation), params.cleaning),
    message:
        "Import the released encoder {wildcards.encoder}"
    shell:
        "exec python -m cort.import_encoder --weights {input.weights:q} --base-model {params.base_model:q}"
        " {params.options:q} --output {params.folder:q} --log {log:q}"


rule pairs:
    input:
        qrels=paths.QRELS,
        runs=of(inputs.sources_of_negatives, "rerankers"),
    output:
        pairs=paths.PAIRS,
        counts=paths.PAIR_COUNTS,
    log:
        "logs/{dataset}/pairs/{reranker}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/pairs/{reranker}.{split}.tsv"
    group:
        of(groups.of_samples, "rerankers")
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        code=code_of("pairs"),
        options=options(
            ("rerankers.{reranker}.pairs", "first_rank", "last_rank", "minimum_results", "maximum_queries"),
            ("rerankers.{reranker}.pairs", "negatives", "random", "positives"),
            params.epochs,
            "splits.{split}.relevance_level",
            "seed",
        ),
    message:
        "Sample pairs of {wildcards.split} for {wildcards.reranker}"
    shell:
        "exec python -m cort.pairs --qrels {input.qrels:q} --run {input.runs:q} {params.options:q}"
        " --output {output.pairs:q} --output-counts {output.counts:q} --log {log:q}"


rule import_pairs:
    input:
        triples=setting("rerankers.{reranker}.pairs.file"),
        queries=experiment.at(paths.QUERIES, split="train"),
        passages=paths.PASSAGES,
    output:
        pairs=paths.PAIRS.replace("{split}", "train"),
        counts=paths.PAIR_COUNTS.replace("{split}", "train"),
    log:
        "logs/{dataset}/import_pairs/{reranker}.log",
    benchmark:
        "benchmarks/{dataset}/import_pairs/{reranker}.tsv"
    wildcard_constraints:
        reranker=having("rerankers", "pairs.file"),
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(240),
    params:
        code=code_of("import_triples"),
        options=options(("rerankers.{reranker}.pairs", Selection), "rerankers.{reranker}.training.epochs", "seed"),
    message:
        "Import the released triples of {wildcards.reranker}"
    shell:
        "exec python -m cort.import_triples --triples {input.triples:q} --form pairs --queries {input.queries:q}"
        " --passages {input.passages:q} {params.options:q} --output {output.pairs:q}"
        " --output-counts {output.counts:q} --log {log:q}"


rule train_reranker:
    input:
        base_model=of(inputs.base_model, "rerankers"),
        pairs=paths.PAIRS.replace("{split}", "train"),
        validation_pairs=paths.PAIRS.replace("{split}", "validation"),
        passages=tokens("rerankers.{reranker}", "passages"),
        queries=tokens("rerankers.{reranker}", "queries.train"),
        validation_queries=tokens("rerankers.{reranker}", "queries.validation"),
        validation_run=of(inputs.for_selection, "rerankers", paths.RUN),
        validation_qrels=of(inputs.for_selection, "rerankers", paths.QRELS),
    output:
        best=guarded(f"{paths.RERANKER}best/{paths.CARD}"),
        last=guarded(f"{paths.RERANKER}last/{paths.CARD}"),
        curve=f"{paths.RERANKER}curve.csv",
        selection=f"{paths.RERANKER}selection.json",
    log:
        "logs/{dataset}/train_reranker/{reranker}.log",
    benchmark:
        "benchmarks/{dataset}/train_reranker/{reranker}.tsv"
    threads: training_threads("rerankers.{reranker}")
    resources:
        gpu=gpus("rerankers.{reranker}.training.gpus"),
        processes=setting("rerankers.{reranker}.training.gpus"),
        mem_mb=times(16000, "rerankers.{reranker}.training.gpus"),
        runtime=1440,
    params:
        code=code_of("train_reranker"),
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output.curve, parent=True),
        options=options(
            ("rerankers.{reranker}", Scored, Head, TokenSettings, Filters, RerankerLoss),
            ("rerankers.{reranker}.training", Optimization),
            params.lora,
            params.kind_of_new,
            params.cleaning,
            "splits.train.relevance_level",
            "seed",
        ),
        checkpoints=f"{paths.CHECKPOINTS}/rerankers/{{reranker}}",
    message:
        "Train the re-ranker {wildcards.reranker}"
    shell:
        "exec python -m cort.train_reranker --base-model {params.base_model:q} --pairs {input.pairs:q}"
        " --validation-pairs {input.validation_pairs:q} --passages {input.passages:q} --queries {input.queries:q}"
        " --validation-queries {input.validation_queries:q} --validation-run {input.validation_run:q}"
        " --validation-qrels {input.validation_qrels:q} {params.options:q} --threads {threads}"
        " --processes {resources.processes} --output {params.folder:q} --output-curve {output.curve:q}"
        " --output-selection {output.selection:q} --checkpoints {params.checkpoints:q}"
        " --data {wildcards.dataset:q}"
        " --events logs/{wildcards.dataset:q}/events/rerankers/{wildcards.reranker:q} --log {log:q}"
