"""Passages, queries and judgements as checked tables, and what is odd in them."""

# Local rules need a network, which compute nodes may not have.


# An archive is no input: it is not needed if the extracted file exists, and deleting it must rerun nothing.
rule download:
    output:
        paths.PUBLIC_FILE,
    wildcard_constraints:
        file=file_pattern(),
    # What cannot be fetched, and mistakes in queries and judgements, show before hours of work.
    priority: 2
    localrule: True
    resources:
        # No param, since the source of a file affects no result.
        folder=config["downloads"]["folder"],
    params:
        downloads=paths.KEPT,
    message:
        "Get {wildcards.source}/{wildcards.file}"
    shell:
        "exec python -m cort.download --name {wildcards.source:q}/{wildcards.file:q} --downloads {params.downloads:q}"
        " --folder {resources.folder:q} --output {output:q} --log {log:q}"


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
    threads: 4
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        folder=subpath(output.collection, parent=True),
        # The standard library's docstrings depend on it.
        python=sys.version_info[:3],
        options=options(all_of("collection.pydocs"), "seed"),
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
    wildcard_constraints:
        dataset=any_of([config["dataset"]]),
    localrule: experiment.source in ("irds", "hf")
    threads: 2
    resources:
        mem_mb=growing(2000, per_mb=1),
        runtime=growing(120),
    params:
        options=options(settings.collection),
        # Contents of a folder.
        state=settings.state_of_folder(experiment),
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
    wildcard_constraints:
        split=any_of(name for name, split in config["splits"].items() if is_copied(split)),
    localrule: True
    params:
        options=options(settings.imported_split),
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
    wildcard_constraints:
        dataset=any_of([config["dataset"]] if experiment.generated_from == "endpoint" else []),
    localrule: True
    params:
        options=options(settings.passage_queries, settings.endpoint, "seed"),
    message:
        "Make queries of passages of {wildcards.dataset}"
    shell:
        "exec python -m cort.passage_queries --passages {input:q} {params.options:q} --output {output:q} --log {log:q}"


rule judge:
    input:
        unpack(of(inputs.judged)),
        passages=paths.PASSAGES,
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        counts=paths.GENERATED_COUNTS,
    wildcard_constraints:
        split=having("splits", "judge"),
    localrule: True
    params:
        options=options("splits.{split}.judge.depth", settings.endpoint, "collection.aggregate"),
    message:
        "Judge what systems retrieve for {wildcards.split}"
    shell:
        "exec python -m cort.judge --runs {input.runs:q} --queries {input.queries:q} --passages {input.passages:q}"
        " {params.options:q} --output-queries {output.queries:q} --output-qrels {output.qrels:q}"
        " --output-counts {output.counts:q} --log {log:q}"


rule generate:
    input:
        inputs.candidates_of_splits(experiment) if experiment.splits_with("generate") else [],
    output:
        queries=paths.IMPORTED_QUERIES,
        qrels=paths.IMPORTED_QRELS,
        counts=paths.GENERATED_COUNTS,
    wildcard_constraints:
        split=having("splits", "generate"),
    resources:
        mem_mb=growing(1000, per_mb=10),
        runtime=growing(60),
    params:
        options=options(settings.generated_split, "collection.aggregate", "seed"),
    message:
        "Make queries and judgements of {wildcards.split} from documents"
    shell:
        "exec python -m cort.generate --candidates {input:q} {params.options:q} --output-queries {output.queries:q}"
        " --output-qrels {output.qrels:q} --output-counts {output.counts:q} --log {log:q}"


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
    priority: 2
    resources:
        mem_mb=growing(2000, per_mb=0.1),
        runtime=growing(60),
    params:
        options=options(settings.selection, "collection.aggregate"),
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
    output:
        findings=paths.INSPECTION,
        ids=paths.INSPECTED_IDS,
    resources:
        mem_mb=growing(2000, per_mb=0.1),
        runtime=growing(60),
    params:
        options=options(settings.inspection, "collection.aggregate"),
    message:
        "Look at the passages, queries and judgements of {config[dataset]}"
    shell:
        "exec python -m cort.inspect --passages {input.passages:q} {params.options:q} --queries {input.queries:q}"
        " --qrels {input.qrels:q} --oddities {input.oddities:q} --output {output.findings:q}"
        " --output-ids {output.ids:q} --log {log:q}"
