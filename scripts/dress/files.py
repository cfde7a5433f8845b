"""Every file of the catalogue in small: same names, archives and layouts; and the catalogue that says so."""

import gzip
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cort.downloads.catalog import Catalog, PublicFile
from cort.system.errors import input_error
from scripts.dress import sources
from scripts.dress.archives import archive_of, gzip_of, lines_of
from scripts.dress.sample import PASSAGES, SEED, Judgement, Sample, Texts, sample_msmarco, sample_nfcorpus

CANDIDATES, TRIPLES = 1_000, 500


def contents_of(catalog: Catalog, data: Path) -> dict[str, bytes]:
    """Make every file of the catalogue, archives of their members.

    :raises InputError: names a file that nobody has said how to make small.
    """
    sample = sample_msmarco(data)
    makers = {**_msmarco(sample), **_nfcorpus(sample_nfcorpus(data))}
    makers |= {**sources.predictions(sample), **sources.trec_car(sample)}
    found = dict[str, bytes]()
    for file in catalog.files.values():
        if file.name not in catalog.archives:
            if file.name not in makers:
                fix = "say in scripts/dress/files.py how it is made small"
                raise input_error(file.name, "a file without a small one", "one for each file of the catalogue", fix)
            found[file.name] = makers[file.name]()
    for name in sorted(catalog.archives):
        members = {str(file.member): found[file.name] for file in catalog.files.values() if file.archive == name}
        found[name] = archive_of(name, members)
    return found


def small_catalog(catalog: Catalog, contents: Mapping[str, bytes], address: str, broken: str) -> dict[str, Any]:
    """Describe the small files as the catalogue does the large ones; the first mirror of each fails.

    :param address, broken: of the server, and of the part of it that fails.
    """
    entries = dict[str, Any]()
    for file in catalog.files.values():
        entry: dict[str, Any] = {"archive": file.archive, "member": file.member} if file.archive else {}
        if file.urls:
            entry["urls"] = [f"{broken}/{file.name}", *(f"{address}/{path_of(url)}" for url in file.urls)]
        entries[file.name] = entry | facts(file, contents[file.name])
    return {"headers": {"127.0.0.1": {"X-Rehearsal": "small"}}, "files": entries}


def facts(file: PublicFile, content: bytes) -> dict[str, Any]:
    """State of a small file what the catalogue states of the large one."""
    text = gzip.decompress(content) if file.name.endswith(".gz") and file.lines else content
    values = {
        "bytes": len(content),
        "size": len(content),
        "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
        "lines": text.count(b"\n"),
        # A bound, which plans alone read.
        "records": min(file.records or 0, PASSAGES),
        "no_checksum": file.no_checksum,
    }
    return {key: value for key, value in values.items() if getattr(file, key) is not None}


def path_of(url: str) -> str:
    """Path on this server of what has a URL elsewhere."""
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path}"


def _msmarco(sample: Sample) -> dict[str, Callable[[], bytes]]:
    queries, judgements = sample.queries, sample.judgements
    candidates = _candidates(sample)
    dev = {**queries["dev"], **queries["devsmall"]}
    tracks = {
        f"trec-dl/{kind}.20{year}.{suffix}": maker
        for year, second in (("19", "Q0"), ("20", "0"))
        for kind, suffix, maker in (
            ("queries", "tsv.gz", lambda name=f"dl{year}": gzip_of(_pairs(queries[name]))),
            ("qrels", "txt", lambda name=f"dl{year}", second=second: _qrels(judgements[name], " ", second)),
        )
    }
    return {
        "msmarco/collection.tsv": lambda: _pairs(sample.passages),
        "msmarco/queries.train.tsv": lambda: _pairs(queries["train"]),
        "msmarco/queries.dev.tsv": lambda: _pairs(dev),
        "msmarco/queries.eval.tsv": lambda: _pairs(queries["evalsmall"]),
        "msmarco/queries.dev.small.tsv": lambda: _pairs(queries["devsmall"]),
        "msmarco/queries.eval.small.tsv": lambda: _pairs(queries["evalsmall"]),
        "msmarco/qrels.dev.small.tsv": lambda: _qrels(judgements["devsmall"]),
        "msmarco/qrels.train.tsv": lambda: _qrels(judgements["train"]),
        "msmarco/qrels.dev.tsv": lambda: _qrels([*judgements["dev"], *judgements["devsmall"]]),
        "msmarco/top1000.dev.tsv": lambda: lines_of(candidates),
        "doctttttquery/run.dev.small.tsv": lambda: lines_of(_ranked(candidates)),
        "msmarco/qidpidtriples.train.full.tsv.gz": lambda: gzip_of(lines_of(_triples(sample))),
        "msmarco/qidpidtriples.train.full.2.tsv.gz": lambda: gzip_of(lines_of(_triples(sample))),
        "msmarco/triples.train.small.tsv": lambda: lines_of(_with_texts(_triples(sample), sample)),
        "dl-hard/qrels.txt": lambda: _qrels(judgements["dl19"], " "),
        **tracks,
    }


