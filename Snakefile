"""Builds an experiment: `snakemake --cores all --configfile config/<experiment>.yaml`."""


include: "workflow/Snakefile"


# Targets of an included file are no default.
rule experiment:
    default_target: True
    input:
        whole_experiment,
    localrule: True
