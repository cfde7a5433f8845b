"""Document expansion: predicted queries from a file or a released model, and their filtering."""


rule import_expansions:
    input:
        predictions=setting("expanders.{expander}.file"),
        passages=paths.PASSAGES,
    output:
        paths.EXPANSIONS,
    wildcard_constraints:
        expander=names_with_file(config, "expanders"),
    resources:
        disk_mb=disk(sizes.text),
        mem_mb=growing(3000, per_mb=0.1),
        runtime=growing(120),
    params:
        options=options(optional("expanders.{expander}.queries")),
    message:
        "Import the predicted queries {wildcards.expander}"
    shell:
        "python -m cort.expand import --predictions {input.predictions:q} --passages {input.passages:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


rule expand:
    input:
        model=weights("expanders"),
        tokens=tokens("expanders.{expander}", "passages"),
    output:
        paths.EXPANSION_SHARD,
    wildcard_constraints:
        expander=names_with_file(config, "expanders", has_file=False),
    threads: GPU_THREADS
    resources:
        disk_mb=disk(sizes.text),
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
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/expansions/{{expander}}",
    message:
        "Predict queries for the passages with {wildcards.expander}, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.expand predict --model {params.model:q} --tokens {input.tokens:q} --shard {wildcards.scatteritem}"
        " {params.options:q} --threads {threads} --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"


rule score_expansions:
    input:
        model=partial(inputs.filter_weights, config),
        tokens=partial(inputs.filter_tokens, config),
        expansions=queries_to_filter,
    output:
        paths.EXPANSION_SCORES,
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(2880),
    params:
        model=subpath(input.model, parent=True),
        options=options(settings.filtering),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/expansion_scores/{{expander}}",
    message:
        "Score the predicted queries {wildcards.expander} with a re-ranker, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.expand score --model {params.model:q} --tokens {input.tokens:q}"
        " --expansions {input.expansions:q} --shard {wildcards.scatteritem} {params.options:q} --threads {threads}"
        " --output {output:q} --checkpoints {params.checkpoints:q} --log {log:q}"


rule filter_expansions:
    input:
        expansions=queries_to_filter,
        scores=scores_of_predicted,
    output:
        expansions=paths.FILTERED_EXPANSIONS,
        counts=paths.FILTER_COUNTS,
    resources:
        mem_mb=growing(2000, per_mb=1.5),
        runtime=growing(120),
    params:
        options=options("expanders.{expander}.filter.keep"),
    message:
        "Keep the best of the predicted queries {wildcards.expander}"
    shell:
        "python -m cort.expand filter --expansions {input.expansions:q} --scores {input.scores:q}"
        " {params.options:q} --output {output.expansions:q} --output-counts {output.counts:q} --log {log:q}"
