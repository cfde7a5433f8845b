"""Base and released models, training, and what models compute for texts: vectors, scores, queries, term weights."""

from cort.config.learners import EncoderLoss, RerankerLoss
from cort.config.models import (
    Described,
    DescribedLengths,
    Filters,
    Head,
    Hub,
    Lengths,
    Prompts,
    Representation,
    Scored,
    Selection,
    Service,
    Sparse,
    Sparsity,
    TokenSettings,
)
from cort.config.training import Optimization

OWN_BASE_MODELS = {name: model for name, model in config["base_models"].items() if name not in experiment.released}
# A model from a hub needs a network; a folder does not, nor does a new model.
BASE_MODELS_NEED_NETWORK = any(
    not Path(model.get("pretrained", os.curdir)).is_dir() for model in OWN_BASE_MODELS.values()
)


rule base_model:
    input:
        files=of(inputs.base_model_files),
    output:
        weights=f"{paths.BASE_MODEL}model.safetensors",
        config=f"{paths.BASE_MODEL}config.json",
        tokenizer=f"{paths.BASE_MODEL}tokenizer.json",
        tokenizer_config=f"{paths.BASE_MODEL}tokenizer_config.json",
    log:
        "logs/{dataset}/base_model/{base_model}.log",
    benchmark:
        "benchmarks/{dataset}/base_model/{base_model}.tsv"
    wildcard_constraints:
        base_model=any_of(OWN_BASE_MODELS),
    priority: 2
    group:
        None if BASE_MODELS_NEED_NETWORK else groups.of_base_model
    localrule: BASE_MODELS_NEED_NETWORK
    resources:
        mem_mb=growing(4000, per_mb=1),
        runtime=growing(120),
    params:
        code=code_of("base_model"),
        options=options(params.base_model, "seed"),
        folder=subpath(output.weights, parent=True),
    message:
        "Provide the base model {wildcards.base_model}"
    shell:
        "exec python -m cort.base_model {params.options:q} --output {params.folder:q} --log {log:q}"


# Encoders and re-rankers have a card; weighers and expanders are plain folders of transformers.


