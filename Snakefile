"""From raw text to runs, measures and a report; `snakemake --cores all --configfile config/<experiment>.yaml`."""

from snakemake.utils import min_version

min_version("9.20")

# Only without --configfile: Snakemake would merge the default into other experiments.
if not workflow.configfiles:

    configfile: "config/pydocs.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/index.smk"
include: "workflow/rules/runs.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/publish.smk"


rule all:
    default_target: True
    input:
        inputs.targets(experiment),
    localrule: True


onstart:
    from workflow.preflight import check_machine

    planned = planned_files(workflow)
    if problems := check_machine(experiment, planned.__contains__, runs_here(workflow)):
        raise WorkflowError("\n".join(problems))


# `make` prints it itself, also when nothing ran.
onsuccess:
    if SUMMARY_FOLLOWS not in os.environ and is_new(workflow, experiment.at(paths.REPORT) + "index.html"):
        from workflow.summary import lines

        print(*lines(experiment), sep="\n")


# Other jobs went on after the errors.
onerror:
    sys.stderr.write("".join(f"{line}\n" for line in failures(log)))
