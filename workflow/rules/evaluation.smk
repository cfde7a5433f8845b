"""From runs to measures, curves, examples and the report."""


rule evaluate:
    input:
        script="cort/evaluate.py",
        run="results/{dataset}/runs/{split}/{system}.trec",
        queries="results/{dataset}/collection/queries.{split}.parquet",
        qrels="results/{dataset}/collection/qrels.{split}.parquet",
    output:
        measures="results/{dataset}/measures/{split}/{system}.json",
        per_query="results/{dataset}/measures/{split}/{system}.parquet",
        recall="results/{dataset}/recall/{split}/{system}.csv",
    log:
        "logs/{dataset}/evaluate/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/evaluate/{split}.{system}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        measures=setting("splits", "{split}", "measures"),
        relevance_level=setting("splits", "{split}", "relevance_level"),
    message:
        "Measure {wildcards.system} on {wildcards.split}"
    shell:
        "python -m {params.module} --run {input.run:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " --measures {params.measures:q} --relevance-level {params.relevance_level} --system {wildcards.system:q}"
        " --split {wildcards.split} --output {output.measures:q} --output-per-query {output.per_query:q}"
        " --output-recall {output.recall:q} --log {log:q}"


rule depths:
    input:
        script="cort/depths.py",
        candidates=get_candidates,
        scores=get_scores,
        qrels="results/{dataset}/collection/qrels.{split}.parquet",
    output:
        "results/{dataset}/depths/{split}/{system}.json",
    log:
        "logs/{dataset}/depths/{split}.{system}.log",
    benchmark:
        "benchmarks/{dataset}/depths/{split}.{system}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        depths=get_curve_depths,
        measures=setting("evaluation", "depth_measures"),
        relevance_level=setting("splits", "{split}", "relevance_level"),
    message:
        "Measure {wildcards.system} on {wildcards.split} by the number of candidates"
    shell:
        "python -m {params.module} --candidates {input.candidates:q} --scores {input.scores:q}"
        " --qrels {input.qrels:q} --depths {params.depths} --measures {params.measures:q}"
        " --relevance-level {params.relevance_level} --system {wildcards.system:q} --split {wildcards.split}"
        " --output {output:q} --log {log:q}"


rule disagreements:
    input:
        script="cort/disagreements.py",
        first=get_disagreements_pair(0),
        second=get_disagreements_pair(1),
        queries="results/{dataset}/collection/queries.{split}.parquet",
        qrels="results/{dataset}/collection/qrels.{split}.parquet",
        passages="results/{dataset}/collection/passages.parquet",
    output:
        "results/{dataset}/disagreements/{split}.json",
    log:
        "logs/{dataset}/disagreements/{split}.log",
    benchmark:
        "benchmarks/{dataset}/disagreements/{split}.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        names=setting("evaluation", "disagreements"),
        number=setting("evaluation", "number_of_disagreements"),
        relevance_level=setting("splits", "{split}", "relevance_level"),
    message:
        "Find where systems disagree most on {wildcards.split}"
    shell:
        "python -m {params.module} --first {input.first:q} --second {input.second:q} --first-name {params.names[0]:q}"
        " --second-name {params.names[1]:q} --queries {input.queries:q} --qrels {input.qrels:q}"
        " --passages {input.passages:q} --number {params.number} --relevance-level {params.relevance_level} --split {wildcards.split}"
        " --output {output:q} --log {log:q}"


rule provenance:
    input:
        script="cort/provenance.py",
        files=get_raw_inputs(config["dataset"]),
        # Written again whenever a result was.
        measures=get_measures(config["dataset"]),
    output:
        "results/{dataset}/provenance.json",
    log:
        "logs/{dataset}/provenance.log",
    benchmark:
        "benchmarks/{dataset}/provenance/provenance.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        settings=get_settings,
    message:
        "Record what the results of {wildcards.dataset} came from"
    shell:
        "python -m {params.module} --dataset {wildcards.dataset:q} --config {params.settings:q} --inputs {input.files:q}"
        " --output {output:q} --log {log:q}"


rule report:
    input:
        script="cort/report.py",
        measures=get_measures(config["dataset"]),
        comparisons=get_comparisons(config["dataset"]),
        depths=get_depth_curves(config["dataset"]),
        audits=get_audits(config["dataset"]),
        disagreements=get_disagreements(config["dataset"]),
        curves=get_curves(config["dataset"]).values(),
        filters=get_filters(config["dataset"]).values(),
        reproduction=get_reproduction(config["dataset"]),
        latencies=latency_file(config),
        provenance="results/{dataset}/provenance.json",
    output:
        page=report(
            "results/{dataset}/report/index.html",
            caption="../report/page.rst",
            category="Report",
        ),
        systems=report(
            multiext("results/{dataset}/report/tables/systems", ".csv", ".md", ".tex"),
            caption="../report/systems.rst",
            category="Tables",
        ),
        comparisons=report(
            multiext("results/{dataset}/report/tables/comparisons", ".csv", ".md", ".tex"),
            caption="../report/comparisons.rst",
            category="Tables",
        ),
        lists=report(
            multiext("results/{dataset}/report/tables/lists", ".csv", ".md", ".tex"),
            caption="../report/lists.rst",
            category="Tables",
        ),
        audits=report(
            multiext("results/{dataset}/report/tables/audits", ".csv", ".md", ".tex"),
            caption="../report/audits.rst",
            category="Tables",
        ),
        stages=report(
            multiext("results/{dataset}/report/tables/stages", ".csv", ".md", ".tex"),
            caption="../report/stages.rst",
            category="Tables",
        ),
        latency=report(
            multiext("results/{dataset}/report/tables/latency", ".csv", ".md", ".tex"),
            caption="../report/latency.rst",
            category="Tables",
        ),
        figures=report(
            multiext(
                "results/{dataset}/report/figures/",
                "recall.svg",
                "depths.svg",
                "audits.svg",
                "training.svg",
            ),
            caption="../report/figures.rst",
            category="Figures",
        ),
    log:
        "logs/{dataset}/report.log",
    benchmark:
        "benchmarks/{dataset}/report/report.tsv"
    localrule: True
    conda:
        "../envs/cort.yaml"
    params:
        module=as_py_module(),
        title=setting("title"),
        descriptions=[f"{name}={describe(config, name)}" for name in config["systems"]],
        baseline=setting("evaluation", "baseline"),
        contender=get_contender(config),
        curves=named(get_curves(config["dataset"])),
        filters=named(get_filters(config["dataset"])),
        benchmarks=f"benchmarks/{config['dataset']}",
        reproduction=[word for path in get_reproduction(config["dataset"]) for word in ("--reproduction", path)],
        folder=subpath(output.page, parent=True),
    message:
        "Write the report of {wildcards.dataset}"
    shell:
        "python -m {params.module} --title {params.title:q} --dataset {wildcards.dataset:q}"
        " --measures-files {input.measures:q} --comparisons {input.comparisons:q} --description-of-systems {params.descriptions:q}"
        " --baseline {params.baseline:q} {params.contender:q} --depths-files {input.depths:q}"
        " --audits {input.audits:q}"
        " --curves {params.curves:q} --disagreements {input.disagreements:q} --filters {params.filters:q}"
        " --provenance {input.provenance:q} --benchmarks {params.benchmarks:q} {params.reproduction:q}"
        " --latency-files {input.latencies:q} --output-folder {params.folder:q} --log {log:q}"