rule pretrained_encoder:
    input:
        files=of(inputs.released_files, "encoders"),
    output:
        f"{paths.RELEASED_ENCODER}{paths.CARD}",
    log:
        "logs/{dataset}/pretrained_encoder/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_encoder/{encoder}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(("encoders.{encoder}", "kind", Hub, Prompts, Described, DescribedLengths)),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released encoder {wildcards.encoder}"
    shell:
        "exec python -m cort.pretrained {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_reranker:
    input:
        files=of(inputs.released_files, "rerankers"),
    output:
        f"{paths.RELEASED_RERANKER}{paths.CARD}",
    log:
        "logs/{dataset}/pretrained_reranker/{reranker}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_reranker/{reranker}.tsv"
    wildcard_constraints:
        reranker=having("rerankers", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(
            ("rerankers.{reranker}", "kind", "pretrained", "revision", "query_length", "max_length", "similarity")
        ),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released reranker {wildcards.reranker}"
    shell:
        "exec python -m cort.pretrained {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_weigher:
    input:
        files=of(inputs.released_files, "weighers"),
    output:
        multiext(paths.RELEASED_WEIGHER, *MODEL_FILES),
    log:
        "logs/{dataset}/pretrained_weigher/{weigher}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_weigher/{weigher}.tsv"
    wildcard_constraints:
        weigher=having("weighers", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(("weighers.{weigher}", "pretrained", "revision")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released weigher {wildcards.weigher}"
    shell:
        "exec python -m cort.pretrained --kind weigher {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_expander:
    input:
        files=of(inputs.released_files, "expanders"),
    output:
        multiext(paths.RELEASED_EXPANDER, *MODEL_FILES),
    log:
        "logs/{dataset}/pretrained_expander/{expander}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_expander/{expander}.tsv"
    wildcard_constraints:
        expander=having("expanders", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(("expanders.{expander}", "pretrained", "revision")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released expander {wildcards.expander}"
    shell:
        "exec python -m cort.pretrained --kind expander {params.options:q} --output {params.folder:q} --log {log:q}"


rule tokenize:
    input:
        tokenizer=of(inputs.tokenizer),
        texts=paths.TEXTS,
    output:
        tokens=paths.TOKENS,
        lengths=paths.LENGTHS,
    log:
        "logs/{dataset}/tokenize/{base_model}.{text}.log",
    benchmark:
        "benchmarks/{dataset}/tokenize/{base_model}.{text}.tsv"
    group:
        of(groups.of_tokens, not BASE_MODELS_NEED_NETWORK)
    threads: 4
    resources:
        mem_mb=growing(2000, per_mb=2, of="texts"),
        runtime=growing(120),
    params:
        code=code_of("tokenize"),
        folder=subpath(input.tokenizer, parent=True),
        options=options("base_models.{base_model}.cleaning"),
    message:
        "Tokenize {wildcards.text} for {wildcards.base_model}"
    shell:
        "exec python -m cort.tokenize --tokenizer {params.folder:q} --texts {input.texts:q} {params.options:q}"
        " --threads {threads} --output {output.tokens:q} --output-lengths {output.lengths:q} --log {log:q}"


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


# Vectors, impacts of terms, and vectors of tokens: of the passages in shards, of queries in one file.


rule embed:
    input:
        texts=paths.PASSAGES,
    output:
        paths.VECTORS,
    log:
        "logs/{dataset}/embed/{encoder}.{shard}.log",
    benchmark:
        "benchmarks/{dataset}/embed/{encoder}.{shard}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "endpoint"),
    localrule: True
    params:
        code=code_of("embed"),
        options=options(("encoders.{encoder}", Service, "storage")),
        cache=paths.EMBEDDINGS,
    message:
        "Ask for the vectors of the passages by {wildcards.encoder}, shard {wildcards.shard}"
    shell:
        "exec python -m cort.embed --kind passage --texts {input.texts:q} --shard {wildcards.shard} {params.options:q}"
        " {LIMITS[texts]:q} --cache {params.cache:q} --output {output:q} --log {log:q}"


rule embed_queries:
    input:
        texts=paths.QUERIES,
    output:
        paths.QUERY_VECTORS,
    log:
        "logs/{dataset}/embed_queries/{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/embed_queries/{encoder}.{split}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "endpoint"),
    localrule: True
    params:
        code=code_of("embed"),
        options=options(("encoders.{encoder}", Service, "storage")),
        cache=paths.EMBEDDINGS,
    message:
        "Ask for the vectors of the queries of {wildcards.split} by {wildcards.encoder}"
    shell:
        "exec python -m cort.embed --kind query --texts {input.texts:q} {params.options:q} {LIMITS[texts]:q}"
        " --cache {params.cache:q} --output {output:q} --log {log:q}"


rule encode:
    input:
        model=of(inputs.weights, "encoders"),
        tokens=tokens("encoders.{encoder}", "passages"),
    output:
        paths.VECTORS,
    log:
        "logs/{dataset}/encode/{encoder}.{shard}.log",
    benchmark:
        "benchmarks/{dataset}/encode/{encoder}.{shard}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "endpoint", wanted=False),
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        code=code_of("encode vectors"),
        model=subpath(input.model, parent=True),
        options=options(("encoders.{encoder}", "precision", "storage")),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/embeddings/{{encoder}}",
    message:
        "Encode the passages with {wildcards.encoder}, shard {wildcards.shard}"
    shell:
        "exec python -m cort.encode vectors --kind passage --model {params.model:q} --tokens {input.tokens:q}"
        " --shard {wildcards.shard} {params.options:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule encode_impacts:
    input:
        model=of(inputs.weights, "encoders"),
        tokens=tokens("encoders.{encoder}", "passages"),
    output:
        paths.IMPACTS,
    log:
        "logs/{dataset}/encode_impacts/{encoder}.{shard}.log",
    benchmark:
        "benchmarks/{dataset}/encode_impacts/{encoder}.{shard}.tsv"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        code=code_of("encode impacts"),
        model=subpath(input.model, parent=True),
        options=options("encoders.{encoder}.precision"),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/embeddings/{{encoder}}",
    message:
        "Encode the passages with {wildcards.encoder}, shard {wildcards.shard}"
    shell:
        "exec python -m cort.encode impacts --kind passage --model {params.model:q} --tokens {input.tokens:q}"
        " --shard {wildcards.shard} {params.options:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule encode_tokens:
    input:
        model=of(inputs.weights, "rerankers"),
        tokens=tokens("rerankers.{reranker}", "passages"),
    output:
        paths.LATE_VECTORS,
    log:
        "logs/{dataset}/encode_tokens/{reranker}.{shard}.log",
    benchmark:
        "benchmarks/{dataset}/encode_tokens/{reranker}.{shard}.tsv"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        code=code_of("encode tokens"),
        model=subpath(input.model, parent=True),
        options=options("rerankers.{reranker}.precision"),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/token_embeddings/{{reranker}}",
    message:
        "Encode the passages with {wildcards.reranker}, shard {wildcards.shard}"
    shell:
        "exec python -m cort.encode tokens --model {params.model:q} --tokens {input.tokens:q}"
        " --shard {wildcards.shard} {params.options:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule encode_queries:
    input:
        model=of(inputs.weights, "encoders"),
        tokens=tokens("encoders.{encoder}", "queries.{split}"),
        passages=of(inputs.shard_of_passages),
    output:
        paths.QUERY_VECTORS,
    log:
        "logs/{dataset}/encode_queries/{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/encode_queries/{encoder}.{split}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "endpoint", wanted=False),
    threads: min(GPU_THREADS, HALF)
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        code=code_of("encode vectors"),
        model=subpath(input.model, parent=True),
        options=options(("encoders.{encoder}", "precision", "storage")),
    message:
        "Encode the queries of {wildcards.split} with {wildcards.encoder}"
    shell:
        "exec python -m cort.encode vectors --kind query --model {params.model:q} --tokens {input.tokens:q}"
        " --passages {input.passages:q} {params.options:q} --threads {threads} --output {output:q} --log {log:q}"


rule encode_query_impacts:
    input:
        model=of(inputs.weights, "encoders"),
        tokens=tokens("encoders.{encoder}", "queries.{split}"),
        passages=of(inputs.shard_of_passages),
    output:
        paths.QUERY_IMPACTS,
    log:
        "logs/{dataset}/encode_query_impacts/{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/encode_query_impacts/{encoder}.{split}.tsv"
    threads: min(GPU_THREADS, HALF)
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        code=code_of("encode impacts"),
        model=subpath(input.model, parent=True),
        options=options("encoders.{encoder}.precision"),
    message:
        "Encode the queries of {wildcards.split} with {wildcards.encoder}"
    shell:
        "exec python -m cort.encode impacts --kind query --model {params.model:q} --tokens {input.tokens:q}"
        " --passages {input.passages:q} {params.options:q} --threads {threads} --output {output:q} --log {log:q}"


rule score:
    input:
        model=of(inputs.weights, "rerankers"),
        candidates=of(inputs.all_candidates),
        queries=tokens("rerankers.{reranker}", "queries.{split}"),
        passages=tokens("rerankers.{reranker}", "passages"),
    output:
        paths.SCORES,
    log:
        "logs/{dataset}/score/{reranker}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/score/{reranker}.{split}.tsv"
    wildcard_constraints:
        reranker=having("rerankers", "endpoint", wanted=False),
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(720),
    params:
        code=code_of("score"),
        model=subpath(input.model, parent=True),
        options=options(params.scored_depths, "rerankers.{reranker}.precision"),
        checkpoints=f"{paths.CHECKPOINTS}/scores/{{reranker}}/{{split}}",
        known=f"{paths.KNOWN_SCORES}{{split}}.arrow",
    message:
        "Score the candidates of {wildcards.split} with {wildcards.reranker}"
    shell:
        "exec python -m cort.score --model {params.model:q} --candidates {input.candidates:q} {params.options:q}"
        " --queries {input.queries:q} --passages {input.passages:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --output-known {params.known:q} --log {log:q}"


rule score_served:
    input:
        candidates=of(inputs.all_candidates),
        queries=paths.QUERIES,
        passages=paths.PASSAGES,
    output:
        paths.SCORES,
    log:
        "logs/{dataset}/score_served/{reranker}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/score_served/{reranker}.{split}.tsv"
    wildcard_constraints:
        reranker=having("rerankers", "endpoint"),
    localrule: True
    params:
        code=code_of("score_served"),
        options=options(params.scored_depths, "rerankers.{reranker}.endpoint"),
        cache=paths.SERVED_SCORES,
    message:
        "Ask for the scores of the candidates of {wildcards.split} by {wildcards.reranker}"
    shell:
        "exec python -m cort.score_served --candidates {input.candidates:q} {params.options:q} --queries {input.queries:q}"
        " --passages {input.passages:q} {LIMITS[texts]:q} --cache {params.cache:q} --output {output:q} --log {log:q}"


rule score_triples:
    input:
        model=of(inputs.weights, "rerankers"),
        triples=paths.TRIPLES,
        queries=tokens("rerankers.{reranker}", "queries.{split}"),
        passages=tokens("rerankers.{reranker}", "passages"),
    output:
        paths.TRIPLE_SCORES,
    log:
        "logs/{dataset}/score_triples/{reranker}.{encoder}.{split}.log",
    benchmark:
        "benchmarks/{dataset}/score_triples/{reranker}.{encoder}.{split}.tsv"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        code=code_of("score"),
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
    log:
        "logs/{dataset}/import_expansions/{expander}.log",
    benchmark:
        "benchmarks/{dataset}/import_expansions/{expander}.tsv"
    wildcard_constraints:
        expander=having("expanders", "file"),
    group:
        of(groups.of_expansions)
    resources:
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(120),
    params:
        code=code_of("expand import"),
        options=options("expanders.{expander}.queries"),
    message:
        "Import the predicted queries {wildcards.expander}"
    shell:
        "exec python -m cort.expand import --predictions {input.predictions:q} --passages {input.passages:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


rule expand:
    input:
        model=f"{paths.RELEASED_EXPANDER}model.safetensors",
        tokens=tokens("expanders.{expander}", "passages"),
    output:
        paths.EXPANSION_SHARD,
    log:
        "logs/{dataset}/expand/{expander}.{shard}.log",
    benchmark:
        "benchmarks/{dataset}/expand/{expander}.{shard}.tsv"
    wildcard_constraints:
        expander=having("expanders", "file", wanted=False),
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(2880),
    params:
        code=code_of("expand predict"),
        model=subpath(input.model, parent=True),
        options=options(
            ("expanders.{expander}", "queries", "passage_length", "query_length", "precision", "top_k", "beams"),
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
        model=f"{paths.RELEASED_WEIGHER}model.safetensors",
        tokens=tokens("weighers.{weigher}", "passages"),
    output:
        paths.TERM_WEIGHTS_SHARD,
    log:
        "logs/{dataset}/weigh/{weigher}.{shard}.log",
    benchmark:
        "benchmarks/{dataset}/weigh/{weigher}.{shard}.tsv"
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        code=code_of("weigh"),
        model=subpath(input.model, parent=True),
        options=options(("weighers.{weigher}", "passage_length", "scale", "square_root", "precision")),
        checkpoints=f"{paths.CHECKPOINTS}/term_weights/{{weigher}}",
    message:
        "Weigh the terms of the passages with {wildcards.weigher}, shard {wildcards.shard}"
    shell:
        "exec python -m cort.weigh --model {params.model:q} --tokens {input.tokens:q} --shard {wildcards.shard}"
        " {params.options:q} --threads {threads} --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"
