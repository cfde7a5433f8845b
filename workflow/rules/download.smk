"""Public files that the config names by `download:NAME`; nodes without a network never run these rules."""

from cort.downloads import rehearsal
from cort.experiment.downloads import file_pattern, resolve

config.update(resolve(config))
if rehearsal.is_on():
    config["title"] = f"{rehearsal.NOTICE}: {config['title']}"


rule download:
    output:
        paths.PUBLIC_FILE,
    wildcard_constraints:
        file=file_pattern(extracted=False),
    localrule: True
    resources:
        disk_mb=disk(sizes.download),
        # Where a file comes from decides nothing, so it is no parameter.
        folder=config["downloads"]["folder"],
    params:
        downloads=paths.KEPT,
    message:
        "Fetch {wildcards.source}/{wildcards.file}"
    shell:
        "python -m cort.download file --name {wildcards.source:q}/{wildcards.file:q} --downloads {params.downloads:q}"
        " --folder {resources.folder:q} --output {output:q} --log {log:q}"


# The archive is no input: who has the extracted file needs none, and what is at hand must not decide what runs again.
rule extract:
    output:
        paths.PUBLIC_FILE,
    wildcard_constraints:
        file=file_pattern(extracted=True),
    localrule: True
    resources:
        disk_mb=disk(sizes.download),
        folder=config["downloads"]["folder"],
    params:
        downloads=paths.KEPT,
    message:
        "Extract {wildcards.source}/{wildcards.file}"
    shell:
        "python -m cort.download member --name {wildcards.source:q}/{wildcards.file:q} --downloads {params.downloads:q}"
        " --folder {resources.folder:q} --output {output:q} --log {log:q}"
