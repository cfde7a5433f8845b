"""Public files that the config names by `download:NAME`; local rules, as compute nodes may have no network."""

from cort.downloads import rehearsal
from cort.experiment.downloads import file_pattern, resolve

config.update(resolve(config))
if rehearsal.is_on():
    config["title"] = f"{rehearsal.NOTICE}: {config['title']}"


# An archive is no input: it is not needed if the extracted file exists, and deleting it must rerun nothing.
rule download:
    output:
        paths.PUBLIC_FILE,
    wildcard_constraints:
        file=file_pattern(),
    localrule: True
    resources:
        disk_mb=disk(sizes.download),
        # No param, since the source of a file affects no result.
        folder=config["downloads"]["folder"],
    params:
        downloads=paths.KEPT,
    message:
        "Get {wildcards.source}/{wildcards.file}"
    shell:
        "python -m cort.download --name {wildcards.source:q}/{wildcards.file:q} --downloads {params.downloads:q}"
        " --folder {resources.folder:q} --output {output:q} --log {log:q}"
