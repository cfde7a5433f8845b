"""What people see of the results: report, explorer, submissions, deployments, latencies, provenance."""

from cort.config.evaluation import Deployment, Explorer


rule resolve:
    output:
        paths.EXPERIMENT,
    log:
        "logs/{dataset}/resolve.log",
    benchmark:
        "benchmarks/{dataset}/resolve/resolve.tsv"
    # It takes a second.
    localrule: True
    params:
        code=code_of("resolve"),
        options=options(params.whole_config),
    message:
        "Write the settings of {wildcards.dataset} with all defaults"
    shell:
        "exec python -m cort.resolve {params.options:q} --output {output:q} --log {log:q}"


rule latency:
    input:
        queries=paths.QUERIES,
        opened=lambda wildcards: inputs.searched(experiment),
    output:
        paths.LATENCY,
    log:
        "logs/{dataset}/latency/{split}.log",
    benchmark:
        "benchmarks/{dataset}/latency/{split}.tsv"
    wildcard_constraints:
        # Others were put there by somebody, or made by an experiment that shares these results.
        split=any_of([config["latency"]["split"]] if "latency" in config else []),
    # Nothing else may run meanwhile.
    threads: CORES or MOST_THREADS
    resources:
        gpu=gpus(1),
        mem_mb=growing(8000, per_mb=2),
        heap_mb=growing(2000),
        runtime=growing(480),
    params:
        code=code_of("latency"),
        options=options(("latency", "split", "systems"), "depth", params.measured, number="latency.queries"),
    message:
        "Measure how long searches of {wildcards.split} take"
    shell:
        "exec python -m cort.latency --queries {input.queries:q} {params.options:q}"
        " --threads {threads} --gpus {resources.gpu} --memory-mb {resources.heap_mb} --output {output:q} --log {log:q}"


rule explorer:
    input:
        runs=of(inputs.of_split, paths.RUN),
        per_query=of(inputs.measured_of_split),
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        passages=paths.PASSAGES,
    output:
        page=paths.EXPLORER,
    log:
        "logs/{dataset}/explorer/{split}.log",
    benchmark:
        "benchmarks/{dataset}/explorer/{split}.tsv"
    resources:
        mem_mb=growing(4000, per_mb=4),
        runtime=growing(120),
    params:
        code=code_of("explorer"),
        options=options(
            params.explored,
            "splits.{split}.relevance_level",
            "collection.aggregate",
            ("evaluation.explorer", Explorer),
        ),
        title=lambda wildcards: experiment.title_of_split(wildcards.split),
        folder=subpath(output.page, parent=True),
    message:
        "Write the explorer of {wildcards.split}"
    shell:
        "exec python -m cort.explorer --dataset {wildcards.dataset:q} --split {params.title:q} {params.options:q}"
        " --runs {input.runs:q} --per-query {input.per_query:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " --passages {input.passages:q} --output {params.folder:q} --log {log:q}"


rule provenance:
    input:
        files=inputs.raw_inputs(experiment),
        experiment=paths.EXPERIMENT,
        sources=inputs.described_sources(experiment),
        computed=inputs.computed_in_auto(experiment),
        # Found by the experiment's settings.
        tuned=[file for split, name in experiment.ranked_runs for file in experiment.systems[name].tuned_files(split)],
        # Only to rerun with every result.
        measures=inputs.files_per_run(experiment, paths.MEASURES),
        overlaps=inputs.reported(experiment, "overlaps"),
    output:
        paths.PROVENANCE,
    log:
        "logs/{dataset}/provenance.log",
    benchmark:
        "benchmarks/{dataset}/provenance/provenance.tsv"
    group:
        groups.REPORT
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
    params:
        code=code_of("provenance"),
    message:
        "Record the provenance of {wildcards.dataset}"
    shell:
        "exec python -m cort.provenance --dataset {wildcards.dataset:q} --inputs {input.files:q} {input.experiment:q}"
        " --sources {input.sources:q} --computed {input.computed:q} --output {output:q} --log {log:q}"


rule report:
    input:
        experiment=paths.EXPERIMENT,
        files=inputs.reported(experiment),
        papers=config["papers"],
    output:
        page=report(f"{paths.REPORT}index.html", category="Report"),
        tables=reported_in("tables/"),
        figures=reported_in("figures/"),
        reproduction=report(
            multiext(paths.REPRODUCTION, "index.html", "numbers.csv") if config["papers"] else [],
            category="Reproduction",
        ),
    log:
        "logs/{dataset}/report.log",
    benchmark:
        "benchmarks/{dataset}/report/report.tsv"
    group:
        groups.REPORT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        code=code_of("report"),
        results=subpath(input.experiment, parent=True),
        benchmarks="benchmarks/{dataset}",
        folder=subpath(output.page, parent=True),
    message:
        "Write the report of {wildcards.dataset}"
    shell:
        "exec python -m cort.report --results {params.results:q} --papers {input.papers:q} --benchmarks {params.benchmarks:q}"
        " --output-folder {params.folder:q} --log {log:q}"


rule submission:
    input:
        run=chosen(
            experiment.measured_run,
            split="submissions.{submission}.split",
            system="submissions.{submission}.system",
        ),
        queries=chosen(paths.QUERIES, split="submissions.{submission}.split"),
    output:
        paths.SUBMISSION,
    log:
        "logs/{dataset}/submission/{submission}.{suffix}.log",
    benchmark:
        "benchmarks/{dataset}/submission/{submission}.{suffix}.tsv"
    wildcard_constraints:
        suffix="tsv|trec",
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(60),
    params:
        code=code_of("submission"),
        options=options(params.submission),
    message:
        "Write the submission {wildcards.submission}"
    shell:
        "exec python -m cort.submission --run {input.run:q} --queries {input.queries:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


rule deploy:
    input:
        unpack(of(inputs.deployed)),
        passages=paths.PASSAGES,
    output:
        check=f"{paths.DEPLOYMENT}check.json",
    log:
        "logs/{dataset}/deploy/{deployment}.log",
    benchmark:
        "benchmarks/{dataset}/deploy/{deployment}.tsv"
    resources:
        mem_mb=growing(4000),
        runtime=growing(720),
    params:
        code=code_of("deploy"),
        folder=subpath(output.check, parent=True),
        options=options(("deploy.{deployment}", Deployment), params.deployment, "depth", "collection.aggregate"),
    message:
        "Write {wildcards.deployment} for search engines"
    shell:
        "exec python -m cort.deploy --passages {input.passages:q} --queries {input.queries:q} --runs {input.runs:q}"
        " --bm25 {input.bm25:q} --vectors {input.vectors:q} --query-vectors {input.query_vectors:q} {params.options:q}"
        " --output {params.folder:q} --log {log:q}"
