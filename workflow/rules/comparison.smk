"""Systems against the baseline."""


rule compare:
    input:
        script="cort/compare.py",
        per_query=get_compared("measures", ".parquet"),
        recall=get_compared("recall", ".csv"),
        queries="results/{dataset}/collection/queries.{split}.parquet",
    output:
        comparison="results/{dataset}/comparisons/{split}.json",
        table="results/{dataset}/comparisons/{split}.csv",
        queries="results/{dataset}/comparisons/{split}.queries.csv",
    log:
        "logs/{dataset}/compare/{split}.log",
    benchmark:
        "benchmarks/{dataset}/compare/{split}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        baseline=setting("evaluation", "baseline"),
        systems=lambda wildcards: compared(wildcards.split),
        statistics=options(("evaluation",), "confidence", "resamples", "alpha"),
        seed=setting("seed"),
    message:
        "Compare systems on {wildcards.split} with {params.baseline}"
    shell:
        "python -m {params.module} --baseline {params.baseline:q} --systems {params.systems:q}"
        " --per-query {input.per_query:q} --recall {input.recall:q} --queries {input.queries:q}"
        " --split {wildcards.split} {params.statistics} --seed {params.seed} --output {output.comparison:q}"
        " --output-table {output.table:q} --output-queries {output.queries:q} --log {log:q}"
