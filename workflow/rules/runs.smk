"""Runs of all kinds of systems, and the tuning of their weights."""


# In a loop, Snakemake would run the command of the last rule for all.
def make_runs(made):
    """Make the rule of a kind of system; its stage gets the inputs and options of a system by the same names."""

    rule:
        name:
            made.name
        input:
            unpack(of(inputs.of_system)),
        output:
            paths.RUN,
        wildcard_constraints:
            system=any_of(name for name, system in experiment.systems.items() if system.rule == made),
        # As `bm25_index`: training waits for these.
        priority: int(made.java)
        threads: run_threads(made)
        resources:
            gpu=gpus(int(made.gpu)),
            # `--set-resources retrieve:gpu=4 retrieve:devices=4` divides the passages among four GPUs.
            devices=1,
            heap_mb=growing(2000),
            mem_mb=growing(made.memory_mb, per_mb=made.per_mb),
            runtime=growing(made.minutes),
        params:
            options=options(settings.of_run),
        message:
            "Make the run of {wildcards.system} on {wildcards.split}"
        shell:
            f"exec python -m cort.{made.stage} "
            f"{'--threads {threads} ' * made.threads}"
            f"{'--gpus {resources.devices} --memory-mb {resources.mem_mb} ' * made.devices}"
            f"{'--memory-mb {resources.heap_mb} ' * made.java}"
            "{params.options:q} --tag {wildcards.system:q} --output {output:q} --log {log:q}"


for made in RULES:
    make_runs(made)


rule tune_weights:
    input:
        unpack(of(inputs.for_tuning)),
        qrels=experiment.at(paths.QRELS, split="validation"),
    output:
        paths.WEIGHTS,
    wildcard_constraints:
        system=any_of(name for name, system in experiment.systems.items() if system.tune and system.parts()),
    resources:
        mem_mb=growing(2000, per_mb=8),
        runtime=growing(240),
    params:
        options=options(settings.tuning, "splits.validation.relevance_level", "collection.aggregate"),
    message:
        "Choose the weights of {wildcards.system} by a grid search over validation queries"
    shell:
        "exec python -m cort.tune weights --runs {input.runs:q} --scores {input.scores:q} --qrels {input.qrels:q}"
        " {params.options:q} --output {output:q} --log {log:q}"


use rule tune_weights as tune_weights_folds with:
    input:
        unpack(of(inputs.for_tuning)),
        qrels=paths.QRELS,
    output:
        paths.FOLD_WEIGHTS,
    params:
        options=options(settings.tuning, "splits.{split}.relevance_level", "collection.aggregate"),
    message:
        "Choose the weights of {wildcards.system} by cross-validation on {wildcards.split}"
