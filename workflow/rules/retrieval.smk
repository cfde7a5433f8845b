"""Graph indexes and their audits; runs by dense retrieval and fusion."""


rule onng:
    input:
        passages=gather.encode(paths.VECTORS, allow_missing=True),
    output:
        graph_files("onng"),
    threads: 8
    resources:
        disk_mb=disk(sizes.vectors, 5),
        checkpoint_seconds=600,
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(1440),
    params:
        folder=subpath(output[0], parent=True),
        options=options(all_of("encoders.{encoder}.onng")),
        checkpoints=f"{paths.CHECKPOINTS}/onng/{{encoder}}",
    message:
        "Build the ONNG index over the vectors of {wildcards.encoder}"
    shell:
        "python -m cort.index onng --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --output {params.folder:q}"
        " --checkpoints {params.checkpoints:q} --checkpoint-every {resources.checkpoint_seconds} --log {log:q}"


rule hnsw:
    input:
        passages=gather.encode(paths.VECTORS, allow_missing=True),
    output:
        graph_files("hnsw"),
    resources:
        disk_mb=disk(sizes.vectors, 1.5),
        mem_mb=growing(2000, per_mb=4),
        runtime=growing(1440),
    params:
        folder=subpath(output[0], parent=True),
        options=options(all_of("encoders.{encoder}.hnsw")),
    message:
        "Build the HNSW index over the vectors of {wildcards.encoder}"
    shell:
        "python -m cort.index hnsw --passages {input.passages:q} {params.options:q} --output {params.folder:q} --log {log:q}"


rule audit:
    input:
        queries=paths.QUERY_VECTORS,
        passages=gather.encode(paths.VECTORS, allow_missing=True),
        qrels=partial(inputs.judgements, config),
        index=f"{paths.GRAPH}meta.json",
    output:
        paths.AUDIT,
    wildcard_constraints:
        index="|".join(GRAPHS),
    # The measured search has one thread; the others keep other jobs from disturbing it.
    threads: 8
    resources:
        mem_mb=growing(4000, per_mb=6),
        runtime=growing(720),
    params:
        index=subpath(input.index, parent=True),
        options=options(settings.audit, "collection.aggregate"),
    message:
        "Audit the index {wildcards.index} of {wildcards.encoder} on {wildcards.split} against exact search"
    shell:
        "python -m cort.audit graph --queries {input.queries:q} --passages {input.passages:q} --qrels {input.qrels:q}"
        " --kind {wildcards.index} --index {params.index:q} {params.options:q} --encoder {wildcards.encoder:q}"
        " --split {wildcards.split} --threads {threads} --output {output:q} --log {log:q}"


# Both write runs: `retrieve` in one job, `merge` from several.
if RETRIEVAL_PARTS == 1:

    ruleorder: retrieve > merge

else:

    ruleorder: merge > retrieve


rule retrieve:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "retrieve"),
    threads: GPU_THREADS
    resources:
        disk_mb=disk(sizes.run),
        gpu=gpus(1),
        # `--set-resources retrieve:gpu=4 retrieve:devices=4` divides the passages among four GPUs.
        devices=1,
        mem_mb=growing(4000, per_mb=2),
        runtime=growing(240),
    params:
        options=options(settings.results),
    message:
        "Retrieve {wildcards.split} with {wildcards.system} (exact)"
    shell:
        "python -m cort.retrieve exact --queries {input.queries:q} --passages {input.passages:q} {params.options:q}"
        " --threads {threads} --gpus {resources.devices} --memory-mb {resources.mem_mb} --tag {wildcards.system:q}"
        " --output {output:q} --log {log:q}"


use rule retrieve as retrieve_part with:
    output:
        paths.RANKINGS,
    resources:
        gpu=gpus(1),
        devices=1,
        mem_mb=growing(4000, per_mb=2 / RETRIEVAL_PARTS),
        runtime=growing(240),
    params:
        options=options(settings.results, settings.part_of_passages),
    message:
        "Retrieve {wildcards.split} with {wildcards.system} (exact), part {wildcards.scatteritem}"


rule merge:
    input:
        parts=gather.retrieve(paths.RANKINGS, allow_missing=True),
        exclude=partial(inputs.excluded_results, config),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "merge"),
    resources:
        disk_mb=disk(sizes.run),
        mem_mb=growing(2000),
        runtime=growing(240),
    params:
        options=options(settings.results),
    message:
        "Merge the parts of the run of {wildcards.system} on {wildcards.split}"
    shell:
        "python -m cort.retrieve merge --parts {input.parts:q} {params.options:q} --tag {wildcards.system:q} --output {output:q}"
        " --log {log:q}"


rule retrieve_tokens:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "retrieve_tokens"),
    threads: GPU_THREADS
    resources:
        disk_mb=disk(sizes.run),
        gpu=gpus(1),
        mem_mb=growing(8000, per_mb=1),
        runtime=growing(720),
    params:
        model=subpath(input.model, parent=True),
        options=options(settings.of_system, settings.results),
    message:
        "Retrieve {wildcards.split} with {wildcards.system} (exact late interaction)"
    shell:
        "python -m cort.retrieve tokens --model {params.model:q} --queries {input.queries:q}"
        " --passages {input.passages:q} {params.options:q} --threads {threads} --tag {wildcards.system:q}"
        " --output {output:q} --log {log:q}"


rule retrieve_graph:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "retrieve_graph"),
    threads: 8
    resources:
        disk_mb=disk(sizes.run),
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        index=subpath(input.index, parent=True),
        options=options(settings.of_system, settings.results),
    message:
        "Retrieve {wildcards.split} with {wildcards.system} (graph index)"
    shell:
        "python -m cort.retrieve graph --index {params.index:q} --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --tag {wildcards.system:q} --output {output:q} --log {log:q}"


rule fuse_tune:
    input:
        unpack(partial(inputs.for_tuning, config)),
        qrels=paths.at(paths.QRELS, config, split="validation"),
    output:
        paths.WEIGHTS,
    wildcard_constraints:
        system=made_by(config, "fuse_tune"),
    localrule: True
    params:
        options=options(settings.tuning, "splits.validation.relevance_level", "collection.aggregate"),
    message:
        "Choose the weights of {wildcards.system} by a grid search over validation queries"
    shell:
        "python -m cort.tune weights --runs {input.runs:q} --qrels {input.qrels:q} {params.options:q} --output {output:q}"
        " --log {log:q}"


use rule fuse_tune as fuse_tune_folds with:
    input:
        unpack(partial(inputs.for_tuning, config)),
        qrels=paths.QRELS,
    output:
        paths.FOLD_WEIGHTS,
    params:
        options=options(settings.tuning, "splits.{split}.relevance_level", "collection.aggregate"),
    message:
        "Choose the weights of {wildcards.system} by cross-validation on {wildcards.split}"


rule fuse:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "fuse"),
    localrule: True
    resources:
        disk_mb=disk(sizes.run),
    params:
        # With the order of the runs, which Snakemake ignores in inputs.
        options=options(settings.of_system, settings.depth),
    message:
        "Fuse the runs of {wildcards.system} on {wildcards.split}"
    shell:
        "python -m cort.fuse --runs {input.runs:q} {params.options:q} --tag {wildcards.system:q}"
        " --output {output:q} --log {log:q}"
