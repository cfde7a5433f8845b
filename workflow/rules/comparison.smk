"""Systems against the baseline."""


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
            settings.compared_systems,
            "seed",
        ),
    message:
        "Compare systems on {wildcards.split} with {config[evaluation][baseline]}"
    shell:
        "python -m cort.compare {params.options:q} --per-query {input.per_query:q} --recall {input.recall:q} --queries {input.queries:q}"
        " --split {wildcards.split} --output {output.comparison:q}"
        " --output-table {output.table:q} --output-queries {output.queries:q} --log {log:q}"
