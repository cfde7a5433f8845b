"""Base and released models, training, and what models compute for texts: vectors, scores, queries, term weights."""

OWN_BASE_MODELS = {
    name: model for name, model in config["base_models"].items() if experiment.released_model(name) is None
}


rule base_model:
    input:
        files=of(inputs.base_model_files),
    output:
        weights=f"{paths.BASE_MODEL}model.safetensors",
        config=f"{paths.BASE_MODEL}config.json",
        tokenizer=f"{paths.BASE_MODEL}tokenizer.json",
        tokenizer_config=f"{paths.BASE_MODEL}tokenizer_config.json",
    wildcard_constraints:
        base_model=any_of(OWN_BASE_MODELS),
    priority: 2
    # A model from a hub needs a network; a folder does not, nor does a new model.
    localrule: any(not Path(model.get("pretrained", os.curdir)).is_dir() for model in OWN_BASE_MODELS.values())
    resources:
        mem_mb=growing(4000, per_mb=1),
        runtime=growing(120),
    params:
        options=options(settings.base_model, "seed"),
        folder=subpath(output.weights, parent=True),
    message:
        "Provide the base model {wildcards.base_model}"
    shell:
        "exec python -m cort.base_model {params.options:q} --output {params.folder:q} --log {log:q}"


# Functions make similar rules: in a loop, Snakemake would run the command of the last one for all.
def provide(section, path, *files):
    """Make the rule that provides the released models of a section."""
    model = section.removesuffix("s")

    rule:
        name:
            f"pretrained_{model}"
        input:
            files=of(inputs.released_files, section),
        output:
            multiext(path, *files),
        wildcard_constraints:
            **{model: having(section, "pretrained")},
        priority: 2
        localrule: True
        params:
            options=options(settings.pretrained(section)),
            folder=subpath(output[0], parent=True),
        message:
            f"Provide the released {model} {{wildcards.{model}}}"
        shell:
            "exec python -m cort.pretrained {params.options:q} --output {params.folder:q} --log {log:q}"


provide("encoders", paths.RELEASED_ENCODER, paths.CARD)
provide("rerankers", paths.RELEASED_RERANKER, paths.CARD)
# Plain folders of transformers.
provide("weighers", paths.RELEASED_WEIGHER, *MODEL_FILES)
provide("expanders", paths.RELEASED_EXPANDER, *MODEL_FILES)


rule tokenize:
    input:
        tokenizer=of(inputs.tokenizer),
        texts=paths.TEXTS,
    output:
        tokens=paths.TOKENS,
        lengths=paths.LENGTHS,
    threads: 4
    resources:
        mem_mb=growing(2000, per_mb=2),
        runtime=growing(120),
    params:
        folder=subpath(input.tokenizer, parent=True),
        options=options("base_models.{base_model}.cleaning"),
    message:
        "Tokenize {wildcards.text} for {wildcards.base_model}"
    shell:
        "exec python -m cort.tokenize --tokenizer {params.folder:q} --texts {input.texts:q} {params.options:q}"
        " --threads {threads} --output {output.tokens:q} --output-lengths {output.lengths:q} --log {log:q}"


rule triples:
    input:
        qrels=paths.QRELS,
        runs=of(inputs.sources_of_negatives, "encoders"),
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
    wildcard_constraints:
        encoder=having("encoders", "triples.file"),
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(240),
    params:
        options=options(settings.released_examples("encoders.{encoder}", "triples"), "seed"),
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
    wildcard_constraints:
        encoder=having("encoders", "training"),
    threads: training_threads("encoders.{encoder}")
    resources:
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
        " --checkpoint-every {resources.checkpoint_seconds}"
        " --events logs/{wildcards.dataset:q}/events/encoders/{wildcards.encoder:q} --log {log:q}"


rule import_encoder:
    input:
        weights=setting("encoders.{encoder}.released"),
        base_model=of(inputs.base_model, "encoders"),
    output:
        best=f"{paths.ENCODER}best/{paths.CARD}",
        last=f"{paths.ENCODER}last/{paths.CARD}",
    wildcard_constraints:
        encoder=having("encoders", "training", wanted=False),
    resources:
        mem_mb=growing(4000, per_mb=4),
        runtime=growing(30),
    params:
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output[0], ancestor=2),
        options=options(settings.framing("encoders"), settings.cleaning("encoders")),
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
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        options=options(settings.examples("rerankers.{reranker}", "pairs"), "splits.{split}.relevance_level", "seed"),
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
    wildcard_constraints:
        reranker=having("rerankers", "pairs.file"),
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(240),
    params:
        options=options(settings.released_examples("rerankers.{reranker}", "pairs"), "seed"),
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
    threads: training_threads("rerankers.{reranker}")
    resources:
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
        "exec python -m cort.train_reranker --base-model {params.base_model:q} --pairs {input.pairs:q}"
        " --validation-pairs {input.validation_pairs:q} --passages {input.passages:q} --queries {input.queries:q}"
        " --validation-queries {input.validation_queries:q} --validation-run {input.validation_run:q}"
        " --validation-qrels {input.validation_qrels:q} {params.options:q} --threads {threads}"
        " --processes {resources.processes} --output {params.folder:q} --output-curve {output.curve:q}"
        " --output-selection {output.selection:q}"
        " --checkpoints {params.checkpoints:q} --checkpoint-every {resources.checkpoint_seconds}"
        " --events logs/{wildcards.dataset:q}/events/rerankers/{wildcards.reranker:q} --log {log:q}"


