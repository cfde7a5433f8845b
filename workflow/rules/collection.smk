"""Passages, queries and judgements as checked tables; base and released models; token ids."""


rule pydocs:
    input:
        lock="requirements.lock",
    output:
        collection=paths.RAW_COLLECTION,
        splits=expand(
            paths.RAW_SPLIT,
            kind=["queries", "qrels"],
            split=["train", "validation", "test"],
            allow_missing=True,
        ),
        filters=paths.RAW_FILTERS,
    threads: 4
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        folder=subpath(output.collection, parent=True),
        # The standard library's docstrings depend on it.
        python=sys.version_info[:3],
        options=options(all_of("collection.pydocs"), "seed"),
    message:
        "Collect docstrings of Python and the locked packages"
    shell:
        "python -m cort.pydocs --lock {input.lock:q} {params.options:q} --threads {threads}"
        " --output-folder {params.folder:q} --log {log:q}"


rule collection:
    input:
        inputs.origin_of_collection(config),
    output:
        **({"candidates": paths.CANDIDATES} if copied_from(config) else {}),
        **({"sources": paths.IMPORT_SOURCES} if source_of(config) else {}),
        passages=paths.PASSAGES,
        counts=paths.IMPORT_COUNTS,
    wildcard_constraints:
        dataset=any_of([config["dataset"]]),
    threads: 2
    resources:
        disk_mb=disk(sizes.text, 0.5),
        mem_mb=growing(2000, per_mb=1),
        runtime=growing(120),
    params:
        options=options(settings.collection),
        # Files of a folder, with sizes and times.
        state=settings.state_of_folder(config),
    message:
        "Read the documents of {wildcards.dataset}"
    shell:
        "python -m cort.collection {params.options:q} --threads {threads} --output {output.passages:q}"
        " --output-counts {output.counts:q} --log {log:q}"


rule import_split:
    input:
        partial(inputs.origin_of_split, config),
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        sources=paths.SPLIT_SOURCES,
    wildcard_constraints:
        split=any_of(name for name, split in config["splits"].items() if is_copied(split)),
    localrule: True
    params:
        options=options(settings.imported_split),
    message:
        "Read the queries and judgements of {wildcards.split} from their source"
    shell:
        "python -m cort.import_split {params.options:q} --output-queries {output.queries:q}"
        " --output-qrels {output.qrels:q} --output-sources {output.sources:q} --log {log:q}"


# Local rules that ask an endpoint, as compute nodes may have no network.
rule passage_queries:
    input:
        paths.PASSAGES,
    output:
        paths.CANDIDATES,
    wildcard_constraints:
        dataset=any_of([config["dataset"]] if generated_from(config) == "endpoint" else []),
    localrule: True
    params:
        options=options(settings.passage_queries, settings.endpoint, "seed"),
    message:
        "Make queries of passages of {wildcards.dataset}"
    shell:
        "python -m cort.passage_queries --passages {input:q} {params.options:q} --output {output:q} --log {log:q}"


rule judge:
    input:
        unpack(judged),
        passages=paths.PASSAGES,
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        counts=paths.GENERATED_COUNTS,
    wildcard_constraints:
        split=any_of(splits_with(config, "judge")),
    localrule: True
    params:
        options=options("splits.{split}.judge.depth", settings.endpoint, "collection.aggregate"),
    message:
        "Judge what systems retrieve for {wildcards.split}"
    shell:
        "python -m cort.judge --runs {input.runs:q} --queries {input.queries:q} --passages {input.passages:q}"
        " {params.options:q} --output-queries {output.queries:q} --output-qrels {output.qrels:q}"
        " --output-counts {output.counts:q} --log {log:q}"


rule generate:
    input:
        candidates_of_splits,
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        counts=paths.GENERATED_COUNTS,
    wildcard_constraints:
        split=any_of(splits_with(config, "generate")),
    resources:
        mem_mb=growing(1000, per_mb=10),
        runtime=growing(60),
    params:
        options=options(settings.generated_split, "collection.aggregate", "seed"),
    message:
        "Make queries and judgements of {wildcards.split} from documents"
    shell:
        "python -m cort.generate --candidates {input:q} {params.options:q} --output-queries {output.queries:q}"
        " --output-qrels {output.qrels:q} --output-counts {output.counts:q} --log {log:q}"


rule split:
    input:
        queries=partial(inputs.raw_split, config, "queries"),
        qrels=partial(inputs.raw_split, config, "qrels"),
        passages=paths.PASSAGES,
        without=partial(inputs.excluded_queries, config),
    output:
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        counts=paths.JUDGEMENT_COUNTS,
        oddities=paths.ODDITIES,
    resources:
        mem_mb=growing(2000, per_mb=0.1),
        runtime=growing(60),
    params:
        options=options(settings.selection, "collection.aggregate"),
    message:
        "Read the queries and judgements of the split {wildcards.split}"
    shell:
        "python -m cort.split --queries {input.queries:q} --qrels {input.qrels:q} --passages {input.passages:q}"
        " --without {input.without:q} {params.options:q} --output-queries {output.queries:q}"
        " --output-qrels {output.qrels:q} --output-counts {output.counts:q} --output-oddities {output.oddities:q}"
        " --log {log:q}"


