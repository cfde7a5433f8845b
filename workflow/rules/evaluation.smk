"""Measures, curves, disagreements, the explorer, provenance and the report."""


rule aggregate:
    input:
        paths.RUN,
    output:
        paths.DOCUMENT_RUN,
    localrule: True
    params:
        options=options("collection.aggregate"),
    message:
        "Rank documents by the passages of {wildcards.system} on {wildcards.split}"
    shell:
        "python -m cort.aggregate --run {input:q} {params.options:q} --output {output:q} --log {log:q}"


rule evaluate:
    input:
        run=paths.measured_run(config),
        queries=paths.QUERIES,
        qrels=paths.QRELS,
    output:
        measures=paths.MEASURES,
        per_query=paths.PER_QUERY,
        recall=paths.RECALL,
    localrule: True
    params:
        options=options(among("splits.{split}", "measures", "relevance_level")),
    message:
        "Measure {wildcards.system} on {wildcards.split}"
    shell:
        "python -m cort.evaluate --run {input.run:q} --queries {input.queries:q}"
        " --qrels {input.qrels:q} {params.options:q} --system {wildcards.system:q} --split {wildcards.split}"
        " --output {output.measures:q} --output-per-query {output.per_query:q} --output-recall {output.recall:q}"
        " --log {log:q}"


rule depths:
    input:
        unpack(run_inputs),
        qrels=paths.QRELS,
    output:
        paths.DEPTHS,
    localrule: True
    params:
        options=options(
            report_settings.curve_depths,
            settings.weight,
            "splits.{split}.relevance_level",
            "collection.aggregate",
            measures="evaluation.depth_measures",
        ),
    message:
        "Measure {wildcards.system} on {wildcards.split} by the number of candidates"
    shell:
        "python -m cort.analyze depths --candidates {input.candidates:q} --scores {input.scores:q}"
        " --qrels {input.qrels:q} {params.options:q} --system {wildcards.system:q} --split {wildcards.split}"
        " --output {output:q} --log {log:q}"


rule disagreements:
    input:
        first=partial(report_inputs.disagreeing_run, config, 0),
        second=partial(report_inputs.disagreeing_run, config, 1),
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        passages=paths.PASSAGES,
    output:
        paths.DISAGREEMENTS,
    localrule: True
    params:
        options=options(
            report_settings.disagreements,
            "splits.{split}.relevance_level",
            "collection.aggregate",
            number="evaluation.number_of_disagreements",
        ),
    message:
        "Find the queries of {wildcards.split} on which systems disagree most"
    shell:
        "python -m cort.analyze disagreements --first {input.first:q} --second {input.second:q} {params.options:q}"
        " --queries {input.queries:q} --qrels {input.qrels:q} --passages {input.passages:q} --split {wildcards.split}"
        " --output {output:q} --log {log:q}"


rule explorer:
    input:
        runs=partial(report_inputs.of_split, config, paths.RUN),
        per_query=partial(report_inputs.measured_of_split, config),
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        passages=paths.PASSAGES,
    output:
        page=paths.EXPLORER,
    localrule: True
    params:
        options=options(
            report_settings.explored,
            "splits.{split}.relevance_level",
            "collection.aggregate",
            among("evaluation.explorer", "results", "megabytes"),
        ),
        title=lambda wildcards: title_of_split(config, wildcards.split),
        folder=subpath(output.page, parent=True),
    message:
        "Write the explorer of {wildcards.split}"
    shell:
        "python -m cort.explorer --dataset {wildcards.dataset:q} --split {params.title:q} {params.options:q}"
        " --runs {input.runs:q} --per-query {input.per_query:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " --passages {input.passages:q} --output {params.folder:q} --log {log:q}"


rule overlap:
    input:
        runs=partial(report_inputs.of_split, config, paths.measured_run(config)),
        queries=paths.QUERIES,
    output:
        paths.OVERLAP,
    localrule: True
    params:
        options=options(report_settings.explored),
    message:
        "Compute the overlap of systems on {wildcards.split}, which has no judgements"
    shell:
        "python -m cort.analyze overlap --split {wildcards.split} {params.options:q} --runs {input.runs:q}"
        " --queries {input.queries:q} --output {output:q} --log {log:q}"


rule agreement:
    input:
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        per_query=measured_on_both("split"),
        other_queries=paths.QUERIES.replace("{split}", "{other}"),
        other_qrels=paths.QRELS.replace("{split}", "{other}"),
        other_per_query=measured_on_both("other"),
    output:
        paths.AGREEMENT,
    localrule: True
    params:
        options=options(
            "splits.{split}.relevance_level",
            "seed",
            other_relevance_level="splits.{other}.relevance_level",
        ),
    message:
        "Compare the labels of {wildcards.split} and {wildcards.other}"
    shell:
        "python -m cort.analyze agreement --split {wildcards.split} --other {wildcards.other} {params.options:q}"
        " --queries {input.queries:q} --qrels {input.qrels:q} --per-query {input.per_query:q}"
        " --other-queries {input.other_queries:q} --other-qrels {input.other_qrels:q}"
        " --other-per-query {input.other_per_query:q} --output {output:q} --log {log:q}"


