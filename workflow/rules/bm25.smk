"""BM25 indexes, their tuning and runs; term weighting."""


rule import_term_weights:
    input:
        documents=setting("weighers.{weigher}.file"),
        passages=paths.PASSAGES,
    output:
        paths.TERM_WEIGHTS,
    wildcard_constraints:
        weigher=names_with_file(config, "weighers"),
    resources:
        mem_mb=growing(3000),
        runtime=growing(120),
    message:
        "Import the weighted documents {wildcards.weigher}"
    shell:
        "python -m cort.weigh import --documents {input.documents:q} --passages {input.passages:q}"
        " --output {output:q} --log {log:q}"


rule weigh:
    input:
        model=weights("weighers"),
        tokens=tokens("weighers.{weigher}", "passages"),
    output:
        paths.TERM_WEIGHTS_SHARD,
    wildcard_constraints:
        weigher=names_with_file(config, "weighers", has_file=False),
    threads: GPU_THREADS
    resources:
        disk_mb=disk(sizes.text),
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        model=subpath(input.model, parent=True),
        options=options(among("weighers.{weigher}", "passage_length", "scale", "square_root", "precision")),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/term_weights/{{weigher}}",
    message:
        "Weigh the terms of the passages with {wildcards.weigher}, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.weigh predict --model {params.model:q} --tokens {input.tokens:q} --shard {wildcards.scatteritem}"
        " {params.options:q} --threads {threads} --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"


rule bm25_index:
    input:
        passages=paths.PASSAGES,
        expansions=changes("expanders", paths.EXPANSIONS, paths.EXPANSION_SHARD),
        term_weights=changes("weighers", paths.TERM_WEIGHTS, paths.TERM_WEIGHTS_SHARD),
    output:
        # A file, not the folder: Snakemake cannot compare the content of folders.
        paths.LEXICAL_INDEX,
    # Training waits for it. Without priority, smaller jobs would take the cores one by one.
    priority: 1
    threads: 8
    resources:
        disk_mb=disk(sizes.text, 2),
        mem_mb=growing(3000),
        heap_mb=growing(1500),
        runtime=growing(120),
    params:
        folder=subpath(output[0], parent=True),
        options=options("lexical.{lexical}.cleaning", "lexical.{lexical}.language"),
    message:
        "Index the passages for {wildcards.lexical}"
    shell:
        "python -m cort.index bm25 --passages {input.passages:q} --expansions {input.expansions:q}"
        " --term-weights {input.term_weights:q} {params.options:q} --threads {threads}"
        " --memory-mb {resources.heap_mb} --output {params.folder:q} --log {log:q}"


rule bm25_tune:
    input:
        index=paths.LEXICAL_INDEX,
        queries=paths.at(paths.QUERIES, config, split="train"),
        qrels=paths.at(paths.QRELS, config, split="train"),
        exclude=lambda wildcards: config["splits"].get("train", {}).get("exclude", []),
    output:
        paths.LEXICAL_PARAMETERS,
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(
            all_of("lexical.{lexical}.tune"),
            "splits.train.relevance_level",
            "collection.aggregate",
            settings.dropped("train"),
            "depth",
            "seed",
        ),
    message:
        "Choose k1 and b of {wildcards.lexical} by a grid search over training queries"
    shell:
        "python -m cort.tune bm25 --index {params.index:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " {params.options:q} --threads {threads} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"


use rule bm25_tune as bm25_tune_folds with:
    input:
        index=paths.LEXICAL_INDEX,
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        exclude=partial(inputs.excluded_results, config),
    output:
        paths.LEXICAL_FOLDS,
    params:
        index=subpath(input.index, parent=True),
        options=options(
            all_of("lexical.{lexical}.tune"),
            "splits.{split}.relevance_level",
            "collection.aggregate",
            settings.dropped("{split}"),
            "depth",
            "seed",
        ),
    message:
        "Choose k1 and b of {wildcards.lexical} by cross-validation on {wildcards.split}"


rule bm25:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "bm25"),
    threads: MACHINE.half
    resources:
        disk_mb=disk(sizes.run),
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(settings.of_system, settings.results),
    message:
        "Retrieve {wildcards.split} with {wildcards.system}"
    shell:
        "python -m cort.retrieve bm25 --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --memory-mb {resources.heap_mb} --tag {wildcards.system:q} --output {output:q}"
        " --log {log:q}"
