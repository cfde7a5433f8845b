"""From a folder of documents to a verdict: which system ranks them best, by how much, in which memory and time.

Writes two experiments, builds them, and prints what they show. `config/NAME-synthetic.yaml` has queries made from the
headings of the documents, or from first sentences if there are few headings; it compares systems and tunes weights.
`config/NAME.yaml` has all words of the documents and the queries of people; it serves searches and is deployed. Both
are used as they are if they exist: edit them, and run the same command again.

Usage: python -m workflow.verdict --folder docs [--queries questions.txt [--qrels judgements.tsv]] [--model FOLDER]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from cort.evaluation.comparisons import MIN_QUERIES, WIN, Comparison, Comparisons
from cort.experiment.checks import ConfigError, load
from cort.experiment.config import with_parts
from cort.formats.artifacts import read_artifact
from cort.formats.runs import read_run
from cort.formats.tables import QUERIES, count_rows
from cort.retrieval.weights import TunedWeights
from cort.settings import paths
from cort.settings.config import Config, is_judged, labels_of, ranked_splits
from cort.settings.evaluation import Target
from cort.system.errors import InputError, input_error
from cort.system.files import write_text
from cort.systems.base import Results
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

MAIN = """\
# Written by `make verdict` for {given}
# Edit this file, and run the same command again. config/README.md explains every key.
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
# Written by `make verdict` for {given}
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


def write_configs(args: argparse.Namespace, origin: str) -> None:
    """Write both experiments, unless they exist."""
    name, encoders = args.name, encoders_of(args.model)
    split = (
        f"sample: {{queries: {paths.IMPORTED_QUERIES.format(dataset=f'{name}-synthetic', split='test')}, sample: 100}}"
    )
    if args.queries:
        qrels = f", qrels: {json.dumps(args.qrels)}" if args.qrels else ""
        split = f"queries: {{queries: {json.dumps(args.queries)}{qrels}}}"
    values: dict[str, Any] = {
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
        if not path.exists():
            write_text(path, text.format(**values, systems=listing(systems), names=", ".join(systems)))


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
    if not NAME.fullmatch(args.name):
        raise input_error("NAME", args.name, "small letters, digits, dots, dashes and _", "set NAME=")
    for path in (args.main, args.synthetic):
        head = path.read_text("utf-8").partition("\n")[0] if path.exists() else ""
        expected = f"# Written by `make verdict` for {given(args)}"
        if head not in ("", expected):
            fix = "set NAME= to write another one, or remove this file"
            raise input_error(path, head or "an empty file", expected, fix, 1)


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


def best_of(compared: Comparisons) -> str:
    """Choose the best system among those that are significantly better than BM25; BM25 if there is none."""
    better = [row for row in compared.against("bm25", MEASURE).values() if row.verdict == WIN]
    return max(better, key=lambda row: (row.mean, row.system)).system if better else "bm25"


def difference(row: Comparison) -> str:
    """Write a difference, its interval and the verdict."""
    return f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}]  {row.verdict}"


def add_deployment(path: Path, system: str) -> None:
    """Fill in the system to deploy, unless the experiment names one."""
    deployment = f"deploy: {{search: {{system: {system}, targets: [{TARGETS}]}}}}"
    write_text(path, re.sub(r"^deploy: \{\}$", deployment, path.read_text("utf-8"), flags=re.MULTILINE))


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


def cost(config: Config, system: str) -> str:
    """Describe the memory and time of a system."""
    results, size = Results(config), 0
    for name in with_parts(config, [system]):
        part = system_of(config, name, results)
        size += sum(
            Path(file).stat().st_size for section, model in part.models() for file in results.vectors(section, model)
        )
        if lexical := part.lexical_index():
            folder = Path(paths.at(paths.LEXICAL_INDEX, config, lexical=lexical)).parent
            size += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    split = config["latency"]["split"]
    rows = json.loads(Path(paths.at(paths.LATENCY, config, split=split)).read_text("utf-8"))["rows"]
    times = next(row["milliseconds"] for row in rows if row["system"] == system and row["batch"] == 1)
    times = times.get("concurrent", times["sequential"])
    return f"{size / 1e6:,.0f} MB of index; {times['p50']:.1f} ms per query here, 95 % under {times['p95']:.1f} ms"


