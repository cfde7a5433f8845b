"""From raw text to runs, measures and a report; `snakemake --cores all --configfile config/<experiment>.yaml`."""

from snakemake.utils import min_version

min_version("9.20")

# Only without --configfile: Snakemake would merge the default into other experiments.
if not workflow.configfiles:

    configfile: "config/pydocs.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


# By `--set-scatter encode=4`, else as many as exist, else one per GPU (`retrieve`, `tokenize`: one). Results do not depend on it.
scattergather:
    encode=SHARDS,
    expand=EXPANSION_SHARDS,
    weigh=WEIGHING_SHARDS,
    retrieve=RETRIEVAL_PARTS,
    tokenize=TOKENIZATION_SHARDS,


include: "workflow/rules/download.smk"
include: "workflow/rules/collection.smk"
include: "workflow/rules/expander.smk"
include: "workflow/rules/bm25.smk"
include: "workflow/rules/encoder.smk"
include: "workflow/rules/sparse.smk"
include: "workflow/rules/retrieval.smk"
include: "workflow/rules/ivfpq.smk"
include: "workflow/rules/reranker.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/online.smk"
include: "workflow/rules/papers.smk"
include: "workflow/rules/deploy.smk"
include: "workflow/rules/systems.smk"


complete_rules(workflow, code_of)


rule all:
    default_target: True
    input:
        report_inputs.of_systems(config, paths.MEASURES),
        report_inputs.submissions(config),
        report_inputs.deployments(config),
        report_inputs.latencies(config),
        report_inputs.explorers(config),
        experiment=paths.at(paths.EXPERIMENT, config),
        report_page=f"{paths.at(paths.REPORT, config)}index.html",
    localrule: True
