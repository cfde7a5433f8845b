"""From a folder of documents to a verdict: which system ranks them best, by how much, in which memory and time.

Writes two experiments, builds them, and prints what they show. `config/NAME-synthetic.yaml` has queries made from the
headings of the documents, or from first sentences if there are few headings; it compares systems and tunes weights.
`config/NAME.yaml` has all words of the documents and the queries of people; it serves searches and is deployed. Each
call writes both anew for what it names, unless somebody has edited one of them: then they are kept.

Usage: python -m workflow.verdict --folder docs [--queries questions.txt [--qrels judgements.tsv]] [--model FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from os.path import normpath
from pathlib import Path
from typing import Any, get_args

from cort.evaluation.comparisons import MIN_QUERIES, WIN, Comparison, Comparisons
from cort.experiment.checks import ConfigError, load, read
from cort.experiment.config import compared as compared_systems
from cort.experiment.config import with_parts
from cort.experiment.deployment import deployed_parts
from cort.experiment.stored import read_experiment
from cort.formats.artifacts import read_artifact
from cort.formats.runs import read_run
from cort.formats.tables import QUERIES, count_rows
from cort.retrieval.weights import TunedWeights
from cort.settings import paths
from cort.settings.config import Config, evaluated_splits, is_judged, labels_of, leaves, ranked_splits
from cort.settings.evaluation import Target
from cort.system.errors import InputError, input_error
from cort.system.files import write_text
from cort.systems.registry import system_of
from workflow.report_inputs import comparisons

CONFIGS = Path("config")
STATIC = "models/wordllama"
MEASURE = "nDCG@10"
TARGETS = ", ".join(get_args(Target))
# Generated queries of each split, and the fewest that are worth comparing systems on.
SAMPLE, FEWEST = 500, 50
# Share of queries without results of BM25 above which a language is probably wrong.
UNANSWERED = 0.2
NAME = re.compile("[a-z0-9][a-z0-9._-]*")
WRITTEN = "# Written by `make verdict` for "
# Followed by a digest of all other lines.
UNEDITED = "# The next call writes this file anew, unless you edit it. config/README.md explains every key. "
# What this program deploys; nothing, until it knows the best system.
DEPLOYED = rf"^deploy: \{{(?:search: \{{system: \S+, targets: \[{TARGETS}\]\}})?\}}$"

OTHER = "set NAME= to write another one"

MAIN = """\
{written}{given}
dataset: {name}
title: {title}
collection: {{folder: {folder}, passages: {{words: 150, overlap: 50}}}}
encoders:
{encoders}
# Weights are those of {name}-synthetic.yaml.
systems:
{systems}
splits: {{{split}}}
depth: 200
evaluation: {{measures: [nDCG@10, RR@10, R@100], depths: [1, 10], depth_measures: [nDCG@10]}}
latency: {{split: {split_name}, queries: 100, systems: [{names}]}}
deploy: {{}}
"""
SYNTHETIC = """\
{written}{given}
# Queries made from the documents compare the systems of {name}.yaml, and tune their weights.
extends: {main}
dataset: {name}-synthetic
title: {title}
splits:
  validation: {{generate: {{from: {origin}}}, sample: {sample}}}
  test: {{generate: {{from: {origin}}}, sample: {sample}}}