rule provenance:
    input:
        files=inputs.raw_inputs(config),
        experiment=paths.EXPERIMENT,
        sources=inputs.described_sources(config),
        computed=report_inputs.computed_in_auto(config, SHARDS),
        # Found by the experiment's settings.
        tuned=[file for split, name in ranked_runs(config) for file in system_of(config, name).tuned_files(split)],
        # Only to rerun with every result.
        measures=report_inputs.of_systems(config, paths.MEASURES),
        overlaps=report_inputs.overlaps(config),
    output:
        record=paths.PROVENANCE,
        runs=[
            paths.RUN_METADATA.format(dataset="{dataset}", split=split, system=name)
            for split, name in ranked_runs(config)
        ],
    localrule: True
    params:
        folder=subpath(output.record, parent=True),
    message:
        "Record the provenance of {wildcards.dataset}"
    shell:
        "python -m cort.provenance --dataset {wildcards.dataset:q} --inputs {input.files:q} {input.experiment:q}"
        " --sources {input.sources:q} --computed {input.computed:q} --experiment {input.experiment:q}"
        " --output {output.record:q} --output-folder {params.folder:q} --log {log:q}"


rule report:
    input:
        experiment=paths.EXPERIMENT,
        measures=report_inputs.of_systems(config, paths.MEASURES),
        overlaps=report_inputs.overlaps(config),
        comparisons=report_inputs.comparisons(config),
        depths=report_inputs.depths(config),
        audits=report_inputs.audits(config),
        disagreements=report_inputs.disagreements(config),
        sparsities=report_inputs.sparsities(config),
        curves=report_inputs.of_trainings(config, paths.CURVE).values(),
        selections=report_inputs.of_trainings(config, paths.SELECTION).values(),
        filters=report_inputs.filters(config).values(),
        weights=report_inputs.tuned_weights(config).values(),
        models=report_inputs.models(config).values(),
        tokens=[path for files in report_inputs.read_texts(config).values() for path in files.values()],
        reproduction=report_inputs.reproduction(config),
        latencies=report_inputs.latencies(config),
        inspection=paths.INSPECTION,
        agreements=[
            paths.at(paths.AGREEMENT, config, split=split, other=other) for split, other in labelled_twice(config)
        ],
        provenance=paths.PROVENANCE,
    output:
        page=report(f"{paths.REPORT}index.html", category="Report"),
        systems=table("systems"),
        comparisons=table("comparisons"),
        lists=table("lists"),
        judged=table("judged"),
        audits=table("audits"),
        stages=table("stages"),
        latency=table("latency"),
        overlap=table("overlap"),
        figures=report(
            multiext(f"{paths.REPORT}figures/", "recall.svg", "depths.svg", "audits.svg", "training.svg"),
            category="Figures",
        ),
    localrule: True
    params:
        curves=report_inputs.named(report_inputs.of_trainings(config, paths.CURVE)),
        selections=report_inputs.named(report_inputs.of_trainings(config, paths.SELECTION)),
        filters=report_inputs.named(report_inputs.filters(config)),
        weights=report_inputs.named(report_inputs.tuned_weights(config)),
        models=[f"{name}={Path(path).parent}" for name, path in report_inputs.models(config).items()],
        tokens=[
            f"{name} {text}={path}"
            for name, files in report_inputs.read_texts(config).items()
            for text, path in files.items()
        ],
        benchmarks=f"benchmarks/{config['dataset']}",
        reproduction=[word for path in report_inputs.reproduction(config) for word in ("--reproduction", path)],
        folder=subpath(output.page, parent=True),
    message:
        "Write the report of {wildcards.dataset}"
    shell:
        "python -m cort.report --experiment {input.experiment:q} --measures-files {input.measures:q}"
        " --overlaps {input.overlaps:q} --comparisons {input.comparisons:q} --depths-files {input.depths:q} --audits {input.audits:q}"
        " --curves {params.curves:q} --selections {params.selections:q} --disagreements {input.disagreements:q}"
        " --sparsities {input.sparsities:q} --filters {params.filters:q}"
        " --tuned {params.weights:q} --models {params.models:q} --tokens {params.tokens:q}"
        " --provenance {input.provenance:q} --benchmarks {params.benchmarks:q} {params.reproduction:q}"
        " --latency-files {input.latencies:q} --inspection {input.inspection:q} --agreements {input.agreements:q}"
        " --explorer explore --output-folder {params.folder:q} --log {log:q}"