# Vectors, impacts of terms, and vectors of tokens: of the passages in shards, of queries in one file.
def encode_passages(rule_name, command, section, path, checkpoints, *keys):
    """Make a rule that encodes the passages with a model of a section, a shard per job."""
    model = section.removesuffix("s")

    rule:
        name:
            rule_name
        input:
            model=of(inputs.weights, section),
            tokens=tokens(f"{section}.{{{model}}}", "passages"),
        output:
            path,
        threads: GPU_THREADS
        resources:
            gpu=gpus(1),
            mem_mb=growing(8000),
            runtime=growing(1440),
        params:
            model=subpath(input.model, parent=True),
            options=options(among(f"{section}.{{{model}}}", *keys)),
            # One folder for all shards: blocks do not depend on the number of shards.
            checkpoints=f"{paths.CHECKPOINTS}/{checkpoints}/{{{model}}}",
        message:
            f"Encode the passages with {{wildcards.{model}}}, shard {{wildcards.shard}}"
        shell:
            f"exec python -m cort.encode {command} "
            "--model {params.model:q} --tokens {input.tokens:q} --shard {wildcards.shard} {params.options:q}"
            " --threads {threads} --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"


def encode_queries(rule_name, command, path, *keys):
    """Make a rule that encodes the queries of a split with an encoder."""

    rule:
        name:
            rule_name
        input:
            model=of(inputs.weights, "encoders"),
            tokens=tokens("encoders.{encoder}", "queries.{split}"),
            passages=of(inputs.shard_of_passages),
        output:
            path,
        threads: min(GPU_THREADS, HALF)
        resources:
            gpu=gpus(1),
            mem_mb=growing(8000),
            runtime=growing(60),
        params:
            model=subpath(input.model, parent=True),
            options=options(among("encoders.{encoder}", *keys)),
        message:
            "Encode the queries of {wildcards.split} with {wildcards.encoder}"
        shell:
            f"exec python -m cort.encode {command} --kind query "
            "--model {params.model:q} --tokens {input.tokens:q} --passages {input.passages:q} {params.options:q}"
            " --threads {threads} --output {output:q} --log {log:q}"


encode_passages("encode", "vectors --kind passage", "encoders", paths.VECTORS, "embeddings", "precision", "storage")
encode_passages("encode_impacts", "impacts --kind passage", "encoders", paths.IMPACTS, "embeddings", "precision")
encode_passages("encode_tokens", "tokens", "rerankers", paths.LATE_VECTORS, "token_embeddings", "precision")
encode_queries("encode_queries", "vectors", paths.QUERY_VECTORS, "precision", "storage")
encode_queries("encode_query_impacts", "impacts", paths.QUERY_IMPACTS, "precision")


rule score:
    input:
        model=of(inputs.weights, "rerankers"),
        candidates=of(inputs.all_candidates),
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
        options=options(settings.scored_depths, "rerankers.{reranker}.precision"),
        checkpoints=f"{paths.CHECKPOINTS}/scores/{{reranker}}/{{split}}",
        known=f"{paths.KNOWN_SCORES}{{split}}.arrow",
    message:
        "Score the candidates of {wildcards.split} with {wildcards.reranker}"
    shell:
        "exec python -m cort.score --model {params.model:q} --candidates {input.candidates:q} {params.options:q}"
        " --queries {input.queries:q} --passages {input.passages:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --output-known {params.known:q} --log {log:q}"


rule score_triples:
    input:
        model=of(inputs.weights, "rerankers"),
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
        known=f"{paths.KNOWN_SCORES}triples.{{encoder}}.{{split}}.arrow",
    message:
        "Score the {wildcards.split} triples of {wildcards.encoder} with {wildcards.reranker}"
    shell:
        "exec python -m cort.score --model {params.model:q} --triples {input.triples:q} {params.options:q}"
        " --queries {input.queries:q} --passages {input.passages:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --output-known {params.known:q} --log {log:q}"


rule import_expansions:
    input:
        predictions=setting("expanders.{expander}.file"),
        passages=paths.PASSAGES,
    output:
        paths.EXPANSIONS,
    wildcard_constraints:
        expander=having("expanders", "file"),
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(120),
    params:
        options=options(optional("expanders.{expander}.queries")),
    message:
        "Import the predicted queries {wildcards.expander}"
    shell:
        "exec python -m cort.expand import --predictions {input.predictions:q} --passages {input.passages:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


rule expand:
    input:
        model=of(inputs.weights, "expanders"),
        tokens=tokens("expanders.{expander}", "passages"),
    output:
        paths.EXPANSION_SHARD,
    wildcard_constraints:
        expander=having("expanders", "file", wanted=False),
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(2880),
    params:
        model=subpath(input.model, parent=True),
        options=options(
            among("expanders.{expander}", "queries", "passage_length", "query_length", "precision"),
            optional("expanders.{expander}.top_k"),
            optional("expanders.{expander}.beams"),
            "seed",
        ),
        checkpoints=f"{paths.CHECKPOINTS}/expansions/{{expander}}",
    message:
        "Predict queries for the passages with {wildcards.expander}, shard {wildcards.shard}"
    shell:
        "exec python -m cort.expand predict --model {params.model:q} --tokens {input.tokens:q} --shard {wildcards.shard}"
        " {params.options:q} --threads {threads} --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"


rule weigh:
    input:
        model=of(inputs.weights, "weighers"),
        tokens=tokens("weighers.{weigher}", "passages"),
    output:
        paths.TERM_WEIGHTS_SHARD,
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        model=subpath(input.model, parent=True),
        options=options(among("weighers.{weigher}", "passage_length", "scale", "square_root", "precision")),
        checkpoints=f"{paths.CHECKPOINTS}/term_weights/{{weigher}}",
    message:
        "Weigh the terms of the passages with {wildcards.weigher}, shard {wildcards.shard}"
    shell:
        "exec python -m cort.weigh --model {params.model:q} --tokens {input.tokens:q} --shard {wildcards.shard}"
        " {params.options:q} --threads {threads} --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"