systems:
{systems}
latency: null
deploy: null
"""


def encoders_of(model: str | None) -> dict[str, str]:
    """Return the encoders by name, each as YAML."""
    encoders = {"static": f"{{pretrained: {STATIC}}}"}
    if model:
        folder, _, revision = model.partition("@")
        name = re.sub("[^a-z0-9]+", "-", Path(folder).name.lower()).strip("-") or "model"
        more = f", revision: {revision}" if revision else ""
        encoders[name] = f"{{pretrained: {json.dumps(folder)}{more}}}"
    return encoders


def systems_of(encoders: dict[str, str], name: str, tuned_here: bool) -> dict[str, str]:
    """Return BM25, each encoder, and each encoder fused with BM25, as YAML."""
    systems = {"bm25": "{retrieve: bm25}"} | {encoder: f"{{retrieve: {encoder}}}" for encoder in encoders}
    for encoder in encoders:
        fused = f"{encoder}+bm25"
        file = paths.WEIGHTS.format(dataset=f"{name}-synthetic", system=fused)
        weights = f"tune: {MEASURE}" if tuned_here else f"weights: {file}"
        systems[fused] = f"{{fuse: {{systems: [{encoder}, bm25], method: linear, {weights}}}}}"
    return systems


def signed(text: str) -> str:
    """Add a line with a digest, by which an edited file is known."""
    first, _, others = text.partition("\n")
    return f"{first}\n{UNEDITED}{sha256(text.encode()).hexdigest()[:16]}\n{others}"


def unsigned(text: str) -> str:
    """Remove the line that `signed` added."""
    return re.sub(f"^{re.escape(UNEDITED)}.*\n", "", text, count=1, flags=re.MULTILINE)


def is_edited(path: Path) -> bool:
    """Tell whether somebody has edited a file that this program wrote."""
    return path.exists() and signed(unsigned(text := path.read_text("utf-8"))) != text


def write_configs(args: argparse.Namespace, origin: str) -> None:
    """Write both experiments; those that are to be kept only if they do not exist."""
    name, encoders = args.name, encoders_of(args.model)
    split = (
        f"sample: {{queries: {paths.IMPORTED_QUERIES.format(dataset=f'{name}-synthetic', split='test')}, sample: 100}}"
    )
    if args.queries:
        qrels = f", qrels: {json.dumps(args.qrels)}, numbered: true" if args.qrels else ""
        split = f"queries: {{queries: {json.dumps(args.queries)}{qrels}}}"
    values: dict[str, Any] = {
        "written": WRITTEN,
        "given": given(args),
        "name": name,
        "title": json.dumps(Path(args.folder).resolve().name, ensure_ascii=False),
        "folder": json.dumps(args.folder, ensure_ascii=False),
        "encoders": listing(encoders),
        "split": split,
        "split_name": split.partition(":")[0],
        "origin": origin,
        "sample": SAMPLE,
        "main": args.main,
    }
    for path, text in ((args.main, MAIN), (args.synthetic, SYNTHETIC)):
        systems = systems_of(encoders, name, path == args.synthetic)
        if not (args.kept and path.exists()):
            write_text(path, signed(text.format(**values, systems=listing(systems), names=", ".join(systems))))


def listing(entries: dict[str, str]) -> str:
    """Write entries of a section of YAML, a line each."""
    return "\n".join(f"  {name}: {value}" for name, value in entries.items())


def given(args: argparse.Namespace) -> str:
    """Repeat what a file was written for."""
    named = {"FOLDER": args.folder, "QUERIES": args.queries, "QRELS": args.qrels, "MODEL": args.model}
    return json.dumps({key: value for key, value in named.items() if value}, ensure_ascii=False)


def check(args: argparse.Namespace) -> None:
    """Refuse missing files, names that no dataset can have, and experiments written for something else."""
    if not Path(args.folder).is_dir():
        raise input_error("FOLDER", args.folder, "a folder of documents", "fix the path")
    for key, file in (("QUERIES", args.queries), ("QRELS", args.qrels)):
        if file and not Path(file).is_file():
            raise input_error(key, file, "a file", "fix the path")
    if args.qrels and not args.queries:
        raise input_error("QRELS", args.qrels, "QUERIES, too", "name the queries that are judged")
    if args.model and "@" not in args.model and not Path(args.model).is_dir():
        raise input_error("MODEL", args.model, "a folder, or NAME@COMMIT of a model on the hub", "fix it")
    if not NAME.fullmatch(args.name):
        raise input_error("NAME", args.name, "small letters, digits, dots, dashes and _", "set NAME=")
    for path in filter(Path.exists, (args.main, args.synthetic)):
        first = path.read_text("utf-8").partition("\n")[0]
        if not first.startswith(WRITTEN):
            raise input_error(path, first or "an empty line", f"{WRITTEN}...", f"{OTHER}, or move this file", 1)
    args.kept = [path for path in (args.main, args.synthetic) if is_edited(path)]
    if args.main.exists():
        check_former(args)


def check_former(args: argparse.Namespace) -> None:
    """Refuse an experiment about another folder, and one that somebody edited and that lacks what a call names."""
    config = load(args.main) if args.kept else read(args.main)
    folder = config["collection"].get("folder", "")
    if not Path(folder).exists() or not os.path.samefile(folder, args.folder):
        raise input_error(args.main, f"the folder {folder}", args.folder, f"{OTHER}, or remove this file")
    if not args.kept:
        return
    named = {"QUERIES": args.queries, "QRELS": args.qrels, "MODEL": args.model and args.model.partition("@")[0]}
    values = (one for _, value in leaves(config) for one in (value if isinstance(value, list) else [value]))
    known = {normpath(value) for value in values if isinstance(value, str)}
    for key, value in named.items():
        if value and normpath(value) not in known:
            expected = f"{key}={value} in {args.main}, as edited files are kept"
            raise input_error(args.kept[0], "edits", expected, f"add it there, {OTHER}, or remove the edited file")


def build(config: Path, *targets: str, quiet: bool = False) -> bool:
    """Build an experiment, or some files of it."""
    command = [sys.executable, "-m", "workflow.plan", "--run", "--configfile", str(config)]
    if targets:
        command += ["--", *targets]
    done = subprocess.run(command, capture_output=quiet, check=False)
    return done.returncode == 0


def queries_exist(config: Path) -> bool:
    """Make the generated queries; tell whether there are enough in each split."""
    loaded = load(config)
    files = [paths.at(paths.GENERATED_COUNTS, loaded, split=split) for split in ("validation", "test")]
    if not build(config, *files, quiet=True):
        return False
    return all(json.loads(Path(file).read_text("utf-8"))["kept (before `sample`)"] >= FEWEST for file in files)


def best_first(compared: Comparisons) -> list[str]:
    """List the systems that are significantly better than BM25, the best first, then BM25."""
    better = [(row.mean, row.system) for row in compared.against("bm25", MEASURE).values() if row.verdict == WIN]
    return [*(system for _, system in sorted(better, reverse=True)), "bm25"]


def difference(row: Comparison) -> str:
    """Write a difference, its interval and the verdict."""
    return f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}]  {row.verdict}"


def add_deployment(path: Path, systems: Sequence[str]) -> None:
    """Deploy the first of some systems that engines can run, unless somebody has written what is deployed."""
    config, text = load(path), path.read_text("utf-8")
    known = (name for name in systems if name in config["systems"] and deployed_parts(config, name))
    entries = [f"search: {{system: {name}, targets: [{TARGETS}]}}" for name in islice(known, 1)]
    changed = re.sub(DEPLOYED, f"deploy: {{{''.join(entries)}}}", text, flags=re.MULTILINE)
    write_text(path, changed if is_edited(path) else signed(unsigned(changed)))


def compared_on(config: Config, split: str) -> Comparisons:
    """Read the comparisons on a split."""
    compared: Comparisons = read_artifact(paths.at(paths.COMPARISON, config, split=split) + ".json", Comparisons)
    return compared


def table(compared: Comparisons) -> Iterator[str]:
    """Write a line per system, the best first: mean, difference from BM25, interval, verdict."""
    rows = compared.against("bm25", MEASURE)
    means = {name: row.mean for name, row in rows.items()} | {"bm25": next(iter(rows.values())).baseline_mean}
    width = max(map(len, means))
    for name in sorted(means, key=lambda name: (-means[name], name)):
        more = f"  {difference(rows[name])}" if name in rows else ""
        yield f"  {name:<{width}}  {means[name]:.3f}{more}"


def cost(path: Path, config: Config, system: str) -> str:
    """Describe the memory and time of a system, as far as the experiment has and measures it."""
    if system not in config["systems"]:
        return f"{path} does not have {system}: add it there to search with it"
    results, size = read_experiment(paths.at(paths.EXPERIMENT, config)), 0
    for name in with_parts(config, [system]):
        part = system_of(config, name, results)
        # A re-ranker has no vectors of passages.
        models = [] if part.reranker() else part.models()
        size += sum(Path(file).stat().st_size for model in models for file in results.vectors(*model))
        if lexical := part.lexical_index():
            folder = Path(paths.at(paths.LEXICAL_INDEX, config, lexical=lexical)).parent
            size += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    index = f"{math.ceil(size / 1e6):,} MB of index"
    latency = config["latency"] or {"systems": []}
    if system not in latency["systems"]:
        return f"{index}; add {system} to latency.systems of {path} to measure its time"
    rows = json.loads(Path(paths.at(paths.LATENCY, config, split=latency["split"])).read_text("utf-8"))["rows"]
    times = next(row["milliseconds"] for row in rows if row["system"] == system and row["batch"] == 1)
    times = times.get("concurrent", times["sequential"])
    return f"{index}; {times['p50']:.1f} ms per query here, 95 % under {times['p95']:.1f} ms"


def about_queries(args: argparse.Namespace, config: Config, synthetic: Config, system: str) -> Iterator[str]:
    """Say what the queries of people show; if there are none, whether BM25 answers the generated ones."""
    splits = [split for split in ranked_splits(config) if split != "sample"]
    for split in splits:
        count = count_rows(paths.at(paths.QUERIES, config, split=split), QUERIES)
        if is_judged(config, split):
            rows = compared_on(config, split).against("bm25", MEASURE)
            row = rows.get(system) or max(rows.values(), key=lambda row: row.mean)
            yield f"{labels_of(config, split)} labels, {count} queries: {row.system} {row.mean:.3f}  {difference(row)}"
        else:
            judging = f'make explore CONFIG={args.main} OPTIONS="--split {split} --judgements judgements.jsonl"'
            yield f"{count} queries of people without judgements; to judge results: {judging}"
        yield from unanswered(config, split)
    if not splits:
        yield from unanswered(synthetic, "test")


def unanswered(config: Config, split: str) -> Iterator[str]:
    """Ask for the language if BM25 finds nothing for many queries."""
    count = count_rows(paths.at(paths.QUERIES, config, split=split), QUERIES)
    run = paths.at(paths.RUN, config, split=split, system="bm25")
    found = len(read_run(run)) if "bm25" in config["systems"] else count
    if count - found > UNANSWERED * count:
        yield f"BM25 finds nothing for {count - found} of {count} queries: is lexical.bm25.language right?"


def merged_by(config: Config, system: str) -> str:
    """Name the tuned weights of a system, if it has any."""
    for file in system_of(config, system).tuned_files() if system_of(config, system).parts() else ():
        tuned: TunedWeights = read_artifact(file, TunedWeights)
        return f" ({', '.join(f'{part} {weight:g}' for part, weight in zip(tuned.parts, tuned.weights, strict=True))})"
    return ""


def splits_of_people(config: Config) -> list[str]:
    """List the splits with judgements of people."""
    return [name for name in ranked_splits(config) if is_judged(config, name) and labels_of(config, name) == "human"]


def judged_by_people(config: Config) -> Comparisons | None:
    """Read the comparisons on the first split with enough judgements of people; they say more than synthetic labels."""
    compared = (compared_on(config, split) for split in splits_of_people(config))
    return next((found for found in compared if found.queries >= MIN_QUERIES), None)


def report(
    args: argparse.Namespace, synthetic: Config, compared: Comparisons, human: Comparisons | None, best: Sequence[str]
) -> Iterator[str]:
    """Write the verdict, at most 15 lines.

    :param human: comparisons that decided instead of those on synthetic labels.
    :param best: the best system, and other good ones.
    """
    config, system = load(args.main), best[0]
    counts = json.loads(Path(paths.at(paths.IMPORT_COUNTS, config)).read_text("utf-8"))
    origin = synthetic["splits"]["test"]["generate"]["from"]
    yield f"{counts['documents']:,} documents, {counts['passages']:,} passages; {MEASURE} on {compared.queries} queries"
    yield f"made from {origin} (synthetic labels), with differences from bm25 and their 95 % intervals:"
    yield from table(compared)
    why = "the best of those better than BM25" if system != "bm25" else "no system is significantly better"
    weights = merged_by(config if human else synthetic, system)
    yield f"VERDICT: {system}{weights}, {why}, on {'human' if human else 'synthetic'} labels"
    yield cost(args.main, config, system)
    yield from about_queries(args, config, synthetic, system)
    yield f"report: {Path(paths.at(paths.REPORT, config if human else synthetic), 'index.html').absolute().as_uri()}"
    yield f"search: make explore CONFIG={args.main}"
    if config["deploy"] == {}:
        yield f"deploy: nothing, as search engines can run none of {', '.join(best)}"
    for name, entry in (config["deploy"] or {}).items():
        other = "" if entry["system"] == system else f" ({entry['system']}, not {system})"
        yield f"deploy: {paths.at(paths.DEPLOYMENT, config, deployment=name)}README.md{other}"
    yield f"change: {args.main}, then the same command"


def prepare(args: argparse.Namespace) -> None:
    """Write what is not kept; queries come from headings, or from sentences if headings are few, now or earlier."""
    former = args.synthetic.read_text("utf-8") if args.synthetic.exists() else ""
    if args.kept:
        sys.stdout.write(f"used as edited: {' and '.join(map(str, args.kept))}\n")
    few = "{from: sentences}" in former
    write_configs(args, "sentences" if few else "headings")
    if not few and not (args.kept and former) and not queries_exist(args.synthetic):
        sys.stdout.write(f"fewer than {FEWEST} headings with text below: queries are made from first sentences\n")
        args.synthetic.unlink()
        write_configs(args, "sentences")
    sys.stdout.flush()


def check_compared(path: Path, config: Config, splits: Sequence[str]) -> None:
    """Refuse an experiment that somebody edited so that nothing is compared with BM25."""
    for split in splits:
        names = compared_systems(config, split) if config["evaluation"]["baseline"] == "bm25" else []
        if len(names) < 2 or MEASURE not in config["splits"].get(split, {}).get("measures", ()):
            expected = f"bm25 as the baseline, and another system, measured on {split} by {MEASURE}"
            raise input_error(path, "edits, and no comparison with bm25", expected, "add what is missing")


def run(args: argparse.Namespace) -> int:
    """Write, build, print; return the exit status."""
    check(args)
    prepare(args)
    config, synthetic = load(args.main), load(args.synthetic)
    check_compared(args.main, config, evaluated_splits(config))
    check_compared(args.synthetic, synthetic, ["test"])
    judged = splits_of_people(config)
    # First, because mistakes of people are in these files.
    if judged and not build(args.main, *(paths.at(paths.QRELS, config, split=split) for split in judged)):
        return 1
    if not build(args.synthetic):
        return 1
    # The deployment, which the rest depends on, is not yet chosen.
    if judged and not build(args.main, *comparisons(config)):
        return 1
    compared, human = compared_on(synthetic, "test"), judged_by_people(config)
    best = best_first(human or compared)
    add_deployment(args.main, best)
    if not build(args.main):
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in ("", *report(args, synthetic, compared, human, best))))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if something is wrong."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m workflow.verdict", description=__doc__, formatter_class=form)
    parser.add_argument("--folder", required=True, help="documents")
    parser.add_argument("--queries", help="of people: .txt with one per line, .tsv or .jsonl")
    parser.add_argument("--qrels", help="judgements of these queries")
    parser.add_argument("--model", help="encoder: a folder, or a name on the hub with @COMMIT")
    parser.add_argument("--name", help="of the experiment (default: that of the folder)")
    args = parser.parse_args(argv)
    args.folder = normpath(args.folder)
    args.name = args.name or re.sub("[^a-z0-9]+", "-", Path(args.folder).resolve().name.lower()).strip("-") or "folder"
    args.main, args.synthetic = CONFIGS / f"{args.name}.yaml", CONFIGS / f"{args.name}-synthetic.yaml"
    try:
        return run(args)
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
