"""Passages, queries and judgements as checked tables, and what is odd in them."""

from cort.config.collection import Pydocs

# Local rules need a network, which compute nodes may not have.


# An archive is no input: it is not needed if the extracted file exists, and deleting it must rerun nothing.
rule download:
    output:
        paths.PUBLIC_FILE,
    log:
        "logs/{dataset}/download/{source}.{file}.log",
    benchmark:
        "benchmarks/{dataset}/download/{source}.{file}.tsv"
    wildcard_constraints:
        file=file_pattern(),
    # What cannot be fetched, and mistakes in queries and judgements, show before hours of work.
    priority: 2
    localrule: True
    params:
        code=code_of("download"),
        downloads=paths.KEPT,
    message:
        "Get {wildcards.source}/{wildcards.file}"
    shell:
        "exec python -m cort.download --name {wildcards.source:q}/{wildcards.file:q} --downloads {params.downloads:q}"
        " --folder {config[downloads][folder]:q} --output {output:q} --log {log:q}"


rule pydocs:
    input:
        lock="requirements.lock",
    output:
        collection=paths.RAW_COLLECTION,
        splits=expand(
            paths.RAW_SPLIT,
            table=["queries", "qrels"],
            split=["train", "validation", "test"],
            allow_missing=True,
        ),
        filters=paths.RAW_FILTERS,
    log:
        "logs/{dataset}/pydocs.log",
    benchmark:
        "benchmarks/{dataset}/pydocs/pydocs.tsv"
    threads: 4
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        code=code_of("pydocs"),
        folder=subpath(output.collection, parent=True),
        # The standard library's docstrings depend on it.
        python=sys.version_info[:3],
        options=options(("collection.pydocs", Pydocs), "seed"),
    message:
        "Collect docstrings of Python and the locked packages"
    shell:
        "exec python -m cort.pydocs --lock {input.lock:q} {params.options:q} --threads {threads}"
        " --output-folder {params.folder:q} --log {log:q}"


rule collection:
    input:
        inputs.origin_of_collection(experiment),
    output:
        **({"candidates": paths.CANDIDATES} if experiment.copied_from else {}),
        **({"sources": paths.IMPORT_SOURCES} if experiment.source else {}),
        passages=paths.PASSAGES,
        counts=paths.IMPORT_COUNTS,
    log:
        "logs/{dataset}/collection.log",
    benchmark:
        "benchmarks/{dataset}/collection/collection.tsv"
    wildcard_constraints:
        dataset=any_of([config["dataset"]]),
    localrule: experiment.source in ("irds", "hf")
    threads: 2
    resources:
        mem_mb=growing(2000, per_mb=1),
        runtime=growing(120),
    params:
        code=code_of("collection"),
        options=options(params.collection),
        # Contents of a folder.
        state=params.state_of_folder(experiment),
    message:
        "Read the documents of {wildcards.dataset}"
    shell:
        "exec python -m cort.collection {params.options:q} --threads {threads} --output {output.passages:q}"
        " --output-counts {output.counts:q} --log {log:q}"


rule import_split:
    input:
        of(inputs.origin_of_split),
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        sources=paths.SPLIT_SOURCES,
    log:
        "logs/{dataset}/import_split/{split}.log",
    benchmark:
        "benchmarks/{dataset}/import_split/{split}.tsv"
    wildcard_constraints:
        split=any_of(name for name, split in experiment.splits.items() if split.is_copied),
    localrule: True
    params:
        code=code_of("import_split"),
        options=options(params.imported_split),
    message:
        "Read the queries and judgements of {wildcards.split} from their source"
    shell:
        "exec python -m cort.import_split {params.options:q} --output-queries {output.queries:q}"
        " --output-qrels {output.qrels:q} --output-sources {output.sources:q} --log {log:q}"


rule passage_queries:
    input:
        paths.PASSAGES,
    output:
        paths.CANDIDATES,
    log:
        "logs/{dataset}/passage_queries.log",
    benchmark:
        "benchmarks/{dataset}/passage_queries/passage_queries.tsv"
    wildcard_constraints:
        dataset=any_of([config["dataset"]] if experiment.generated_from == "endpoint" else []),
    localrule: True
    params:
        code=code_of("passage_queries"),
        cache=paths.ANSWERS,
        options=options("endpoint.model", params.passage_queries, "seed"),
    message:
        "Make queries of passages of {wildcards.dataset}"
    shell:
        "exec python -m cort.passage_queries --passages {input:q} {params.options:q} --cache {params.cache:q}"
        " {LIMITS[answers]:q} --output {output:q} --log {log:q}"


