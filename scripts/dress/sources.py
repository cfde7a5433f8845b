"""Small files of the catalogue that are no tables: predicted queries as published; TREC-CAR's paragraphs and topics.

They are of the passages of the sample of MS MARCO, and their queries are words of a passage each.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from scripts.dress.archives import lines_of, tar_of, zip_of
from scripts.dress.sample import SEED, WORD, Judgement, Sample

Makers = Mapping[str, Callable[[], bytes]]

# Queries of doc2query on a line, and words of one; samples of docTTTTTquery, each in parts of the collection.
BEAMS, WORDS, SAMPLES, PARTS = 10, 4, 80, 18
PARAGRAPHS = ["CAR", [2, []], [["enwiki", "en", "small"], ["made", []]]]
FOLDS, VALIDATION = 5, 1_000


def predictions(sample: Sample) -> Makers:
    """Say how predicted queries are made, of MS MARCO's passages and of TREC-CAR's, which are the same here."""
    texts = list(sample.passages.values())
    lines = lines_of(" ".join(queries) for queries in predict(texts, BEAMS))
    return {
        "doc2query/pred-test_topk10.txt": lambda: lines,
        "doc2query/trec-car-pred-test_topk10.tar.gz": lambda: tar_of({"trec-car-pred-test_topk10.txt": lines}, "gz"),
        "doctttttquery/predicted_queries_topk_sampling.zip": lambda: zip_of(_sampled(texts)),
    }


def predict(texts: Sequence[str], count: int) -> Iterator[list[str]]:
    """Yield as many queries for each text, of its own words."""
    generator = random.Random(SEED)  # noqa: S311 - texts, not secrets
    for text in texts:
        words = WORD.findall(text.lower()) or ["what"]
        yield [" ".join(generator.choices(words, k=WORDS)) for _ in range(count)]


def _sampled(texts: Sequence[str]) -> dict[str, bytes]:
    """Make the members of docTTTTTquery's archive: a file per sample and part, a query of a passage on its line."""
    rows = list(predict(texts, SAMPLES))
    size = -(-len(rows) // PARTS)
    return {
        f"predicted_queries_topk_sample{sample:03d}.txt{part:03d}-1004000": lines_of(
            queries[sample] for queries in rows[part * size : (part + 1) * size]
        )
        for sample in range(SAMPLES)
        for part in range(PARTS)
    }


def trec_car(sample: Sample) -> Makers:
    """Say how TREC-CAR's files are made: passages are paragraphs, queries are a page, a heading and one below it."""
    paragraphs = {passage: f"{row:040x}" for row, passage in enumerate(sample.passages)}
    train, dev = sample.judgements["train"], sample.judgements["dev"]
    texts = {**sample.queries["train"], **sample.queries["dev"]}

    def qrels(rows: Iterable[Judgement]) -> bytes:
        return lines_of(f"{_topic(texts[query])} 0 {paragraphs[passage]} 1" for query, passage, _ in rows)

    # As many of the last fold as config/trec-car.yaml draws.
    folds = {number: train[number :: FOLDS - 1] for number in range(FOLDS - 1)} | {FOLDS - 1: dev[:VALIDATION]}
    return {
        "trec-car/paragraphs.cbor": lambda: _cbor(sample, paragraphs),
        "trec-car/test.qrels": lambda: qrels(dev[VALIDATION:]),
        **{f"trec-car/fold-{number}.qrels": partial(qrels, rows) for number, rows in folds.items()},
    }


def _topic(text: str) -> str:
    page, *headings = text.rsplit(" ", 2)
    return "/".join(["enwiki:" + page.replace(" ", "%20"), *headings])


def _cbor(sample: Sample, ids: Mapping[str, str]) -> bytes:
    """Write an array of no stated length, as TREC-CAR's; the first word of each paragraph is a link."""
    import cbor2

    def paragraph(number: str, text: str) -> bytes:
        first, blank, rest = text.partition(" ")
        link = [1, [0, first, None, f"enwiki:{first}".encode(), first]]
        return cbor2.dumps([0, ids[number].encode(), [link, [0, blank + rest]]])

    bodies = b"".join(paragraph(number, text) for number, text in sample.passages.items())
    return cbor2.dumps(PARAGRAPHS) + b"\x9f" + bodies + b"\xff"
