"""Settings of the stages that compare, report and export; parts like those of workflow/settings.py."""

from __future__ import annotations

import json

from cort.experiment.comparisons import pairs
from cort.experiment.config import compared, on_split
from cort.experiment.config import curve_depths as depths_of_curve
from cort.experiment.keys import Experiment
from cort.experiment.stored import needed_for
from cort.settings.config import Config, deciding, flat
from cort.settings.fields import schema_of
from workflow.params import Wildcards, Words, option


def curve_depths(config: Config, wildcards: Wildcards) -> Words:
    """Depths of a re-ranked system's curve."""
    depths = depths_of_curve(config, wildcards.system)
    return Words(option("depths", depths), {"evaluation.depths": depths})


def disagreements(config: Config, wildcards: Wildcards) -> Words:
    """Names of the systems that disagree."""
    names = config["evaluation"]["disagreements"]
    words = [*option("first_name", names[0]), *option("second_name", names[1])]
    return Words(words, {"evaluation.disagreements": names})


def compared_systems(config: Config, wildcards: Wildcards) -> Words:
    """Names of the systems that are compared with the baseline, and pairs of these compared with each other."""
    names, kinds = compared(config, wildcards.split), pairs(config, wildcards.split)
    words = [word for kind, listed in kinds.items() for word in option(kind, [f"{a}={b}" for a, b in listed])]
    systems = {"compared": names, "parts": kinds["parts"], "starts": kinds["starts"]}
    return Words([*option("systems", names), *words], {"systems": systems, "evaluation.contrasts": kinds["contrasts"]})


def explored(config: Config, wildcards: Wildcards) -> Words:
    """Names of the systems in the explorer."""
    names = on_split(config, wildcards.split)
    return Words(option("systems", names), {"systems": names})


def whole_config(config: Config, wildcards: Wildcards) -> Words:
    """Return every setting that affects results, as JSON."""
    return _as_json("config", deciding(config, schema_of(Experiment)))


def measured(config: Config, wildcards: Wildcards) -> Words:
    """Return the settings of the systems whose latencies are measured, as JSON."""
    needed = needed_for(config, config["latency"]["systems"])
    return _as_json("settings", deciding(needed, schema_of(Experiment)))


def _as_json(name: str, settings: Config) -> Words:
    return Words(option(name, json.dumps(settings, ensure_ascii=False)), flat(settings))


def submission(config: Config, wildcards: Wildcards) -> Words:
    """Give the id of a TREC run (by default the submission's name); none for the leaderboard."""
    place = f"submissions.{wildcards.submission}"
    form = config["submissions"][wildcards.submission]["form"]
    if form != "trec":
        return Words((), {f"{place}.form": form})
    run_id = config["submissions"][wildcards.submission].get("run_id", wildcards.submission)
    return Words(option("run_id", run_id), {f"{place}.form": form, f"{place}.run_id": run_id})