rule judge:
    input:
        unpack(of(inputs.judged)),
        passages=paths.PASSAGES,
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        counts=paths.GENERATED_COUNTS,
    log:
        "logs/{dataset}/judge/{split}.log",
    benchmark:
        "benchmarks/{dataset}/judge/{split}.tsv"
    wildcard_constraints:
        split=having("splits", "judge"),
    localrule: True
    params:
        code=code_of("judge"),
        cache=paths.ANSWERS,
        options=options("splits.{split}.judge.depth", "endpoint.model", "collection.aggregate"),
    message:
        "Judge what systems retrieve for {wildcards.split}"
    shell:
        "exec python -m cort.judge --runs {input.runs:q} --queries {input.queries:q} --passages {input.passages:q}"
        " {params.options:q} --cache {params.cache:q} {LIMITS[answers]:q} --output-queries {output.queries:q}"
        " --output-qrels {output.qrels:q} --output-counts {output.counts:q} --log {log:q}"


rule generate:
    input:
        candidates=inputs.candidates_of_splits(experiment) if experiment.generated_from else [],
        passages=paths.PASSAGES,
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        counts=paths.GENERATED_COUNTS,
    log:
        "logs/{dataset}/generate/{split}.log",
    benchmark:
        "benchmarks/{dataset}/generate/{split}.tsv"
    wildcard_constraints:
        split=having("splits", "generate"),
    resources:
        mem_mb=growing(1000, per_mb=5),
        runtime=growing(60),
    params:
        code=code_of("generate"),
        options=options(
            ("splits.{split}.generate", "min_words", "max_words"),
            params.generated_split,
            "collection.aggregate",
            "seed",
        ),
    message:
        "Make queries and judgements of {wildcards.split} from documents"
    shell:
        "exec python -m cort.generate --candidates {input.candidates:q} --passages {input.passages:q}"
        " {params.options:q} --output-queries {output.queries:q} --output-qrels {output.qrels:q}"
        " --output-counts {output.counts:q} --log {log:q}"


rule split:
    input:
        queries=of(inputs.raw_split, "queries"),
        qrels=of(inputs.raw_split, "qrels"),
        passages=paths.PASSAGES,
        without=of(inputs.excluded_queries),
    output:
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        counts=paths.JUDGEMENT_COUNTS,
        oddities=paths.ODDITIES,
    log:
        "logs/{dataset}/split/{split}.log",
    benchmark:
        "benchmarks/{dataset}/split/{split}.tsv"
    priority: 2
    resources:
        mem_mb=growing(2000, per_mb=0.1),
        runtime=growing(60),
    params:
        code=code_of("split"),
        options=options(params.selection, "collection.aggregate"),
    message:
        "Read the queries and judgements of the split {wildcards.split}"
    shell:
        "exec python -m cort.split --queries {input.queries:q} --qrels {input.qrels:q} --passages {input.passages:q}"
        " --without {input.without:q} {params.options:q} --output-queries {output.queries:q}"
        " --output-qrels {output.qrels:q} --output-counts {output.counts:q} --output-oddities {output.oddities:q}"
        " --log {log:q}"


rule inspect:
    input:
        passages=paths.PASSAGES,
        queries=inputs.of_splits(experiment, paths.QUERIES),
        qrels=inputs.of_splits(experiment, paths.QRELS),
        oddities=inputs.of_splits(experiment, paths.ODDITIES),
        counts=paths.IMPORT_COUNTS,
    output:
        findings=paths.INSPECTION,
        ids=paths.INSPECTED_IDS,
    log:
        "logs/{dataset}/inspect.log",
    benchmark:
        "benchmarks/{dataset}/inspect/inspect.tsv"
    resources:
        mem_mb=growing(2000, per_mb=0.1),
        runtime=growing(60),
    params:
        code=code_of("inspect"),
        options=options(params.inspection, "collection.aggregate"),
    message:
        "Look at the passages, queries and judgements of {config[dataset]}"
    shell:
        "exec python -m cort.inspect --passages {input.passages:q} {params.options:q} --queries {input.queries:q}"
        " --qrels {input.qrels:q} --oddities {input.oddities:q} --counts {input.counts:q}"
        " --output {output.findings:q} --output-ids {output.ids:q} --log {log:q}"
