"""What planned jobs fetch from elsewhere, and how many pairs re-rankers score; nothing is read but names and counts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from cort.config import paths
from cort.config.collection import BYTES_PER_TOKEN, Endpoint
from cort.config.experiment import Experiment
from cort.config.models import PretrainedBase, Served, Service
from cort.downloads.catalog import load_catalog
from workflow.facts import footer, size_of, stored
from workflow.snakemake_api import Job

# Seconds that a host has to answer.
PATIENCE = 1
GB = 1e9


class Pairs(NamedTuple):
    """Pairs of query and passage that a re-ranker scores on a split: at most `depth` per query; None is unknown."""

    reranker: str
    split: str
    depth: int
    queries: int | None


class Source(NamedTuple):
    """A file or model to fetch; `path` is where a copy is looked for, `size` in bytes, 0 if unknown."""

    url: str
    path: str
    size: int = 0


def forecast(experiment: Experiment, jobs: Sequence[Job]) -> str:
    """Write what jobs score and fetch, with one list of URLs and the paths where copies of them are found."""
    files = {file for job in jobs for file in job.outputs}
    lines = [_pairs(pairs) for pairs in pairs_to_score(experiment, files.__contains__)]
    lines = ["", "Pairs to score:", *lines] if lines else []
    if asked := [*texts_to_send(experiment, files.__contains__), *pairs_to_send(experiment, files.__contains__)]:
        lines += ["", "To ask of the service in OPENAI_BASE_URL, except for what is in `endpoint_cache/`:", *asked]
    of_hub = list(dict.fromkeys(from_hub(experiment, files)))
    if fetched := [*of_hub, *from_ir_datasets(experiment, files), *files_to_fetch(experiment, jobs)]:
        size, known = sum(one.size for one in fetched), "" if all(one.size for one in fetched) else ", some unknown"
        free = shutil.disk_usage(next(place for place in (Path(paths.ROOT), Path()) if place.exists())).free
        lines += ["", f"To fetch: {size / GB:,.1f} GB{known}; free on this disk: {free / GB:,.1f} GB"]
        lines += [f"  {one.url} -> {one.path}{f' ({one.size / GB:,.3f} GB)' * bool(one.size)}" for one in fetched]
        lines += _reach(next((one.url for one in fetched if "://" in one.url), None))
    return "".join(f"{line}\n" for line in lines)


def _reach(url: str | None) -> Iterator[str]:
    """Say whether the first host answers."""
    if url:
        host = urlsplit(url)
        if answers(f"{host.scheme}://{host.netloc}"):
            yield f"{host.netloc} answers."
        else:
            models = "models as `hf download NAME --revision COMMIT` stores them"
            yield f"{host.netloc} does not answer: fetch them elsewhere, {models}, and put each at its path."


def _pairs(pairs: Pairs) -> str:
    queries = f"{pairs.queries:,} queries" if pairs.queries is not None else f"the queries of {pairs.split}"
    total = "" if pairs.queries is None else f" = {pairs.depth * pairs.queries:,}"
    return f"  {pairs.reranker} on {pairs.split}: at most {pairs.depth:,} x {queries}{total}"


def pairs_to_score(experiment: Experiment, to_make: Callable[[str], bool]) -> list[Pairs]:
    """List the pairs of each re-ranker on each split whose scores are to be made.

    Of each run, it scores as many candidates as the systems with this run ask for at most.
    """
    found = []
    for reranker in experiment.rerankers:
        for split in experiment.splits:
            candidates = experiment.reranked_by(reranker, split)
            if candidates and to_make(experiment.at(paths.SCORES, reranker=reranker, split=split)):
                users = [one for one in experiment.systems.values() if one.reranker() == reranker]
                depths = [max(user.candidates() for user in users if run in user.parts()) for run in candidates]
                found.append(Pairs(reranker, split, sum(depths), count_queries(experiment, split)))
    return found


def texts_to_send(experiment: Experiment, to_make: Callable[[str], bool]) -> Iterator[str]:
    """Say of which texts encoders behind an API are asked for vectors, and the limits of each job."""
    for name in experiment.used_models("encoders"):
        if not isinstance(encoder := experiment.encoders[name], Service):
            continue
        vectors = [("the passages", paths.PASSAGES, "", experiment.vectors("encoders", name))]
        for split in experiment.with_model("encoders", name):
            made = experiment.at(paths.QUERY_VECTORS, encoder=name, split=split)
            vectors.append((f"the queries of {split}", paths.QUERIES, split, [made]))
        for about, table, split, outputs in vectors:
            if any(map(to_make, outputs)):
                size = _size(experiment.at(table, split=split))
                counts = f": {size[0]:,} texts, about {size[1]:,} tokens" if size else ""
                yield f"  {encoder.endpoint} for {about}{counts}; {_limits(experiment)}"


def pairs_to_send(experiment: Experiment, to_make: Callable[[str], bool]) -> Iterator[str]:
    """Say of how many pairs re-rankers behind an API are asked for scores at most, and the limits of each job."""
    limits = experiment.root.endpoint or Endpoint()
    for pairs in pairs_to_score(experiment, to_make):
        if not isinstance(reranker := experiment.rerankers[pairs.reranker], Served):
            continue
        queries, passages = (
            _size(experiment.at(table, split=pairs.split)) for table in (paths.QUERIES, paths.PASSAGES)
        )
        counts = ""
        if queries and passages:
            number = pairs.depth * queries[0]
            tokens = pairs.depth * queries[1] + number * passages[1] // max(passages[0], 1)
            requests = max(
                queries[0] * -(-pairs.depth // limits.texts_per_request), tokens // limits.tokens_per_request
            )
            counts = f": at most {number:,} pairs, about {requests:,} requests, {tokens:,} tokens"
        yield f"  {reranker.endpoint} for the candidates of {pairs.split}{counts}; {_limits(experiment)}"


def _limits(experiment: Experiment) -> str:
    limits = experiment.root.endpoint or Endpoint()
    return f"at most {limits.max_requests:,} requests and {limits.max_tokens:,} tokens per job (`endpoint`)"


def _size(table: str) -> tuple[int, int] | None:
    """Count the texts of a table and estimate their tokens, as limits do, if it is there and whole."""
    found = stored(table)
    return found and (found[0], found[1] // BYTES_PER_TOKEN)


def count_queries(experiment: Experiment, split: str) -> int | None:
    """Count the queries of a split, if its file is there and whole."""
    found = footer(experiment.at(paths.QUERIES, split=split))
    return found and int(found.num_rows)


def files_to_fetch(experiment: Experiment, jobs: Sequence[Job]) -> list[Source]:
    """List the public files and archives of which there is no copy."""
    catalog, folder = load_catalog(), experiment.root.downloads.folder
    found = {}
    for job in (job for job in jobs if job.rule == "download"):
        name = f"{job.wildcards['source']}/{job.wildcards['file']}"
        source, kept = catalog.source_of(name), Path(paths.KEPT, catalog.source_of(name).name)
        own = [file for one in (catalog.find(name), source) for file in one.copies_in(Path(folder) if folder else None)]
        if not own and not kept.exists():
            found[source.name] = Source(source.urls[0], str(kept), source.about)
    return list(found.values())


def from_hub(experiment: Experiment, files: set[str]) -> Iterator[Source]:
    """Yield the models and collections of the hub that these files are made from, unless they are in its cache."""
    from huggingface_hub import constants

    def source(kind: str, name: str, revision: str, size: int = 0) -> Iterator[Source]:
        ref, _, commit = revision.partition("@")
        cached = Path(constants.HF_HUB_CACHE, f"{kind}--{name.replace('/', '--')}")
        if not any((cached / "snapshots").glob(f"{commit or ref}*")):
            url = f"{constants.ENDPOINT}/{'datasets/' * (kind == 'datasets')}{name}/tree/{ref}"
            yield Source(url, str(cached), size)

    for name, model in experiment.base_models.items():
        folder = experiment.at(paths.BASE_MODEL, base_model=name)
        if not isinstance(model, PretrainedBase) or not model.revision or Path(model.pretrained).is_dir():
            continue
        if any(file.startswith(folder) for file in files):
            known = size_of(model)
            yield from source("models", model.pretrained, model.revision, 4 * known.weights if known else 0)
    collection = getattr(experiment.collection, "hf", "")
    name, _, revision = collection.partition("#")[0].partition("@")
    if revision and not Path(collection).exists() and experiment.at(paths.PASSAGES) in files:
        yield from source("datasets", name, revision)


def from_ir_datasets(experiment: Experiment, files: set[str]) -> Iterator[Source]:
    """Yield the collection of ir_datasets, of which only that library knows the files."""
    name = getattr(experiment.collection, "irds", "")
    if name and experiment.at(paths.PASSAGES) in files:
        home = Path(os.environ.get("IR_DATASETS_HOME") or Path.home() / ".ir_datasets")
        if not (home / name.partition("/")[0]).exists():
            yield Source(f"ir_datasets {name}", str(home))


def answers(url: str) -> bool:
    """Tell whether a host answers one request."""
    import requests

    try:
        requests.head(url, timeout=PATIENCE)
    except requests.RequestException:
        return False
    return True
