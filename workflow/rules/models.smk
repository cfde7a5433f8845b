"""Base and released models, and the tokens of texts that they read."""

from cort.config.models import Described, DescribedLengths, Hub, Prompts

OWN_BASE_MODELS = {name: model for name, model in config["base_models"].items() if name not in experiment.released}
# A model from a hub needs a network; a folder does not, nor does a new model.
BASE_MODELS_NEED_NETWORK = any(
    not Path(model.get("pretrained", os.curdir)).is_dir() for model in OWN_BASE_MODELS.values()
)


rule base_model:
    input:
        files=of(inputs.base_model_files),
    output:
        weights=f"{paths.BASE_MODEL}model.safetensors",
        config=f"{paths.BASE_MODEL}config.json",
        tokenizer=f"{paths.BASE_MODEL}tokenizer.json",
        tokenizer_config=f"{paths.BASE_MODEL}tokenizer_config.json",
    log:
        "logs/{dataset}/base_model/{base_model}.log",
    benchmark:
        "benchmarks/{dataset}/base_model/{base_model}.tsv"
    wildcard_constraints:
        base_model=any_of(OWN_BASE_MODELS),
    priority: 2
    group:
        None if BASE_MODELS_NEED_NETWORK else groups.of_base_model
    localrule: BASE_MODELS_NEED_NETWORK
    resources:
        mem_mb=growing(4000, per_mb=1),
        runtime=growing(120),
    params:
        code=code_of("base_model"),
        options=options(params.base_model, "seed"),
        folder=subpath(output.weights, parent=True),
    message:
        "Provide the base model {wildcards.base_model}"
    shell:
        "exec python -m cort.base_model {params.options:q} --output {params.folder:q} --log {log:q}"


# Encoders and re-rankers have a card; weighers and expanders are plain folders of transformers.


rule pretrained_encoder:
    input:
        files=of(inputs.released_files, "encoders"),
    output:
        f"{paths.RELEASED_ENCODER}{paths.CARD}",
    log:
        "logs/{dataset}/pretrained_encoder/{encoder}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_encoder/{encoder}.tsv"
    wildcard_constraints:
        encoder=having("encoders", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(("encoders.{encoder}", "kind", Hub, Prompts, Described, DescribedLengths)),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released encoder {wildcards.encoder}"
    shell:
        "exec python -m cort.pretrained {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_reranker:
    input:
        files=of(inputs.released_files, "rerankers"),
    output:
        f"{paths.RELEASED_RERANKER}{paths.CARD}",
    log:
        "logs/{dataset}/pretrained_reranker/{reranker}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_reranker/{reranker}.tsv"
    wildcard_constraints:
        reranker=having("rerankers", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(
            ("rerankers.{reranker}", "kind", "pretrained", "revision", "query_length", "max_length", "similarity")
        ),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released reranker {wildcards.reranker}"
    shell:
        "exec python -m cort.pretrained {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_weigher:
    input:
        files=of(inputs.released_files, "weighers"),
    output:
        multiext(paths.RELEASED_WEIGHER, *MODEL_FILES),
    log:
        "logs/{dataset}/pretrained_weigher/{weigher}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_weigher/{weigher}.tsv"
    wildcard_constraints:
        weigher=having("weighers", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(("weighers.{weigher}", "pretrained", "revision")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released weigher {wildcards.weigher}"
    shell:
        "exec python -m cort.pretrained --kind weigher {params.options:q} --output {params.folder:q} --log {log:q}"


rule pretrained_expander:
    input:
        files=of(inputs.released_files, "expanders"),
    output:
        multiext(paths.RELEASED_EXPANDER, *MODEL_FILES),
    log:
        "logs/{dataset}/pretrained_expander/{expander}.log",
    benchmark:
        "benchmarks/{dataset}/pretrained_expander/{expander}.tsv"
    wildcard_constraints:
        expander=having("expanders", "pretrained"),
    priority: 2
    localrule: True
    params:
        code=code_of("pretrained"),
        options=options(("expanders.{expander}", "pretrained", "revision")),
        folder=subpath(output[0], parent=True),
    message:
        "Provide the released expander {wildcards.expander}"
    shell:
        "exec python -m cort.pretrained --kind expander {params.options:q} --output {params.folder:q} --log {log:q}"


rule tokenize:
    input:
        tokenizer=of(inputs.tokenizer),
        texts=paths.TEXTS,
    output:
        tokens=paths.TOKENS,
        lengths=paths.LENGTHS,
    log:
        "logs/{dataset}/tokenize/{base_model}.{text}.log",
    benchmark:
        "benchmarks/{dataset}/tokenize/{base_model}.{text}.tsv"
    group:
        of(groups.of_tokens, not BASE_MODELS_NEED_NETWORK)
    threads: 4
    resources:
        mem_mb=growing(2000, per_mb=2, of="texts"),
        runtime=growing(120),
    params:
        code=code_of("tokenize"),
        folder=subpath(input.tokenizer, parent=True),
        options=options("base_models.{base_model}.cleaning"),
    message:
        "Tokenize {wildcards.text} for {wildcards.base_model}"
    shell:
        "exec python -m cort.tokenize --tokenizer {params.folder:q} --texts {input.texts:q} {params.options:q}"
        " --threads {threads} --output {output.tokens:q} --output-lengths {output.lengths:q} --log {log:q}"
