"""Runs of kinds of systems without a rule of their own: a stage gets their inputs as options of the same names."""

for stage in sorted({kind.rules[0] for kind in KINDS} - {rule.name for rule in workflow.rules}):

    rule:
        name:
            stage
        input:
            unpack(run_inputs),
        output:
            paths.RUN,
        wildcard_constraints:
            system=made_by(config, stage),
        resources:
            disk_mb=disk(sizes.run),
            mem_mb=growing(4000, per_mb=2),
            runtime=growing(240),
        params:
            files=input_options,
            options=options(settings.of_system, settings.results),
        message:
            "Make the run of {wildcards.system} on {wildcards.split}"
        shell:
            f"python -m cort.{stage} "
            "{params.files:q} {params.options:q} --tag {wildcards.system:q} --output {output:q} --log {log:q}"
