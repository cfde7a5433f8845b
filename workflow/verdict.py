"""From a folder of documents to a verdict: which system ranks them best, by how much, in which memory and time.

Writes two experiments into `config/verdict`, builds them, and prints what they show. `NAME-synthetic.yaml` has queries
made from the headings of the documents, or from first sentences if there are few headings; it compares systems and
tunes weights. `NAME.yaml` has all words of the documents and the real user queries; it serves searches and is deployed.
Each call writes both anew for what it names, also what is deployed, unless somebody has edited one of them: then both
are kept as they are.

Of several sizes of passages (--words), each has two experiments of its own. The first gets the whole verdict; the
others are measured on the same labels, and a table compares all of them on the queries that they share.

Usage: python -m workflow.verdict --folder docs [--queries questions.txt [--qrels judgements.tsv]] [--model FOLDER]
            [--words "100 200 400"]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from os.path import normpath, realpath
from pathlib import Path
from typing import NamedTuple, get_args

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cort.config import paths
from cort.config.collection import Generated, Lengths, Passages
from cort.config.deployment import deployed_parts
from cort.config.entries import BM25, leaves
from cort.config.evaluation import Target
from cort.config.experiment import Experiment
from cort.config.fields import NAME
from cort.config.lexical import FixedIndex, Language
from cort.config.load import ConfigError, load
from cort.config.stored import read_experiment
from cort.evaluation.comparisons import MIN_QUERIES
from cort.formats.artifacts import read_artifact, read_csv
from cort.formats.runs import read_run
from cort.formats.tables import QUERIES, count_rows, read_queries
from cort.formats.yaml_files import read_yaml
from cort.generate import DROPPED, choose, passages_with_twins, queries_of_split, read_candidates
from cort.reporting.costs import stored_bytes
from cort.reporting.format import count, difference, fixed, percent
from cort.reporting.results import Latencies
from cort.retrieval.weights import TunedWeights
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.files import write_text
from cort.runtime.sections import default_of
from workflow.compared import Compared, disagreement, read_compared
from workflow.inputs import reported
from workflow.language import language_of
from workflow.running import alone
from workflow.sizes import sizes_of, sizes_table

CONFIGS = Path("config/verdict")
# Variables of `make` that name no file.
FOLDERS = {"FOLDER": "a folder of documents", "MODEL": "a folder, or NAME@COMMIT of a model on the hub"}
STATIC = "models/wordllama"
# nDCG@10 on human labels, with weights that were tuned on synthetic labels, on the test queries, or are equal.
STUDY = Path(__file__).with_name("synthetic_labels.csv")
# Generated queries that each split needs: systems are not worth comparing on fewer.
FEWEST = 50
# Generated queries that are printed.
SHOWN = 3
# Share of queries without results of BM25 above which a language is probably wrong.
UNANSWERED = 0.2
# The second line of each config; a digest of all other lines follows.
UNEDITED = "# The next call writes this file anew, unless you edit it. docs/reference.md explains every key. "


@dataclass(frozen=True)
class Request:
    """What a call names."""

    folder: str
    queries: str | None
    qrels: str | None
    model: str | None
    base: str
    language: str | None = None
    words: int | None = None

    @property
    def name(self) -> str:
        """The name of the experiment, after its size of passages if one is named."""
        return self.base if self.words is None else f"{self.base}-{self.words}-words"

    @property
    def passages(self) -> str:
        """How documents are divided, as YAML: a third of a passage may be that of the one before."""
        words = self.words or default_of(Passages, "words")
        return f"{{words: {words}, overlap: {words // 3}}}"

    @property
    def main(self) -> Path:
        """The config that serves searches."""
        return CONFIGS / f"{self.name}.yaml"

    @property
    def synthetic(self) -> Path:
        """The config that compares systems on generated queries."""
        return CONFIGS / f"{self.name}-synthetic.yaml"

    def inputs(self) -> dict[str, str]:
        """Return the files that are named, and a model on the hub, by the variables of `make`."""
        values = {"FOLDER": self.folder, "QUERIES": self.queries, "QRELS": self.qrels, "MODEL": self.model}
        return {key: value for key, value in values.items() if value}

    def variables(self) -> dict[str, str]:
        """Return the variables of `make` that repeat the call."""
        others = {"NAME": self.base, "LANGUAGE": self.language, "WORDS": self.words}
        return self.inputs() | {key: str(value) for key, value in others.items() if value is not None}


class Labels(NamedTuple):
    """What decided: labels of people or made ones, and their split."""

    human: bool
    split: str


def name_after(path: str, otherwise: str) -> str:
    """Make a name of the last part of a path."""
    return re.sub("[^a-z0-9]+", "-", Path(path).name.lower()).strip("-") or otherwise


def encoders_of(model: str | None) -> dict[str, tuple[str, str]]:
    """Return the encoders by name: folder or name on the hub, and revision, which may be empty."""
    encoders = {"static": (STATIC, "")}
    if model:
        pretrained, _, revision = model.partition("@")
        name = name_after(pretrained, "model")
        # Each encoder is a system, beside those that every experiment has.
        encoders[f"{name}-model" if name in ("bm25", "static") else name] = (pretrained, revision)
    return encoders


def sign(text: str) -> str:
    """Replace the second line of a config by one with a digest of the others, by which an edited file is known."""
    lines = text.split("\n")
    digest = sha256("\n".join(lines[:1] + lines[2:]).encode()).hexdigest()[:16]
    return "\n".join([lines[0], UNEDITED + digest, *lines[2:]])


def is_edited(path: Path) -> bool:
    """Tell whether a config exists that somebody has edited."""
    return path.exists() and sign(text := path.read_text("utf-8")) != text


def write_configs(request: Request, origin: str, kept: Sequence[Path], deployed: str | None = None) -> None:
    """Write both experiments, except those that are kept.

    :param origin: what queries are made from.
    :param deployed: a system, once the best is known.
    """
    templates = Environment(  # noqa: S701 - YAML, in which texts of users are `quoted`
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["quoted"] = partial(json.dumps, ensure_ascii=False)
    title, encoders = Path(request.folder).resolve().name, encoders_of(request.model)
    language = request.language or default_of(FixedIndex, "language")
    for path, name in ((request.main, "verdict"), (request.synthetic, "verdict-synthetic")):
        if path in kept:
            continue
        values = {"request": request, "title": title, "encoders": encoders, "origin": origin, "paths": paths}
        values |= {"language": language, "deployed": deployed, "targets": get_args(Target)}
        write_text(path, sign(templates.get_template(f"{name}.yaml.jinja").render(values)))


def check(request: Request) -> None:
    """Refuse missing files, judgements without queries, and a name that is wrong or has results of other documents."""
    for key, path in request.inputs().items():
        exists = Path(path).is_dir() if key in FOLDERS else Path(path).is_file()
        if not exists and not (key == "MODEL" and "@" in path):
            raise input_error(key, path, FOLDERS.get(key, "a file"), "fix the path")
    if request.qrels and not request.queries:
        raise input_error("QRELS", request.qrels, "QUERIES, too", "name the queries that are judged")
    if not re.match(NAME, request.name):
        raise input_error("NAME", request.name, "letters, digits and _ . -, a letter or digit first", "set NAME=")
    stored = Path(paths.EXPERIMENT.format(dataset=request.name))
    if stored.exists():
        folder = read_yaml(stored)["collection"].get("folder")
        if not folder or realpath(folder) != realpath(request.folder):
            found, fix = f"results of {folder or 'another collection'}", f"set NAME=, or remove {stored.parent}"
            raise input_error(stored, found, f"those of {request.folder}", fix)


def check_edited(request: Request, edited: Path) -> None:
    """Refuse a call that names something that the kept experiment lacks.

    :param edited: a config that somebody has edited.
    """
    values = (
        one for _, value in leaves(load(request.main).config) for one in (value if isinstance(value, list) else [value])
    )
    known = {realpath(value) for value in values if isinstance(value, str)}
    for key, value in request.inputs().items():
        if realpath(value.partition("@")[0] if key == "MODEL" else value) not in known:
            expected = f"{key}={value} in {request.main}, as edited files are kept"
            raise input_error(edited, "edits", expected, "write it there, set NAME=, or remove the edited file")
    if request.language not in (None, known_language := load(request.main).lexical[BM25].language):
        found, expected = f"LANGUAGE={request.language}", f"{known_language}, as edited files are kept"
        raise input_error(request.main, found, expected, "change it there, set NAME=, or remove the edited file")


def build(config: Path, *targets: str) -> None:
    """Build an experiment, or some files of it.

    :raises CalledProcessError: if the build fails.
    """
    command = [sys.executable, "-m", "workflow.build", "--configfile", str(config), "--", *targets]
    received: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    # Ctrl-C comes to the build, too, which ends in order. A background job of a shell ignores it.
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        done = subprocess.run(command, check=False)
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        # The build has said how to go on.
        sys.exit(128 + signal.SIGINT)
    done.check_returncode()


def with_language(request: Request) -> Request:
    """Add the language of the documents, unless a person named one or edited the config; say which it is, and why."""
    if request.language or (request.main.exists() and is_edited(request.main)):
        return request
    spoken = language_of(request.folder)
    seen = f"{spoken.number} of {spoken.of} documents seem to be in {spoken.code}" if spoken.code else "no text"
    known = spoken.code in get_args(Language)
    language = spoken.code if known else default_of(FixedIndex, "language")
    missing = "" if known or not spoken.code else ", which has no analyzer"
    sys.stdout.write(f"language {language}: {seen}{missing}; LANGUAGE=CODE sets another\n")
    return replace(request, language=language)


def prepare(request: Request, origin: str | None = None) -> Callable[[str | None], None]:
    """Write both experiments, or keep what somebody edited; queries come from sentences if headings are few.

    :param origin: what queries are made from, if that is known.
    :returns: writes them again, with a system to deploy.
    """
    existing = [path for path in (request.main, request.synthetic) if path.exists()]
    edited = [path for path in existing if is_edited(path)]
    kept = existing if edited else []
    if request.main in kept:
        check_edited(request, edited[0])
    if edited:
        sys.stdout.write(f"used as edited: {' and '.join(map(str, edited))}\n")
    is_known = origin is not None or request.synthetic in kept
    # An earlier call may have found few headings.
    origin = origin or origin_of(request.synthetic) or "headings"
    write_configs(request, origin, kept)
    if origin == "headings" and not is_known and count_headings(request.synthetic) < FEWEST:
        sys.stdout.write(f"fewer than {FEWEST} headings with text below: queries are made from first sentences\n")
        write_configs(request, origin := "sentences", kept)
    sys.stdout.flush()
    return partial(write_configs, request, origin, kept)


def origin_of(synthetic: Path) -> str | None:
    """Return what queries of a config are made from, if it exists."""
    splits = read_yaml(synthetic).get("splits", {}) if synthetic.exists() else {}
    return next((split["generate"].get("from") for split in splits.values() if "generate" in split), None)


def count_headings(synthetic: Path) -> int:
    """Count the queries that headings give for the split that gets fewest."""
    experiment = load(synthetic)
    build(synthetic, file := experiment.at(paths.CANDIDATES))
    candidates, splits = read_candidates(file), experiment.splits_of_class(Generated)
    twins = passages_with_twins(experiment.at(paths.PASSAGES), experiment.collection.aggregate)
    of_splits = (queries_of_split(candidates, name, splits, experiment.root.seed) for name in splits)
    return min(len(choose(queries, Lengths(), twins)[0]) for queries in of_splits)


def about_generated(synthetic: Experiment, split: str) -> str:
    """Show some generated queries of a split, and the share of those left out, by reason."""
    texts = [*read_queries(synthetic.at(paths.QUERIES, split=split)).values()]
    shown = [shorten(texts[(2 * place + 1) * len(texts) // (2 * SHOWN)]) for place in range(min(SHOWN, len(texts)))]
    numbers: dict[str, int] = read_artifact(synthetic.at(paths.GENERATED_COUNTS, split=split), dict[str, int])
    whole, what = sum(numbers.values()), synthetic.generated_from
    left = [
        f"{name.removeprefix(DROPPED)} {percent(number / whole)}"
        for name, number in numbers.items()
        if number and name.startswith(DROPPED)
    ]
    return f"such as {', '.join(shown)}; left out of {count(whole)} {what}: {', '.join(left) or 'none'}"


def best_for_engines(request: Request, compared: Compared) -> str | None:
    """Choose the best system that engines can run."""
    experiment = load(request.main)
    known = (name for name in compared.best_first() if name in experiment.systems and deployed_parts(experiment, name))
    return next(known, None)


def cost(path: Path, experiment: Experiment, system: str) -> str:
    """Describe the memory and time of a system, as far as the experiment has and measures it."""
    if system not in experiment.systems:
        return f"{path} does not have {system}: add it there to search with it"
    stored = read_experiment(experiment.at(paths.EXPERIMENT))
    index = f"{math.ceil((stored_bytes(stored, system) or 0) / 1e6):,} MB of index"
    latency = experiment.root.latency
    if not latency or system not in latency.systems:
        return f"{index}; add {system} to latency.systems of {path} to measure its time"
    measured: Latencies = read_artifact(experiment.at(paths.LATENCY, split=latency.split), Latencies)
    times = next(row.total for row in measured.rows if row.system == system and row.batch == 1)
    return f"{index}; {times['p50']:.1f} ms per query here, 95 % under {times['p95']:.1f} ms"


def doubts() -> str:
    """Say how often and by how much synthetic labels misled where people have judged (docs/documents.md)."""
    rows = [{key: float(row[key]) for key in ("bm25", "synthetic", "test")} for row in read_csv(STUDY)]
    worse = [row["bm25"] - row["synthetic"] for row in rows if row["synthetic"] < row["bm25"]]
    lost = [row["test"] - row["synthetic"] for row in rows]
    often = f"{len(worse)} of {len(rows)} fusions tuned on them were worse than BM25, by up to {fixed(max(worse))}"
    below = f"{fixed(sum(lost) / len(lost))} below the best weights on average"
    return f"how far to trust synthetic labels: {often}; {below} (docs/documents.md)"


def weights_of(experiment: Experiment, system: str) -> str:
    """Name the tuned weights of a system, if it has any."""
    one = experiment.systems[system]
    for file in one.tuned_files() if one.parts() else ():
        tuned: TunedWeights = read_artifact(file, TunedWeights)
        return f" ({', '.join(f'{part} {weight:g}' for part, weight in zip(tuned.parts, tuned.weights, strict=True))})"
    return ""


def about_queries(
    request: Request, experiment: Experiment, synthetic: Experiment, system: str, chosen_by: Compared
) -> Iterator[str]:
    """Say what real user queries show, besides the verdict; if there are none, whether BM25 answers generated ones."""
    compared = {one.split: one for one in read_compared(experiment)}
    people = [split for split in experiment.ranked_splits if split != "sample"]
    for split in people:
        if (found := compared.get(split)) == chosen_by:
            pass
        elif found:
            row = found.rows.get(system) or max(found.rows.values(), key=lambda row: row.mean)
            about = f"{found.labels} labels, {found.measure} on {found.queries} judged queries"
            yield f"{about}: {row.system} {fixed(row.mean)}  {difference(row)}  {row.verdict}"
        elif not experiment.is_judged(split):
            count = count_rows(experiment.at(paths.QUERIES, split=split), QUERIES)
            judging = f'make explore CONFIG={request.main} OPTIONS="--split {split} --judgements judgements.jsonl"'
            yield f"{count} user queries without judgements; to judge results: {judging}"
        yield from unanswered(experiment, split)
    if not people:
        yield from unanswered(synthetic, synthetic.evaluated_splits[0])


def unanswered(experiment: Experiment, split: str) -> Iterator[str]:
    """Ask for the language if BM25 finds nothing for many queries."""
    if "bm25" not in experiment.systems:
        return
    count = count_rows(experiment.at(paths.QUERIES, split=split), QUERIES)
    missing = count - len(read_run(experiment.run(split, "bm25")))
    if missing > UNANSWERED * count:
        yield f"BM25 finds nothing for {missing} of {count} queries: is lexical.bm25.language right?"


def report(request: Request, synthetic: Experiment, compared: Compared, chosen_by: Compared) -> Iterator[str]:
    """Write the verdict, at most 16 lines.

    :param compared: what the generated queries show.
    :param chosen_by: the same, or what queries show that people have judged.
    """
    experiment, best = load(request.main), chosen_by.best_first()
    system, judged = best[0], chosen_by is not compared
    whole = experiment if judged else synthetic
    counts = json.loads(Path(experiment.at(paths.IMPORT_COUNTS)).read_text("utf-8"))
    language = experiment.config["lexical"]["bm25"]["language"]
    yield f"{counts['documents']:,} documents, {counts['passages']:,} passages, language {language}"
    made = f"made from {synthetic.generated_from} (synthetic labels)"
    about = "judged queries (human labels)" if judged else f"queries {made}"
    yield f"{chosen_by.measure} on {count(chosen_by.queries)} {about}; {chosen_by.legend()}:"
    yield from chosen_by.table()
    better = f"the best of those better than {'BM25' if chosen_by.baseline == 'bm25' else chosen_by.baseline}"
    why = better if len(best) > 1 else "no system is significantly better"
    yield f"VERDICT: {system}{weights_of(whole, system)}, {why}, on {chosen_by.labels} labels"
    if judged:
        yield f"{compared.measure} on {count(compared.queries)} queries {made}: {compared.short()}"
        yield from disagreement(chosen_by, compared)
    else:
        yield about_generated(synthetic, compared.split)
        yield doubts()
    yield cost(request.main, experiment, system)
    yield from about_queries(request, experiment, synthetic, system, chosen_by)
    yield f"report: {Path(whole.at(paths.REPORT), 'index.html').absolute().as_uri()}"
    yield f"search: make explore CONFIG={request.main}; to change it, edit that file and repeat the command"
    if not experiment.root.deploy:
        yield f"deploy: nothing, as search engines can run none of {', '.join(best)}"
    for name, entry in experiment.root.deploy.items():
        other = "" if entry.system == system else f" ({entry.system}, not {system})"
        yield f"deploy: {experiment.at(paths.DEPLOYMENT, deployment=name)}README.md{other}"


def run(request: Request) -> Labels:
    """Write, build, print.

    :raises CalledProcessError: if a build fails.
    """
    write = prepare(request)
    experiment, synthetic = load(request.main), load(request.synthetic)
    if not reported(synthetic, "comparisons"):
        expected = f"{synthetic.root.evaluation.baseline}, another system and a judged split"
        raise input_error(request.synthetic, "nothing to compare", expected, "add what is missing")
    human = [split for split in experiment.evaluated_splits if experiment.labels_of(split) == "human"]
    # First, because users' mistakes are in these files.
    if human:
        build(request.main, *(experiment.at(paths.QRELS, split=split) for split in human))
    build(request.synthetic)
    if human:
        build(request.main, *reported(experiment, "comparisons"))
    compared = read_compared(synthetic)[0]
    # Human labels say more than synthetic ones.
    enough = (one for one in read_compared(experiment) if one.labels == "human" and one.queries >= MIN_QUERIES)
    chosen_by = next(enough, compared)
    write(best_for_engines(request, chosen_by))
    build(request.main)
    lines = report(request, synthetic, compared, chosen_by)
    sys.stdout.write("".join(f"{line}\n" for line in ("", *lines)))
    return Labels(chosen_by is not compared, chosen_by.split)


def measure(request: Request, labels: Labels) -> None:
    """Build what is measured at a size of passages; weights are tuned on made labels."""
    for path in (request.synthetic, request.main)[: 1 + labels.human]:
        build(path, *reported(load(path), "comparisons"))


def run_all(requests: Sequence[Request]) -> None:
    """Give the verdict of the first size of passages, and compare it with the others, if there are any.

    :raises CalledProcessError: if a build fails.
    """
    with ExitStack() as held:
        for request in requests:
            check(request)
            held.enter_context(alone(CONFIGS / f".{request.name}.lock", f"a verdict of {request.name}"))
        first = with_language(requests[0])
        labels = run(first)
        if len(requests) == 1:
            return
        for request in requests[1:]:
            prepare(replace(request, language=first.language), origin_of(first.synthetic))
            measure(request, labels)
        sizes = {str(one.words): load(one.main if labels.human else one.synthetic) for one in requests}
        sys.stdout.write("".join(f"{line}\n" for line in ("", *sizes_table(sizes, labels.split))))


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if something is wrong."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m workflow.verdict", description=__doc__, formatter_class=form)
    parser.add_argument("--folder", required=True, help="documents", type=normpath)
    parser.add_argument("--queries", help="real user queries: .txt with one per line, .tsv or .jsonl")
    parser.add_argument("--qrels", help="judgements of these queries")
    parser.add_argument("--model", help="encoder: a folder, or a name on the hub with @COMMIT")
    parser.add_argument("--language", choices=get_args(Language), help="of the documents (default: what most are in)")
    parser.add_argument("--words", help="sizes of passages; results are named after them")
    parser.add_argument("--name", dest="base", help="of the experiment (default: that of the folder)")
    args = parser.parse_args(argv)
    args.base = args.base or name_after(realpath(args.folder), "folder")
    try:
        words = [None] if args.words is None else sizes_of(args.words)
        run_all([Request(**{**vars(args), "words": number}) for number in words])
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except subprocess.CalledProcessError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
