"""What people see of the results: report, explorer, submissions, deployments, latencies, provenance."""


rule resolve:
    output:
        paths.EXPERIMENT,
    resources:
        mem_mb=growing(1000),
        runtime=growing(10),
    params:
        options=options(settings.whole_config),
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
        options=options("latency.split", "latency.systems", "depth", settings.measured, number="latency.queries"),
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
    resources:
        mem_mb=growing(4000, per_mb=4),
        runtime=growing(120),
    params:
        options=options(
            settings.explored,
            "splits.{split}.relevance_level",
            "collection.aggregate",
            among("evaluation.explorer", "results", "texts"),
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
    group:
        "report"
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
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
        systems=table("systems"),
        comparisons=table("comparisons"),
        lists=table("lists"),
        costs=table("costs"),
        judged=table("judged"),
        audits=table("audits"),
        stages=table("stages"),
        latency=table("latency"),
        overlap=table("overlap"),
        figures=report(
            multiext(f"{paths.REPORT}figures/", "recall.svg", "costs.svg", "depths.svg", "audits.svg", "training.svg"),
            category="Figures",
        ),
        reproduction=report(
            multiext(paths.REPRODUCTION, "index.html", "numbers.csv") if config["papers"] else [],
            category="Reproduction",
        ),
    group:
        "report"
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        results=paths.at(paths.DATASET, config),
        benchmarks=f"benchmarks/{config['dataset']}",
        folder=subpath(output.page, parent=True),
    message:
        "Write the report of {wildcards.dataset}"
    shell:
        "exec python -m cort.report --results {params.results:q} --papers {input.papers:q} --benchmarks {params.benchmarks:q}"
        " --output-folder {params.folder:q} --log {log:q}"


rule submission:
    input:
        run=chosen(
            paths.measured_run(config),
            split="submissions.{submission}.split",
            system="submissions.{submission}.system",
        ),
        queries=chosen(paths.QUERIES, split="submissions.{submission}.split"),
    output:
        paths.SUBMISSION,
    wildcard_constraints:
        suffix="tsv|trec",
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(60),
    params:
        options=options(settings.submission),
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
    resources:
        mem_mb=growing(4000),
        runtime=growing(720),
    params:
        folder=subpath(output.check, parent=True),
        options=options(
            among("deploy.{deployment}", "system", "targets"), settings.deployment, "depth", "collection.aggregate"
        ),
    message:
        "Write {wildcards.deployment} for search engines"
    shell:
        "exec python -m cort.deploy --passages {input.passages:q} --queries {input.queries:q} --runs {input.runs:q}"
        " --bm25 {input.bm25:q} --vectors {input.vectors:q} --query-vectors {input.query_vectors:q} {params.options:q}"
        " --output {params.folder:q} --log {log:q}"
