"""The SLURM sandbox in tests: what it knows of its jobs, Snakemake runs that submit to it, and faults for stages."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.common import ROOT, wait_until
from tests.support.forking import HOOK, snakemake
from tests.support.sandbox import TINY, copy_with_tiny

SCRIPT = ROOT / "tests" / "support" / "slurm-sandbox"
PROFILE = Path("profiles") / "slurm" / "profile.yaml"
CANNOT_RUN_HERE = 69

# What a stage does that meets a fault, in Python.
FAIL = "import os; os._exit(1)"
# As the kernel ends a process.
EXCEED_MEMORY = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
HANG = "import time; time.sleep(900)"
WAIT_FOR_GO = "import time\nwhile not (folder / 'go').exists(): time.sleep(0.1)"
# When the stage has written its output, and before that is put in place.
WAIT_IN_THE_END = """
import os, time
fsync = os.fsync
def wait(descriptor):
    while not (folder / "go").exists(): time.sleep(0.1)
    fsync(descriptor)
os.fsync = wait
"""
SAVE_WHEN_WARNED = """
import os, signal, time
snakemake = os.getppid()
def save(number, frame):
    time.sleep(2)
    (folder / "saved").write_text(f"signal {number}, Snakemake lives: {os.getppid() == snakemake}")
    os._exit(os.EX_TEMPFAIL)
signal.signal(signal.SIGUSR1, save)
time.sleep(900)
"""
# SLURM's warning in the middle of a training, just when it has validated for the first time.
WARN_AFTER_VALIDATION = """
import logging, os, subprocess, time
make, warned = logging.getLogRecordFactory(), []
def make_and_warn(*args, **names):
    record = make(*args, **names)
    if "validation loss" in record.getMessage() and not warned:
        warned.append(subprocess.run(["scancel", "--signal=USR1", os.environ["SLURM_JOB_ID"]], check=True))
        time.sleep(2)
    return record