def about_people(args: argparse.Namespace, config: Config, system: str) -> Iterator[str]:
    """Say what the queries of people show."""
    for split in ranked_splits(config):
        count = count_rows(paths.at(paths.QUERIES, config, split=split), QUERIES)
        if is_judged(config, split):
            rows = compared_on(config, split).against("bm25", MEASURE)
            row = rows.get(system) or max(rows.values(), key=lambda row: row.mean)
            yield f"{labels_of(config, split)} labels, {count} queries: {row.system} {row.mean:.3f}  {difference(row)}"
        elif args.queries:
            judging = f"python -m cort.explore --experiment {args.main} --split {split} --judgements judgements.jsonl"
            yield f"{count} queries of people without judgements; to judge results: {judging}"
        found = len(read_run(paths.at(paths.RUN, config, split=split, system="bm25")).query_ids)
        if count - found > UNANSWERED * count:
            yield f"BM25 finds nothing for {count - found} of {count} queries: is lexical.bm25.language right?"


def merged_by(config: Config, system: str) -> str:
    """Name the tuned weights of a system, if it has any."""
    for file in system_of(config, system).tuned_files():
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
    args: argparse.Namespace, synthetic: Config, compared: Comparisons, human: Comparisons | None, system: str
) -> Iterator[str]:
    """Write the verdict, at most 15 lines.

    :param human: comparisons that decided instead of those on synthetic labels.
    """
    config = load(args.main)
    counts = json.loads(Path(paths.at(paths.IMPORT_COUNTS, config)).read_text("utf-8"))
    origin = synthetic["splits"]["test"]["generate"]["from"]
    yield f"{counts['documents']:,} documents, {counts['passages']:,} passages; {MEASURE} on {compared.queries} queries"
    yield f"made from {origin} (synthetic labels), with differences from bm25 and their 95 % intervals:"
    yield from table(compared)
    why = "the best of those better than BM25" if system != "bm25" else "no system is significantly better"
    yield f"VERDICT: {system}{merged_by(config, system)}, {why}, on {'human' if human else 'synthetic'} labels"
    yield cost(config, system)
    yield from about_people(args, config, system)
    yield f"report: {Path(paths.at(paths.REPORT, config if human else synthetic), 'index.html').absolute().as_uri()}"
    yield f"search: make explore CONFIG={args.main}"
    for name in config["deploy"] or ():
        yield f"deploy: {paths.at(paths.DEPLOYMENT, config, deployment=name)}README.md"
    yield f"change: {args.main}, then the same command"


def run(args: argparse.Namespace) -> int:
    """Write, build, print; return the exit status."""
    check(args)
    written = not args.synthetic.exists()
    write_configs(args, "headings")
    if written and not queries_exist(args.synthetic):
        sys.stdout.write(f"fewer than {FEWEST} headings with text below: queries are made from first sentences\n")
        sys.stdout.flush()
        args.synthetic.unlink()
        write_configs(args, "sentences")
    config = load(args.main)
    judged = splits_of_people(config)
    # First, because mistakes of people are in these files.
    if judged and not build(args.main, *(paths.at(paths.QRELS, config, split=split) for split in judged)):
        return 1
    if not build(args.synthetic):
        return 1
    # The deployment, which the rest depends on, is not yet chosen.
    if judged and not build(args.main, *comparisons(config)):
        return 1
    synthetic = load(args.synthetic)
    compared, human = compared_on(synthetic, "test"), judged_by_people(config)
    system = best_of(human or compared)
    add_deployment(args.main, system)
    if not build(args.main):
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in ("", *report(args, synthetic, compared, human, system))))
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
    args.name = args.name or re.sub("[^a-z0-9]+", "-", Path(args.folder).resolve().name.lower()).strip("-") or "folder"
    args.main, args.synthetic = CONFIGS / f"{args.name}.yaml", CONFIGS / f"{args.name}-synthetic.yaml"
    try:
        return run(args)
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
