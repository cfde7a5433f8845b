"""Comparison with published numbers, files to hand in, models to hand on."""


rule consistency:
    input:
        script="cort/consistency.py",
        run="results/{dataset}/runs/{split}/{system}.trec",
        reference=get_consistency_reference,
    output:
        "results/{dataset}/consistency/{split}/{system}.json",
    log:
        "logs/{dataset}/consistency/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/consistency/{split}.{system}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        reference=setting("evaluation", "consistency", "reference"),
        depths=setting("evaluation", "consistency", "depths"),
    message:
        "Compare the documents of {wildcards.system} on {wildcards.split} with those of {params.reference}"
    shell:
        "python -m {params.module} --run {input.run:q} --reference {input.reference:q}"
        " --reference-name {params.reference:q} --depths {params.depths} --system {wildcards.system:q}"
        " --split {wildcards.split} --output {output:q} --log {log:q}"


rule reproduction:
    input:
        script="cort/reproduction.py",
        papers=config["papers"],
        measures=get_measures(config["dataset"]),
        depths=get_depth_curves(config["dataset"]),
        consistency=consistency_files(config),
        latencies=get_latencies(config["dataset"]),
    output:
        page=report(
            "results/{dataset}/report/reproduction/index.html",
            caption="../report/reproduction.rst",
            category="Reproduction",
        ),
        json="results/{dataset}/report/reproduction/reproduction.json",
        numbers="results/{dataset}/report/reproduction/numbers.csv",
        files=get_reproduction_files(),
    log:
        "logs/{dataset}/reproduction.log",
    benchmark:
        "benchmarks/{dataset}/reproduction/reproduction.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        title=setting("title"),
        folder=subpath(output.page, parent=True),
    message:
        "Compare the results of {wildcards.dataset} with published numbers"
    shell:
        "python -m {params.module} --title {params.title:q} --dataset {wildcards.dataset:q} --papers {input.papers:q}"
        " --measures-files {input.measures:q} --depths-files {input.depths:q}"
        " --consistency-files {input.consistency:q} --latency-files {input.latencies:q}"
        " --output-folder {params.folder:q} --log {log:q}"


rule submission:
    input:
        script="cort/submission.py",
        run=get_submitted("runs/{split}/{system}.trec"),
        queries=get_submitted("collection/queries.{split}.parquet"),
        passages="results/{dataset}/collection/passages.parquet",
    output:
        "results/{dataset}/submissions/{submission}.{suffix}",
    log:
        "logs/{dataset}/submission/{submission}.{suffix}.log",
    benchmark:
        "benchmarks/{dataset}/submission/{submission}.{suffix}.tsv"
    wildcard_constraints:
        suffix="tsv|trec",
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        form=setting("submissions", "{submission}", "form"),
        run_id=get_run_id,
    message:
        "Write {wildcards.submission}, to be handed in"
    shell:
        "python -m {params.module} --run {input.run:q} --queries {input.queries:q} --passages {input.passages:q}"
        " --form {params.form} {params.run_id:q} --output {output:q} --log {log:q}"


rule export_model:
    input:
        script="cort/export_model.py",
        model=get_exported,
        counts=get_export_counts,
        measures=get_export_measures,
    output:
        "results/{dataset}/models/{model}/README.md",
        "results/{dataset}/models/{model}/modules.json",
        "results/{dataset}/models/{model}/config_sentence_transformers.json",
        "results/{dataset}/models/{model}/transformer/model.safetensors",
    log:
        "logs/{dataset}/export_model/{model}.log",
    benchmark:
        "benchmarks/{dataset}/export_model/{model}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        folder=subpath(output[0], parent=True),
        source=subpath(input.model, parent=True),
        settings=get_export_settings,
        counts=get_export_count_words,
    message:
        "Write {wildcards.model} for sentence-transformers"
    shell:
        "python -m {params.module} --model {params.source:q} --name {wildcards.model:q} --dataset {wildcards.dataset:q}"
        " {params.settings:q} --counts {params.counts:q} --measures-files {input.measures:q}"
        " --output {params.folder:q} --log {log:q}"
