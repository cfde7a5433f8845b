"""Comparisons between systems and with published numbers, and submissions."""


rule compare:
    input:
        per_query=partial(report_inputs.of_compared, config, paths.PER_QUERY),
        recall=partial(report_inputs.of_compared, config, paths.RECALL),
        queries=paths.QUERIES,
    output:
        comparison=f"{paths.COMPARISON}.json",
        table=f"{paths.COMPARISON}.csv",
        queries=f"{paths.COMPARISON}.queries.csv",
    localrule: True
    params:
        options=options(
            among("evaluation", "baseline", "confidence", "resamples", "alpha"),
            report_settings.compared_systems,
            "seed",
        ),
    message:
        "Compare systems on {wildcards.split} with {config[evaluation][baseline]}"
    shell:
        "python -m cort.compare {params.options:q} --per-query {input.per_query:q} --recall {input.recall:q}"
        " --queries {input.queries:q} --split {wildcards.split} --output {output.comparison:q}"
        " --explorer ../report/explore/{wildcards.split}/index.html"
        " --output-table {output.table:q} --output-queries {output.queries:q} --log {log:q}"


rule consistency:
    input:
        run=paths.measured_run(config),
        reference=chosen(paths.measured_run(config), system="evaluation.consistency.reference"),
    output:
        paths.CONSISTENCY,
    localrule: True
    params:
        options=options("evaluation.consistency.depths", reference_name="evaluation.consistency.reference"),
    message:
        "Measure the consistency of {wildcards.system} with {config[evaluation][consistency][reference]} on {wildcards.split}"
    shell:
        "python -m cort.analyze consistency --run {input.run:q} --reference {input.reference:q}"
        " {params.options:q} --system {wildcards.system:q} --split {wildcards.split} --output {output:q} --log {log:q}"


rule reproduction:
    input:
        papers=config["papers"],
        measures=report_inputs.of_systems(config, paths.MEASURES),
        depths=report_inputs.depths(config),
        consistency=report_inputs.consistency(config),
        latencies=report_inputs.all_latencies(config),
    output:
        page=report(f"{paths.REPRODUCTION}index.html", category="Reproduction"),
        json=f"{paths.REPRODUCTION}reproduction.json",
        numbers=f"{paths.REPRODUCTION}numbers.csv",
        files=report_inputs.reproduced(config),
    localrule: True
    params:
        options=options("title"),
        folder=subpath(output.page, parent=True),
    message:
        "Compare the results of {wildcards.dataset} with published numbers"
    shell:
        "python -m cort.reproduction {params.options:q} --dataset {wildcards.dataset:q} --papers {input.papers:q}"
        " --measures-files {input.measures:q} --depths-files {input.depths:q} --consistency-files {input.consistency:q}"
        " --latency-files {input.latencies:q} --output-folder {params.folder:q} --log {log:q}"


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
    localrule: True
    params:
        options=options(report_settings.submission),
    message:
        "Write the submission {wildcards.submission}"
    shell:
        "python -m cort.submission --run {input.run:q} --queries {input.queries:q} {params.options:q}"
        " --output {output:q} --log {log:q}"
