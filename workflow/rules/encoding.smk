"""What models compute for texts: vectors, scores, predicted queries, weights of terms."""

from cort.config.models import Service

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
