"""Measures, curves and comparisons of runs."""


rule aggregate:
    input:
        paths.RUN,
    output:
        paths.DOCUMENT_RUN,
    log:
        "logs/{dataset}/aggregate/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/aggregate/{split}.{system}.tsv"
    group:
        of(groups.of_measures)
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(30),
    params:
        code=code_of("aggregate"),
        options=options("collection.aggregate"),
    message:
        "Rank documents by the passages of {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.aggregate --run {input:q} {params.options:q} --output {output:q} --log {log:q}"


rule evaluate:
    input:
        run=experiment.measured_run,
        queries=paths.QUERIES,
        qrels=paths.QRELS,
    output:
        measures=paths.MEASURES,
        per_query=paths.PER_QUERY,
        recall=paths.RECALL,
    log:
        "logs/{dataset}/evaluate/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/evaluate/{split}.{system}.tsv"
    group:
        of(groups.of_measures)
    resources:
        mem_mb=growing(4000),
        runtime=growing(30),
    params:
        code=code_of("evaluate"),
        options=options(("splits.{split}", "measures", "relevance_level")),
    message:
        "Measure {wildcards.system} on {wildcards.split}"
    shell:
        "exec python -m cort.evaluate --run {input.run:q} --queries {input.queries:q}"
        " --qrels {input.qrels:q} {params.options:q} --system {wildcards.system:q} --split {wildcards.split}"
        " --output {output.measures:q} --output-per-query {output.per_query:q} --output-recall {output.recall:q}"
        " --log {log:q}"


rule depths:
    input:
        unpack(of(inputs.of_system)),
        qrels=paths.QRELS,
    output:
        paths.DEPTHS,
    log:
        "logs/{dataset}/depths/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/depths/{split}.{system}.tsv"
    group:
        groups.REPORT
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(60),
    params:
        code=code_of("analyze depths"),
        options=options(
            params.curve_depths,
            params.weight,
            "splits.{split}.relevance_level",
            "collection.aggregate",
            measures="evaluation.depth_measures",
        ),
    message:
        "Measure {wildcards.system} on {wildcards.split} by the number of candidates"
    shell:
        "exec python -m cort.analyze depths --candidates {input.candidates:q} --scores {input.scores:q}"
        " --qrels {input.qrels:q} {params.options:q} --system {wildcards.system:q} --split {wildcards.split}"
        " --output {output:q} --log {log:q}"


rule overlap:
    input:
        runs=of(inputs.of_split, experiment.measured_run),
        queries=paths.QUERIES,
    output:
        paths.OVERLAP,
    log:
        "logs/{dataset}/overlap/{split}.log",
    benchmark:
        "benchmarks/{dataset}/overlap/{split}.tsv"
    group:
        groups.REPORT
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(30),
    params:
        code=code_of("analyze overlap"),
        options=options(params.explored),
    message:
        "Compute the overlap of systems on {wildcards.split}, which has no judgements"
    shell:
        "exec python -m cort.analyze overlap --split {wildcards.split} {params.options:q} --runs {input.runs:q}"
        " --queries {input.queries:q} --output {output:q} --log {log:q}"


rule agreement:
    input:
        queries=paths.QUERIES,
        qrels=paths.QRELS,
        per_query=of(inputs.measured_on_both, "split"),
        other_queries=paths.QUERIES.replace("{split}", "{other}"),
        other_qrels=paths.QRELS.replace("{split}", "{other}"),
        other_per_query=of(inputs.measured_on_both, "other"),
    output:
        paths.AGREEMENT,
    log:
        "logs/{dataset}/agreement/{split}.{other}.log",
    benchmark:
        "benchmarks/{dataset}/agreement/{split}.{other}.tsv"
    group:
        groups.REPORT
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(15),
    params:
        code=code_of("analyze agreement"),
        options=options(
            "splits.{split}.relevance_level",
            "seed",
            other_relevance_level="splits.{other}.relevance_level",
        ),
    message:
        "Compare the labels of {wildcards.split} and {wildcards.other}"
    shell:
        "exec python -m cort.analyze agreement --split {wildcards.split} --other {wildcards.other} {params.options:q}"
        " --queries {input.queries:q} --qrels {input.qrels:q} --per-query {input.per_query:q}"
        " --other-queries {input.other_queries:q} --other-qrels {input.other_qrels:q}"
        " --other-per-query {input.other_per_query:q} --output {output:q} --log {log:q}"


rule consistency:
    input:
        run=experiment.measured_run,
        reference=chosen(experiment.measured_run, system="evaluation.consistency.reference"),
    output:
        paths.CONSISTENCY,
    log:
        "logs/{dataset}/consistency/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/consistency/{split}.{system}.tsv"
    group:
        groups.REPORT
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(15),
    params:
        code=code_of("analyze consistency"),
        options=options("evaluation.consistency.depths", reference_name="evaluation.consistency.reference"),
    message:
        "Measure the consistency of {wildcards.system} with {config[evaluation][consistency][reference]} on {wildcards.split}"
    shell:
        "exec python -m cort.analyze consistency --run {input.run:q} --reference {input.reference:q}"
        " {params.options:q} --system {wildcards.system:q} --split {wildcards.split} --output {output:q} --log {log:q}"


rule compare:
    input:
        per_query=of(inputs.of_compared, paths.PER_QUERY),
        recall=of(inputs.of_compared, paths.RECALL),
        queries=paths.QUERIES,
    output:
        comparison=f"{paths.COMPARISON}.json",
        table=f"{paths.COMPARISON}.csv",
        queries=f"{paths.COMPARISON}.queries.csv",
    log:
        "logs/{dataset}/compare/{split}.log",
    benchmark:
        "benchmarks/{dataset}/compare/{split}.tsv"
    group:
        groups.REPORT
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(30),
    params:
        code=code_of("compare"),
        options=options(
            ("evaluation", "baseline", "confidence", "resamples", "alpha"),
            params.compared_systems,
            "seed",
        ),
    message:
        "Compare systems on {wildcards.split} with {config[evaluation][baseline]}"
    shell:
        "exec python -m cort.compare {params.options:q} --per-query {input.per_query:q} --recall {input.recall:q}"
        " --queries {input.queries:q} --split {wildcards.split} --output {output.comparison:q}"
        " --explorer ../report/explore/{wildcards.split}/index.html"
        " --output-table {output.table:q} --output-queries {output.queries:q} --log {log:q}"
