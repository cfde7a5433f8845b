"""From raw text to runs, measures and a report; `snakemake --cores all --configfile config/<experiment>.yaml`."""

from snakemake.utils import min_version

min_version("9.20")

# An experiment file is complete in itself: nothing of the default one leaks into another.
if not workflow.configfiles:

    configfile: "config/pydocs.yaml"


report: "workflow/report/workflow.rst"


# The number of encoding shards is a fact of the machine: `--set-scatter encode=4`, or a profile. Results do not change.
scattergather:
    encode=1,


include: "workflow/rules/common.smk"
include: "workflow/rules/collection.smk"
include: "workflow/rules/bm25.smk"
include: "workflow/rules/encoder.smk"
include: "workflow/rules/retrieval.smk"
include: "workflow/rules/reranker.smk"
include: "workflow/rules/evaluation.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        get_measures(config["dataset"]),
        report_page=f"results/{config['dataset']}/report/index.html",
