"""IVF-PQ indexes of the vectors of encoders and of the token vectors of late interaction: built, searched, audited."""


rule ivfpq:
    input:
        passages=vectors_of_index,
    output:
        multiext(paths.GRAPH.replace("{index}", "ivfpq"), "meta.json", *TOKEN_INDEXES["ivfpq"].files),
    threads: 8
    resources:
        mem_mb=growing(4000, per_mb=0.5),
        runtime=growing(1440),
    params:
        folder=subpath(output[0], parent=True),
        options=options(settings.ivfpq, "seed"),
    message:
        "Build the IVF-PQ index over the vectors of {wildcards.encoder}"
    shell:
        "python -m cort.index ivfpq --passages {input.passages:q} {params.options:q} --threads {threads}"
        " --output {params.folder:q} --log {log:q}"


rule audit_ivfpq:
    input:
        unpack(partial(inputs.of_audit, config, SHARDS)),
        qrels=partial(inputs.judgements, config),
        index=f"{paths.GRAPH}meta.json",
    output:
        paths.AUDIT,
    wildcard_constraints:
        index="|".join(TOKEN_INDEXES),
    # The measured search has one thread; the others keep other jobs from disturbing it.
    threads: 8
    resources:
        mem_mb=growing(8000, per_mb=1),
        runtime=growing(720),
    params:
        model=folder_of_model,
        index=subpath(input.index, parent=True),
        options=options(settings.audit, settings.of_exact_search, "audit.candidates", "collection.aggregate"),
    message:
        "Audit the index {wildcards.index} of {wildcards.encoder} on {wildcards.split} against exact search"
    shell:
        "python -m cort.audit ivfpq --model {params.model:q} --queries {input.queries:q} --passages {input.passages:q}"
        " --qrels {input.qrels:q} --kind {wildcards.index} --index {params.index:q} {params.options:q}"
        " --encoder {wildcards.encoder:q} --split {wildcards.split} --threads {threads} --output {output:q} --log {log:q}"


rule retrieve_ivfpq:
    input:
        unpack(run_inputs),
    output:
        paths.RUN,
    wildcard_constraints:
        system=made_by(config, "retrieve_ivfpq"),
    threads: 8
    resources:
        # Files of vectors are mapped; ids are in memory.
        mem_mb=growing(8000, per_mb=0.2),
        runtime=growing(720),
    params:
        model=folder_of_model,
        index=subpath(input.index, parent=True),
        options=options(settings.of_system, settings.results),
    message:
        "Retrieve {wildcards.split} with {wildcards.system} (IVF-PQ index)"
    shell:
        "python -m cort.retrieve ivfpq --model {params.model:q} --queries {input.queries:q}"
        " --passages {input.passages:q} --index {params.index:q} {params.options:q} --threads {threads}"
        " --tag {wildcards.system:q} --output {output:q} --log {log:q}"