logging.setLogRecordFactory(make_and_warn)
"""


def variables(folder):
    """Variables with which commands use the SLURM of a folder."""
    shown = subprocess.run([SCRIPT, "env", folder], capture_output=True, text=True, check=True).stdout
    named = dict(word.split("=", maxsplit=1) for word in shlex.split(shown)[1:])
    path = named["PATH"].replace("$PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
    return {"SLURM_CONF": named["SLURM_CONF"], "PATH": path}


class Sandbox:
    """A SLURM of its own, from `start` to `stop`, or in a `with`; `faults` are those of the stages in its jobs.

    Two of its three nodes have a number of GPUs: 2 or 0.
    """

    def __init__(self, folder, gpus=2):
        self.folder, self.gpus = Path(folder), gpus
        self.faults = self.folder / "faults"

    def call(self, action):
        environment = {**os.environ, "GPUS": str(self.gpus)}
        command = [SCRIPT, action, self.folder / "slurm"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def start(self):
        done = self.call("start")
        if done.returncode == CANNOT_RUN_HERE:
            pytest.skip(f"no SLURM sandbox here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        self.faults.mkdir()

    def stop(self):
        done = self.call("stop")
        assert done.returncode == 0, done.stderr

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    @property
    def environment(self):
        """Variables with which commands and jobs of theirs use this SLURM and meet the faults."""
        # The stages start as users start them (forking.py); else they would miss the faults.
        dropped = ("SLURM_", "CUDA_", HOOK)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return {
            **kept,
            **variables(self.folder / "slurm"),
            "PYTHONPATH": str(ROOT / "tests" / "support" / "faults"),
            "FAULTS": str(self.faults),
        }

    def command(self, *words):
        pipes = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        return subprocess.run(words, env=self.environment, check=True, timeout=60, **pipes).stdout

    def jobs(self, rule=None, wildcards=""):
        """All jobs there were as SLURM describes them, the oldest first; of one rule, with a part of its wildcards."""
        found = []
        for line in self.command("scontrol", "--oneliner", "show", "job").splitlines():
            job = dict(re.findall(r"(\w+)=(\S*)", line))
            if "JobId" not in job:
                # "No jobs in the system"
                continue
            # What the plugin notes: rule_<name>_wildcards_<values>.
            name, _, values = job.get("Comment", "").removeprefix("rule_").partition("_wildcards_")
            found.append({**job, "rule": name, "wildcards": values})
        found.sort(key=lambda job: int(job["JobId"]))
        return [job for job in found if rule in (None, job["rule"]) and wildcards in job["wildcards"]]

    def state(self):
        """Nodes, living jobs with their reasons, and the ends of the daemons' logs."""
        shown = [self.command("sinfo"), self.command("squeue", "--format=%i %T %M %R %j")]
        for log in sorted((self.folder / "slurm" / "log").glob("slurm*.log")):
            shown.append(f"{log.name}:\n{log.read_text('utf-8', 'replace')[-2_000:]}")
        return "\n".join(shown)

    def end_controller(self):
        """End slurmctld as an administrator does.

        Killed, it would forget jobs it had just accepted, and give their numbers to others.
        """
        pid = int((self.folder / "slurm" / "run" / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "slurmctld to end", 30)

    def start_controller(self):
        self.command("slurmctld")

    def restart_node(self, name, *mounts):
        """Start the daemon of a node anew, whose jobs see the file systems of some `mount` commands."""
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
            pytest.skip("mounting takes rights that are not given here")
        pid = int((self.folder / "slurm" / "run" / f"slurmd.{name}.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "slurmd to end", 30)
        calls = [shlex.join(["mount", *map(str, mount)]) for mount in mounts]
        self.command("unshare", "--mount", "sh", "-ec", "; ".join([*calls, f"slurmd -N {name}"]))
        states = ("sinfo", "--noheader", f"--nodes={name}", "--format=%T")
        wait_until(lambda: {*self.command(*states).split()} == {"idle"}, f"{name} to be idle", 30)

    def set_min_job_age(self, seconds):
        """Let SLURM forget jobs that long after their end, at the next of its looks, each minute."""
        conf = self.folder / "slurm" / "etc" / "slurm.conf"
        conf.write_text(re.sub(r"(?<=MinJobAge=)\d+", str(seconds), conf.read_text("utf-8")), "utf-8")
        self.command("scontrol", "reconfigure")

    def program(self, name, script):
        """Variables with which commands call a shell script instead of a program; it finds the real one in $REAL."""
        folder, real = self.folder / f"{name}-tools", shutil.which(name, path=self.environment["PATH"])
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\nREAL={real}\n{script}\n", "utf-8")
        (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{self.environment['PATH']}"}

    # Faults.

    def inject(self, words, code):
        """Have the first stage that starts with all of `words` in its command run `code` before anything else."""
        number = len(list(self.faults.glob("*.fault")) + list(self.faults.glob("*.met")))
        path = self.faults / f"{number:03}.fault"
        path.write_text(json.dumps({"words": words, "code": code}), "utf-8")
        return path.with_suffix(".met")

    def stages(self):
        """All stages that started: dictionaries of what sitecustomize.py notes."""
        return [json.loads(path.read_text("utf-8")) for path in self.faults.glob("*.seen")]


def begin(folder, *targets):
    """Make a copy of the project in which all is built from which targets of the tiny experiment are made."""
    tree = copy_with_tiny(folder)
    status, output = snakemake(tree, "--cores", 2, "--configfile", TINY, "--until", "split", "--", *targets)
    assert status == 0, output[-5_000:]
    return tree


def ids(jobs):
    return [job["JobId"] for job in jobs]


def last_lines(output):
    """The lines of `onerror`, which name the failed jobs."""
    return re.findall(r"^\w+(?: and \w+)* failed: .*", output, re.MULTILINE)


def write_profile(tree, name, **settings):
    """Derive a profile from the project's in which jobs are looked at often; return its folder."""
    profile = yaml.safe_load((tree / PROFILE).read_text("utf-8"))
    profile |= {"jobs": 6, "max-threads": 2, "latency-wait": 20, "slurm-init-seconds-before-status-checks": 4}
    profile |= {key.replace("_", "-"): value for key, value in settings.items()}
    shutil.copytree((tree / PROFILE).parent, tree / name, dirs_exist_ok=True)
    (tree / name / "profile.yaml").write_text(yaml.safe_dump(profile), "utf-8")
    return name


class Run:
    """A Snakemake run that submits jobs to a sandbox, in a process of its own."""

    def __init__(self, sandbox, tree, profile, *words, environment=None):
        self.sandbox = sandbox
        command = [Path(sys.executable).parent / "snakemake", *words, "--workflow-profile", profile]
        command += ["--configfile", "tiny/tiny.yaml"]
        self.log = tree / f"{profile}.log"
        with open(self.log, "w", encoding="utf-8") as log:
            variables = {**sandbox.environment, **(environment or {})}
            options = {"cwd": tree, "env": variables, "stdin": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **options)

    def wait_until(self, condition, what, seconds=180):
        """Wait for something that has to happen while this runs."""

        def met():
            found = condition()
            assert found or self.process.poll() is None, f"ended before {what}:\n{self.output[-10_000:]}"
            return found

        return wait_until(met, what, seconds, pause=0.3)

    def wait(self, seconds=600):
        """Wait for the end; status and all it said."""
        try:
            return self.process.wait(seconds), self.output
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"no end within {seconds} s; {self.sandbox.state()}\n{self.output[-5_000:]}") from None

    def kill(self):
        self.process.kill()
        self.process.wait()

    @property
    def output(self):
        return self.log.read_text("utf-8")