rule inspect:
    input:
        passages=paths.PASSAGES,
        queries=inputs.of_splits(config, paths.QUERIES),
        qrels=inputs.of_splits(config, paths.QRELS),
        oddities=inputs.of_splits(config, paths.ODDITIES),
    output:
        findings=paths.INSPECTION,
        ids=paths.INSPECTED_IDS,
    resources:
        mem_mb=growing(2000, per_mb=0.1),
        runtime=growing(60),
    params:
        options=options(settings.inspection, "collection.aggregate"),
    message:
        "Look at the passages, queries and judgements of {config[dataset]}"
    shell:
        "python -m cort.inspect --passages {input.passages:q} {params.options:q} --queries {input.queries:q}"
        " --qrels {input.qrels:q} --oddities {input.oddities:q} --output {output.findings:q}"
        " --output-ids {output.ids:q} --log {log:q}"


rule base_model:
    input:
        files=partial(inputs.base_model_files, config),
    output:
        weights=f"{paths.BASE_MODEL}model.safetensors",
        config=f"{paths.BASE_MODEL}config.json",
        tokenizer=f"{paths.BASE_MODEL}tokenizer.json",
        tokenizer_config=f"{paths.BASE_MODEL}tokenizer_config.json",
    wildcard_constraints:
        base_model=any_of(name for name in config["base_models"] if released_model(config, name) is None),
    localrule: True
    params:
        options=options(settings.base_model, "seed"),
        folder=subpath(output.weights, parent=True),
    message:
        "Provide the base model {wildcards.base_model}"
    shell:
        "python -m cort.base_model {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_encoder:
    input:
        files=partial(inputs.released_files, config, "encoders"),
    output:
        f"{paths.RELEASED_ENCODER}{paths.CARD}",
    wildcard_constraints:
        encoder=pretrained_pattern(config, "encoders"),
    localrule: True
    params:
        options=options(settings.pretrained("encoders")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released encoder {wildcards.encoder}"
    shell:
        "python -m cort.pretrained {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_reranker:
    input:
        files=partial(inputs.released_files, config, "rerankers"),
    output:
        f"{paths.RELEASED_RERANKER}{paths.CARD}",
    wildcard_constraints:
        reranker=pretrained_pattern(config, "rerankers"),
    localrule: True
    params:
        options=options(settings.pretrained("rerankers")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released re-ranker {wildcards.reranker}"
    shell:
        "python -m cort.pretrained {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_weigher:
    input:
        files=partial(inputs.released_files, config, "weighers"),
    output:
        multiext(paths.RELEASED_WEIGHER, *MODEL_FILES),
    wildcard_constraints:
        weigher=pretrained_pattern(config, "weighers"),
    localrule: True
    params:
        options=options("weighers.{weigher}.pretrained", optional("weighers.{weigher}.revision")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released term weighter {wildcards.weigher}"
    shell:
        "python -m cort.pretrained --kind weigher {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_expander:
    input:
        files=partial(inputs.released_files, config, "expanders"),
    output:
        multiext(paths.RELEASED_EXPANDER, *MODEL_FILES),
    wildcard_constraints:
        expander=pretrained_pattern(config, "expanders"),
    localrule: True
    params:
        options=options("expanders.{expander}.pretrained", optional("expanders.{expander}.revision")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released expander {wildcards.expander}"
    shell:
        "python -m cort.pretrained --kind expander {params.options:q} --output {params.folder:q} --log {log:q}"


# Both write the tokens of the passages: `tokenize` in one job, `join_tokens` from several.
if TOKENIZATION_SHARDS == 1:

    ruleorder: tokenize > join_tokens

else:

    ruleorder: join_tokens > tokenize


rule tokenize:
    input:
        tokenizer=partial(inputs.tokenizer, config),
        texts=paths.TEXTS,
    output:
        paths.TOKENS,
    threads: 4
    resources:
        disk_mb=disk(sizes.text),
        mem_mb=growing(2000, per_mb=2),
        runtime=growing(120),
    params:
        folder=subpath(input.tokenizer, parent=True),
        options=options("base_models.{base_model}.cleaning"),
    message:
        "Tokenize {wildcards.text} for {wildcards.base_model}"
    shell:
        "python -m cort.tokenize --tokenizer {params.folder:q} --texts {input.texts:q} {params.options:q}"
        " --threads {threads} --output {output:q} --log {log:q}"


rule tokenize_shard:
    input:
        tokenizer=partial(inputs.tokenizer, config),
        texts=paths.PASSAGES,
    output:
        paths.TOKENS_SHARD,
    threads: 4
    resources:
        disk_mb=disk(sizes.text, 1 / TOKENIZATION_SHARDS),
        mem_mb=growing(2000, per_mb=2 / TOKENIZATION_SHARDS),
        runtime=growing(120),
    params:
        folder=subpath(input.tokenizer, parent=True),
        options=options("base_models.{base_model}.cleaning"),
    message:
        "Tokenize the passages for {wildcards.base_model}, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.tokenize --tokenizer {params.folder:q} --texts {input.texts:q} {params.options:q}"
        " --shard {wildcards.scatteritem} --threads {threads} --output {output:q} --log {log:q}"


rule join_tokens:
    input:
        tokenizer=partial(inputs.tokenizer, config),
        texts=paths.PASSAGES,
        shards=gather.tokenize(paths.TOKENS_SHARD, allow_missing=True),
    output:
        paths.TOKENS.replace("{text}", "passages"),
    resources:
        disk_mb=disk(sizes.text),
        mem_mb=growing(4000, per_mb=0.1),
        runtime=growing(120),
    params:
        folder=subpath(input.tokenizer, parent=True),
    message:
        "Join the tokens of the passages for {wildcards.base_model}"
    shell:
        "python -m cort.tokenize --tokenizer {params.folder:q} --texts {input.texts:q} --shards {input.shards:q}"
        " --output {output:q} --log {log:q}"
