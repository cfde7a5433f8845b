"""From raw files to checked tables of passages, queries and judgements, and to token ids."""


rule pydocs:
    input:
        script="cort/pydocs.py",
        lock="requirements.lock",
    output:
        collection="results/{dataset}/raw/collection.tsv",
        queries=expand(
            "results/{{dataset}}/raw/queries.{split}.tsv",
            split=["train", "validation", "test"],
        ),
        qrels=expand(
            "results/{{dataset}}/raw/qrels.{split}.tsv",
            split=["train", "validation", "test"],
        ),
        filters="results/{dataset}/raw/filters.json",
    log:
        "logs/{dataset}/pydocs.log",
    benchmark:
        "benchmarks/{dataset}/pydocs/pydocs.tsv"
    conda:
        "../envs/cort.yaml"
    threads: 4
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        module=as_py_module(),
        folder=subpath(output.collection, parent=True),
        # The standard library is part of the text.
        python=sys.version_info[:3],
        options=options(
            ("collection", "pydocs"),
            "min_query_words",
            "max_query_words",
            "min_passage_words",
            "validation_queries",
            "test_queries",
        ),
        seed=setting("seed"),
    message:
        "Collect docstrings of Python and of the locked packages"
    shell:
        "python -m {params.module} --lock {input.lock:q} {params.options:q} --seed {params.seed} --threads {threads}"
        " --output-folder {params.folder:q} --log {log:q}"


rule collection:
    input:
        script="cort/collection.py",
        passages=get_raw_passages,
    output:
        "results/{dataset}/collection/passages.parquet",
    log:
        "logs/{dataset}/collection.log",
    benchmark:
        "benchmarks/{dataset}/collection/collection.tsv"
    conda:
        "../envs/cort.yaml"
    resources:
        mem_mb=growing(2000, per_mb=1),
        runtime=growing(60),
    params:
        module=as_py_module(),
    message:
        "Read the passages of {wildcards.dataset}"
    shell:
        "python -m {params.module} --passages {input.passages:q} --output {output:q} --log {log:q}"


rule split:
    input:
        script="cort/split.py",
        queries=get_raw_split("queries"),
        qrels=get_raw_split("qrels"),
        passages="results/{dataset}/collection/passages.parquet",
        without=get_excluded,
    output:
        queries="results/{dataset}/collection/queries.{split}.parquet",
        qrels="results/{dataset}/collection/qrels.{split}.parquet",
    log:
        "logs/{dataset}/split/{split}.log",
    benchmark:
        "benchmarks/{dataset}/split/{split}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        selection=get_selection,
        hold_out=get_hold_out,
    message:
        "Read the queries and judgements of the split {wildcards.split}"
    shell:
        "python -m {params.module} --queries {input.queries:q} --qrels {input.qrels:q} --passages {input.passages:q}"
        " --without {input.without:q} {params.selection:q} {params.hold_out:q}"
        " --output-queries {output.queries:q} --output-qrels {output.qrels:q} --log {log:q}"


rule base_model:
    input:
        script="cort/base_model.py",
        files=get_base_model_files,
    output:
        weights="results/{dataset}/base_models/{base_model}/model.safetensors",
        config="results/{dataset}/base_models/{base_model}/config.json",
        tokenizer="results/{dataset}/base_models/{base_model}/tokenizer.json",
        tokenizer_config="results/{dataset}/base_models/{base_model}/tokenizer_config.json",
    log:
        "logs/{dataset}/base_model/{base_model}.log",
    benchmark:
        "benchmarks/{dataset}/base_model/{base_model}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        source=get_base_model_source,
        folder=subpath(output.weights, parent=True),
        seed=setting("seed"),
    message:
        "Provide the base model {wildcards.base_model}"
    shell:
        "python -m {params.module} {params.source:q} --seed {params.seed} --output {params.folder:q} --log {log:q}"


rule tokenize:
    input:
        script="cort/tokenize.py",
        tokenizer="results/{dataset}/base_models/{base_model}/tokenizer.json",
        texts="results/{dataset}/collection/{text}.parquet",
    output:
        "results/{dataset}/tokens/{base_model}/{text}.arrow",
    log:
        "logs/{dataset}/tokenize/{base_model}.{text}.log",
    benchmark:
        "benchmarks/{dataset}/tokenize/{base_model}.{text}.tsv"
    conda:
        "../envs/cort.yaml"
    threads: 4
    resources:
        mem_mb=growing(2000, per_mb=2),
        runtime=growing(120),
    params:
        module=as_py_module(),
        folder=subpath(input.tokenizer, parent=True),
        cleaning=setting("base_models", "{base_model}", "cleaning"),
    message:
        "Tokenize {wildcards.text} for {wildcards.base_model}"
    shell:
        "python -m {params.module} --tokenizer {params.folder:q} --texts {input.texts:q} --cleaning {params.cleaning}"
        " --threads {threads} --output {output:q} --log {log:q}"
