"""Kill the build of the tiny experiment again and again, and check that nothing of it is lost or wrong.

One copy of the project builds undisturbed. In another the same command runs and is killed with SIGKILL at moments drawn
at random, each time with all its processes or, every fifth time, alone so that its jobs outlive it; then it runs again.
A build that finishes is compared with the undisturbed one, file by file, and another begins until all kills are done.

Exit status 1 if a call fails by itself, a job runs again that had been reported as finished, a file differs, or
something temporary is left; the copies then stay for inspection.

Usage: python -m scripts.drill [--kills 25] [--seed 1]
"""

import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.bench.common import parse, print_table
from scripts.sandbox import TINY, copy_with_tiny, digests, executable, timed
from workflow.lock import processes_with

ARGUMENTS = ("--cores", "2", "--configfile", TINY)
# What tells times, or how Lucene's threads were scheduled, and checksums; all else is the same in every build.
VARIABLE_FILES = re.compile(
    r"/(audit|lexical/[^/]+/index)/|/(curve\.csv|provenance\.json|report/index\.html)$|/report/(tables/stages|\w+/audits)\.|\.sum$"
)
VARIABLE = "CORT_DRILL"
MAIN_ONLY = 5
# Seconds: the earliest moment of a kill, and the latest as a part of the undisturbed build's.
EARLIEST, LATEST_PART, LATEST_AT_LEAST = 0.5, 1 / 3, 6.0
STARTED = re.compile(r"^Job (\d+): (.+)$", re.MULTILINE)
FINISHED = re.compile(r"^Finished jobid: (\d+) \(Rule: (\w+)\)", re.MULTILINE)


@dataclass
class Drill:
    """The record of all rounds: `rules` by the messages of jobs; `faults` has a line for each thing that is wrong."""

    rules: dict[str, str]
    kills: int = 0
    builds: int = 0
    interrupted: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    faults: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


def parse_log(text: str) -> tuple[list[str], dict[str, str]]:
    """Read Snakemake's own log: messages of the jobs that started, and message -> rule of those that finished."""
    started = STARTED.findall(text)
    names = dict(started)
    finished = {names[number]: rule for number, rule in FINISHED.findall(text) if number in names}
    return [name for _, name in started], finished


def differences(folder: Path, expected: dict[str, str]) -> list[str]:
    """Name the files that differ, miss or are too many in a finished build, and all that is temporary."""
    found = results(folder)
    different = [name for name in sorted(expected.keys() | found.keys()) if expected.get(name) != found.get(name)]
    left = [f"{path.relative_to(folder)} is left" for path in sorted(folder.rglob("*.tmp"))]
    return [*(f"{name} differs" for name in different), *left]


def results(folder: Path) -> dict[str, str]:
    """Digests of all results that are the same in every build."""
    return {name: digest for name, digest in digests(folder, "results/**/*").items() if not VARIABLE_FILES.search(name)}


def run_round(folder: Path, seconds: float | None, main_only: bool, token: str) -> tuple[int | None, str, str]:
    """Call the workflow and kill it after so many seconds; its status, None if killed, what it said, and its log."""
    logs, output = folder / ".snakemake" / "log", folder / "said.txt"
    before = set(logs.glob("*"))
    command, marked, status = [executable("snakemake"), *ARGUMENTS], os.environ | {VARIABLE: token}, None
    with open(output, "wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, env=marked, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            if main_only:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
                kill_all(token)
            process.wait()
    log = "".join(path.read_text(encoding="utf-8") for path in sorted(set(logs.glob("*")) - before))
    return status, output.read_text(encoding="utf-8"), log


def kill_all(token: str) -> None:
    """Kill what a round began, in whatever process group it is."""
    while pids := processes_with(VARIABLE, token):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def rules_of(folder: Path) -> dict[str, str]:
    """Message -> rule of all jobs of a copy in which the first call built everything."""
    first = min((folder / ".snakemake" / "log").glob("*"))
    names, rules = parse_log(first.read_text("utf-8"))
    if len(names) != len(set(names)):
        sys.exit("error: two jobs have one message, so that the drill cannot tell them apart; fix `message:`")
    return rules


def build_with_kills(folder: Path, drill: Drill, generator: random.Random, latest: float, limit: int) -> None:
    """Call, kill, call again until a build is finished; not more than `limit` kills in all."""
    rules, done, status = drill.rules, dict[str, str](), None
    while status is None:
        moment = generator.uniform(EARLIEST, latest)
        main_only = (drill.kills + 1) % MAIN_ONLY == 0
        drill.tokens.append(secrets.token_hex(8))
        status, said, log = run_round(folder, moment if drill.kills < limit else None, main_only, drill.tokens[-1])
        started, finished = parse_log(log)
        drill.jobs += len(started)
        again = sorted(done.keys() & set(started))
        drill.faults += [f"{rules.get(name, '?')} ran again, though finished: {name}" for name in again]
        done |= finished
        if status is None:
            drill.kills += 1
            running = [rules.get(name, "?") for name in started if name not in finished]
            drill.interrupted.update(running or ["between jobs"])
            sys.stderr.write(
                f"kill {drill.kills:2}, build {drill.builds + 1}: after {moment:4.1f} s, "
                f"{'main process only' if main_only else 'all processes    '} | "
                f"finished so far {len(done):2} of {len(rules)} | running: {', '.join(running) or 'nothing'}\n"
            )
    if status:
        drill.faults.append(f"a call ended with status {status}: {said[-2000:]}")


def kill_again_and_again(top: Path, undisturbed: Path, kills: int, seed: int, latest: float) -> Drill:
    """Build in copies under `top` until there were so many kills, each `latest` seconds after a call at the latest."""
    drill, generator = Drill(rules_of(undisturbed)), random.Random(seed)  # noqa: S311 - moments, not secrets
    expected = results(undisturbed)
    try:
        while drill.kills < kills and not drill.faults:
            folder = copy_with_tiny(top / f"build-{drill.builds + 1}")
            build_with_kills(folder, drill, generator, latest, kills)
            drill.builds += 1
            drill.faults += differences(folder, expected)
    finally:
        for token in drill.tokens:
            kill_all(token)
    return drill


def main() -> None:
    """Run the drill."""
    args = parse(__doc__, kills=25, seed=1)
    began = time.perf_counter()
    top = Path(tempfile.mkdtemp(prefix="drill-"))
    undisturbed = copy_with_tiny(top / "undisturbed")
    seconds, _ = timed(undisturbed, *ARGUMENTS)
    jobs, files = len(rules_of(undisturbed)), len(results(undisturbed))
    sys.stderr.write(f"undisturbed: {jobs} jobs, {files} files compared, {seconds:.0f} s\n")
    latest = max(LATEST_AT_LEAST, seconds * LATEST_PART)
    drill = kill_again_and_again(top, undisturbed, args.kills, args.seed, latest)
    interrupted = ", ".join(f"{name} {count}" for name, count in drill.interrupted.most_common())
    faults = len(drill.faults) or "none: all files as in the undisturbed build"
    counts = {"kills": drill.kills, "builds finished and compared": drill.builds, "jobs begun": drill.jobs}
    rest = {"interrupted": interrupted, "faults": faults, "time": f"{time.perf_counter() - began:.0f} s"}
    print_table([*counts.items(), *rest.items()])
    sys.stderr.writelines(f"FAULT: {fault}\n" for fault in drill.faults)
    if drill.faults:
        sys.exit(f"the copies are in {top}")
    shutil.rmtree(top)


if __name__ == "__main__":
    main()
