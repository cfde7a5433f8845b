"""Learned sparse retrieval: impacts of tokens, their index and runs."""


rule encode_impacts:
    input:
        model=weights("encoders"),
        tokens=tokens("encoders.{encoder}", "passages"),
    output:
        paths.IMPACTS,
    threads: GPU_THREADS
    resources:
        disk_mb=disk(sizes.impacts, 2),
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(720),
    params:
        model=subpath(input.model, parent=True),
        options=options("encoders.{encoder}.precision"),
        # One folder for all shards: blocks do not depend on the number of shards.
        checkpoints=f"{paths.CHECKPOINTS}/embeddings/{{encoder}}",
    message:
        "Encode the passages with {wildcards.encoder}, shard {wildcards.scatteritem}"
    shell:
        "python -m cort.encode impacts --model {params.model:q} --tokens {input.tokens:q} --kind passage"
        " --shard {wildcards.scatteritem} {params.options:q} --threads {threads} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --log {log:q}"


rule encode_query_impacts:
    input:
        model=weights("encoders"),
        tokens=tokens("encoders.{encoder}", "queries.{split}"),
        passages=shard_of_passages,
    output:
        paths.QUERY_IMPACTS,
    threads: GPU_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        model=subpath(input.model, parent=True),
        options=options("encoders.{encoder}.precision"),
    message:
        "Encode the queries of {wildcards.split} with {wildcards.encoder}"
    shell:
        "python -m cort.encode impacts --model {params.model:q} --tokens {input.tokens:q} --kind query"
        " --passages {input.passages:q} {params.options:q} --threads {threads} --output {output:q} --log {log:q}"


rule impact_index:
    input:
        passages=gather.encode(paths.IMPACTS, allow_missing=True),
    output:
        # A file, not the folder: Snakemake cannot compare the content of folders.
        paths.IMPACT_INDEX,
    threads: 8
    resources:
        disk_mb=disk(sizes.impacts, 3),
        mem_mb=growing(3000),
        heap_mb=growing(1500),
        runtime=growing(120),
    params:
        folder=subpath(output[0], parent=True),
    message:
        "Index the impacts of {wildcards.encoder}"
    shell:
        "python -m cort.index impacts --passages {input.passages:q} --threads {threads}"
        " --memory-mb {resources.heap_mb} --output {params.folder:q} --log {log:q}"


rule retrieve_impacts:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "retrieve_impacts"),
    threads: 8
    resources:
        disk_mb=disk(sizes.run),
        mem_mb=growing(3500),
        heap_mb=growing(2000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(settings.results),
    message:
        "Retrieve {wildcards.split} with {wildcards.system} (impacts)"
    shell:
        "python -m cort.retrieve impacts --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --memory-mb {resources.heap_mb} --tag {wildcards.system:q} --output {output:q}"
        " --log {log:q}"


rule sparsity:
    input:
        queries=paths.QUERY_IMPACTS,
        passages=gather.encode(paths.IMPACTS, allow_missing=True),
    output:
        paths.SPARSITY,
    localrule: True
    message:
        "Count the terms of {wildcards.encoder} on {wildcards.split}"
    shell:
        "python -m cort.analyze sparsity --queries {input.queries:q} --passages {input.passages:q}"
        " --encoder {wildcards.encoder:q} --split {wildcards.split:q} --output {output:q} --log {log:q}"