def _nfcorpus(sample: Sample) -> dict[str, Callable[[], bytes]]:
    """Make the files of both collections of BEIR; SciFact's are NFCorpus's under its name."""

    def beir(names: Iterable[str]) -> dict[str, Callable[[], bytes]]:
        texts = {f"PLAIN-{query}": text for name in names for query, text in sample.queries[name].items()}
        judged = {name: (lambda name=name: _beir_qrels(sample.judgements[name])) for name in names}
        corpus = {f"MED-{number}": text for number, text in sample.passages.items()}
        return {
            "corpus.jsonl": lambda: _jsonl(_document(number, text) for number, text in corpus.items()),
            "queries.jsonl": lambda: _jsonl(
                {"_id": number, "text": text, "metadata": {}} for number, text in texts.items()
            ),
            **{f"qrels.{name}.tsv": maker for name, maker in judged.items()},
        }

    sets = {"nfcorpus": beir(("train", "dev", "test")), "scifact": beir(("train", "test"))}
    return {f"{name}/{file}": maker for name, files in sets.items() for file, maker in files.items()}


def _document(number: str, text: str) -> dict[str, Any]:
    title, _, rest = text.partition(". ")
    return {"_id": number, "title": title, "text": rest or text, "metadata": {}}


def _candidates(sample: Sample) -> list[str]:
    """Draw MS MARCO's candidates of each query of dev.small; its relevant passages are among most."""
    generator = random.Random(SEED)  # noqa: S311
    numbers, lines = list(sample.passages), list[str]()
    for query, text in sample.queries["devsmall"].items():
        relevant = [passage for of, passage, _ in sample.judgements["devsmall"] if of == query]
        drawn = dict.fromkeys([*relevant, *generator.sample(numbers, CANDIDATES)])
        chosen = list(drawn)[:CANDIDATES]
        generator.shuffle(chosen)
        lines += [f"{query}\t{passage}\t{text}\t{sample.passages[passage]}" for passage in chosen]
    return lines


def _ranked(candidates: Sequence[str]) -> list[str]:
    """Make a ranking of candidates, in the form of MS MARCO's runs."""
    ranks: Counter[str] = Counter()
    lines = []
    for query, passage, *_ in (line.split("\t") for line in candidates):
        ranks[query] += 1
        lines.append(f"{query}\t{passage}\t{ranks[query]}")
    return lines


def _triples(sample: Sample) -> list[str]:
    generator = random.Random(SEED)  # noqa: S311
    numbers = list(sample.passages)
    rows = [sample.judgements["train"][row % len(sample.judgements["train"])] for row in range(TRIPLES)]
    return sorted(f"{query}\t{passage}\t{generator.choice(numbers)}" for query, passage, _ in rows)


def _with_texts(triples: Iterable[str], sample: Sample) -> Iterator[str]:
    for query, positive, negative in (line.split("\t") for line in triples):
        yield "\t".join((sample.queries["train"][query], sample.passages[positive], sample.passages[negative]))


def _pairs(texts: Texts) -> bytes:
    return lines_of(f"{number}\t{text}" for number, text in texts.items())


def _qrels(rows: Sequence[Judgement], separator: str = "\t", second: str = "0") -> bytes:
    return lines_of(separator.join((query, second, passage, str(grade))) for query, passage, grade in rows)


def _beir_qrels(rows: Sequence[Judgement]) -> bytes:
    lines = (f"PLAIN-{query}\tMED-{passage}\t{grade}" for query, passage, grade in rows)
    return lines_of(["query-id\tcorpus-id\tscore", *lines])


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return lines_of(json.dumps(row) for row in rows)
