"""From raw text to runs, measures and a report; `snakemake --cores all --configfile config/<experiment>.yaml`."""

from snakemake.utils import min_version

min_version("9.20")

# An experiment file is complete in itself: nothing of the default one leaks into another.
if not workflow.configfiles:

    configfile: "config/pydocs.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


# One per GPU (`retrieve`: one), or as many as there are already, or `--set-scatter encode=4`. Results do not depend on it.
scattergather:
    encode=SHARDS,
    expand=EXPANSION_SHARDS,
    weigh=WEIGHING_SHARDS,
    retrieve=RETRIEVAL_PARTS,


include: "workflow/rules/download.smk"
include: "workflow/rules/collection.smk"
include: "workflow/rules/expander.smk"
include: "workflow/rules/bm25.smk"
include: "workflow/rules/encoder.smk"
include: "workflow/rules/retrieval.smk"
include: "workflow/rules/ivfpq.smk"
include: "workflow/rules/reranker.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/online.smk"
include: "workflow/rules/papers.smk"


# Log, benchmark, environment, and the code of the stage.
complete_rules(workflow, code_of)


rule all:
    default_target: True
    input:
        report_inputs.of_systems(config, paths.MEASURES),
        report_inputs.submissions(config),
        report_inputs.exports(config),
        report_inputs.latencies(config),
        report_inputs.explorers(config),
        experiment=paths.at(paths.EXPERIMENT, config),
        report_page=f"{paths.at(paths.REPORT, config)}index.html",
    localrule: True
