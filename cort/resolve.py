"""Write the settings that make an experiment's results, with all defaults, beside these results.

The search, the explorer, the report and the Python API read them there.

Reads:  nothing but its options
Writes: experiment.yaml
Usage:  python -m cort.resolve --config '{"dataset": "pydocs", "seed": 42}' --output experiment.yaml
"""

from __future__ import annotations

import logging
import sys

from cort.config.stored import write_experiment
from cort.formats.artifacts import json_option
from cort.runtime import cli
from cort.runtime.sections import JsonFile, Section, YamlFile

log = logging.getLogger(__name__)


class Options(Section):
    """Options of this stage."""

    config: JsonFile
    """All settings that affect the results, as the workflow completes them."""
    output: YamlFile


def stage(options: Options) -> None:
    """Check that it is a config, write."""
    config = json_option("--config", options.config)
    write_experiment(options.output, config)
    log.info("%d settings sections", len(config))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
