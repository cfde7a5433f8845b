"""Systems in the formats of search engines."""


rule deploy:
    input:
        unpack(partial(report_inputs.deployed, config, SHARDS)),
        passages=paths.PASSAGES,
    output:
        check=f"{paths.DEPLOYMENT}check.json",
    resources:
        disk_mb=disk(sizes.deployment, 4),
        mem_mb=growing(4000),
        runtime=growing(720),
    params:
        folder=subpath(output.check, parent=True),
        options=options(
            among("deploy.{deployment}", "system", "targets"), settings.deployment, "depth", "collection.aggregate"
        ),
    message:
        "Write {wildcards.deployment} for search engines"
    shell:
        "python -m cort.deploy --passages {input.passages:q} --queries {input.queries:q} --runs {input.runs:q}"
        " --bm25 {input.bm25:q} --vectors {input.vectors:q} --query-vectors {input.query_vectors:q} {params.options:q}"
        " --output {params.folder:q} --log {log:q}"
