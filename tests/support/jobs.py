"""Jobs of a plan, and which of them get other params or inputs if settings change."""

import copy
from unittest import mock

from cort.config.downloads import resolve
from cort.config.experiment import Experiment
from cort.config.load import complete
from tests.support.changes import put
from workflow import snakemake_api
from workflow.snakemake_api import Job


def job(rule="evaluate", **fields):
    """Make a job; names that are no fields of it are wildcards."""
    own = {name: fields.pop(name) for name in list(fields) if name in Job.__dataclass_fields__}
    return Job(rule=rule, wildcards=fields, **own)


def plan(configfile):
    """Plan an experiment: its jobs, and those of Snakemake in the same order."""
    with mock.patch.object(snakemake_api, "_describe", wraps=snakemake_api._describe) as describe:
        jobs, _ = snakemake_api.plan(["--configfile", configfile])
    return jobs, [call.args[1] for call in describe.call_args_list]


def evaluate(job):
    """Params and inputs that the rule of a job of Snakemake gives now; None if it fails: there is no such job now."""
    try:
        inputs, *_ = job.rule.expand_input(job.wildcards_dict)
        _, params = job.rule.expand_params(job.wildcards_dict, inputs, job.output, job)
    except Exception:
        return None
    return [*map(repr, params)], sorted(inputs)


def reset(jobs, config):
    """Give the rules of jobs of Snakemake another config, completed as in workflow/rules/common.smk."""
    scope = jobs[0].rule.workflow.globals
    experiment = Experiment(resolve(complete(config, "changed").root))
    scope["config"].clear()
    scope["config"].update(experiment.config)
    # Rules are bound to this very object.
    scope["experiment"].__dict__.clear()
    scope["experiment"].__dict__.update(experiment.__dict__)


def changed(jobs, config, changes):
    """For each change of a config, the numbers of the jobs to which it gives other params or inputs."""
    reset(jobs, copy.deepcopy(config))
    before = [evaluate(job) for job in jobs]
    assert before == [([*map(repr, job.non_derived_params)], sorted(job.input)) for job in jobs]
    for settings in changes:
        other = copy.deepcopy(config)
        for path, value in settings.items():
            put(other, path.split("."), value)
        reset(jobs, other)
        now = [evaluate(job) for job in jobs]
        yield [number for number, pair in enumerate(zip(before, now, strict=True)) if pair[1] and pair[0] != pair[1]]
