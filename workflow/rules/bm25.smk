"""The term-based rankers, and what changes their texts."""


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
        "Take in the weighted documents {wildcards.weigher}"
    shell:
        "python -m cort.import_term_weights --documents {input.documents:q} --passages {input.passages:q}"
        " --output {output:q} --log {log:q}"


rule term_recall:
    input:
        qrels=paths.QRELS,
        queries=paths.QUERIES,
        passages=paths.PASSAGES,
    output:
        paths.TERM_RECALL,
    resources:
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(60),
    params:
        options=options("splits.{split}.relevance_level"),
    message:
        "Count which words of relevant passages the queries of {wildcards.split} have"
    shell:
        "python -m cort.term_recall --qrels {input.qrels:q} --queries {input.queries:q} --passages {input.passages:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


rule train_weigher:
    input:
        base_model=chosen(f"{paths.BASE_MODEL}model.safetensors", base_model="weighers.{weigher}.base_model"),
        targets=paths.TERM_RECALL.replace("{split}", "train"),
        validation_targets=paths.TERM_RECALL.replace("{split}", "validation"),
        passages=tokens("weighers.{weigher}", "passages"),
    output:
        best=guarded(multiext(f"{paths.WEIGHER}best/", *MODEL_FILES)),
        last=guarded(multiext(f"{paths.WEIGHER}last/", *MODEL_FILES)),
        curve=f"{paths.WEIGHER}curve.csv",
        selection=f"{paths.WEIGHER}selection.json",
    threads: 8
    resources:
        gpu=gpus("weighers.{weigher}.training.gpus"),
        processes=setting("weighers.{weigher}.training.gpus"),
        checkpoint_seconds=600,
        mem_mb=times(16000, "weighers.{weigher}.training.gpus"),
        runtime=1440,
    params:
        base_model=subpath(input.base_model, parent=True),
        folder=subpath(output.curve, parent=True),
        options=options(
            "weighers.{weigher}.passage_length",
            all_of("weighers.{weigher}.training", but=["gpus"]),
            "seed",
        ),
        checkpoints=f"{paths.CHECKPOINTS}/weighers/{{weigher}}",
    message:
        "Train the weigher of terms {wildcards.weigher}"
    shell:
        "python -m cort.train_weigher --base-model {params.base_model:q} --targets {input.targets:q}"
        " --validation-targets {input.validation_targets:q} --passages {input.passages:q} {params.options:q}"
        " --threads {threads} --processes {resources.processes} --output {params.folder:q}"
        " --output-curve {output.curve:q} --output-selection {output.selection:q}"
        " --checkpoints {params.checkpoints:q} --checkpoint-every {resources.checkpoint_seconds}"
        " --events logs/{wildcards.dataset:q}/events/{wildcards.weigher:q} --log {log:q}"


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
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(1440),
    params:
        model=subpath(input.model, parent=True),
        options=options(among("weighers.{weigher}", "passage_length", "scale", "square_root", "precision")),
        # All shards in one folder: blocks are the same however many shards there are.
        checkpoints=f"{paths.CHECKPOINTS}/term_weights/{{weigher}}",
    message:
        "Weigh the terms of the passages with {wildcards.weigher}, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.weigh --model {params.model:q} --tokens {input.tokens:q} --shard {wildcards.scatteritem}"
        " {params.options:q} --threads {threads} --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"


rule bm25_index:
    input:
        passages=paths.PASSAGES,
        expansions=changes("expanders", paths.EXPANSIONS, paths.EXPANSION_SHARD),
        term_weights=changes("weighers", paths.TERM_WEIGHTS, paths.TERM_WEIGHTS_SHARD),
    output:
        # One named file: the time of a folder changes when it is copied, and nothing compares its content.
        paths.LEXICAL_INDEX,
    threads: 8
    resources:
        mem_mb=growing(3000),
        heap_mb=growing(1500),
        runtime=growing(120),
    params:
        folder=subpath(output[0], parent=True),
        options=options("lexical.{lexical}.cleaning"),
    message:
        "Index the passages for {wildcards.lexical}"
    shell:
        "python -m cort.bm25_index --passages {input.passages:q} --expansions {input.expansions:q}"
        " --term-weights {input.term_weights:q} {params.options:q} --threads {threads}"
        " --memory-mb {resources.heap_mb} --output {params.folder:q} --log {log:q}"


rule bm25_tune:
    input:
        index=paths.LEXICAL_INDEX,
        queries=paths.at(paths.QUERIES, config, split="train"),
        qrels=paths.at(paths.QRELS, config, split="train"),
    output:
        paths.LEXICAL_PARAMETERS,
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(all_of("lexical.{lexical}.tune"), "splits.train.relevance_level", "depth", "seed"),
    message:
        "Choose k1 and b of {wildcards.lexical} by a grid search over training queries"
    shell:
        "python -m cort.bm25_tune --index {params.index:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " {params.options:q} --threads {threads} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"


rule bm25:
    input:
        index=chosen(paths.LEXICAL_INDEX, lexical="systems.{system}.retrieve"),
        queries=paths.QUERIES,
        parameters=partial(inputs.tuned_parameters, config),
    output:
        paths.RUN,
    wildcard_constraints:
        system=names_of_kind(config, "bm25"),
    threads: 8
    resources:
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(settings.bm25_parameters, settings.depth),
    message:
        "Retrieve {wildcards.split} with {wildcards.system}"
    shell:
        "python -m cort.bm25 --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --memory-mb {resources.heap_mb} --tag {wildcards.system:q} --output {output:q}"
        " --log {log:q}"
