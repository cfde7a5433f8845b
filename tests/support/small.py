"""Small copies of all public files and released models, served by mirrors that fail and by a hub of models.

Passages are short ones from a sample of MS MARCO, or made up; each query consists of words of a passage.
"""

import gzip
import hashlib
import itertools
import json
import random
import re
from urllib.parse import quote
from zipfile import ZIP_DEFLATED

import yaml

from cort.base_model import train_tokenizer
from cort.downloads.catalog import CATALOG, load_catalog
from cort.models.settings import EncoderSettings, PairSettings
from tests.support.archives import tar_of, zip_of
from tests.support.common import ROOT
from tests.support.misbehaving_server import Step
from tests.support.released import write_json, write_modules

WORD = re.compile(r"[A-Za-z]{4,}")
PASSAGES, LONGEST, QUERY_WORDS, CANDIDATES = 2_000, 250, 5, 1_000
# Validation samples 1,000 queries of dev that are not in dev.small, and 1,000 of TREC-CAR's last fold.
QUERIES = {"train": 120, "dev": 1_020, "dev.small": 5, "eval": 2, "2019": 3, "2020": 5}
BEIR = {"train": 310, "dev": 30, "test": 30}
SYLLABLES = [consonant + rest for consonant in "bdfgklmnprst" for rest in ("a", "en", "ik", "or", "u")]
PAGE = b"<!DOCTYPE html><html><body>We have moved.</body></html>"


def seeded(seed):
    return random.Random(seed)  # noqa: S311 - texts, not secrets


def passages_of(data):
    """Read passages by id from a folder of samples, or make them up without one."""
    if data:
        lines = (data / "msmarco-sample" / "collection.tsv").read_text("utf-8").splitlines()
        rows = (line.split("\t", 1) for line in lines)
        suitable = (row for row in rows if len(row[1]) < LONGEST and len(WORD.findall(row[1])) > 2 * QUERY_WORDS)
        return dict(itertools.islice(suitable, PASSAGES))
    generator = seeded(42)
    words = ["".join(generator.choices(SYLLABLES, k=generator.randint(2, 4))) for _ in range(3_000)]
    return {str(7 * row): " ".join(generator.choices(words, k=generator.randint(15, 40))) for row in range(PASSAGES)}


def topics_of(passages, count, first):
    """Make queries: (number, text, id of the passage with these words)."""
    generator = seeded(first)
    chosen = generator.sample(list(passages), count)
    return [
        (str(first + row), " ".join(generator.sample(WORD.findall(passages[doc_id]), QUERY_WORDS)), doc_id)
        for row, doc_id in enumerate(chosen)
    ]


def tsv(rows, separator="\t"):
    return "".join(separator.join(map(str, row)) + "\n" for row in rows).encode()


def archive_of(name, members):
    """Pack files into an archive of the type that its name says."""
    if name.endswith(".zip"):
        return zip_of(*members.items(), compression=ZIP_DEFLATED)
    return tar_of(*members.items(), form=name[-2:])


def contents_of(catalog, passages):
    """Make the contents of all files of the catalogue, by name; archives contain their members."""
    counts = enumerate(QUERIES.items())
    topics = {name: topics_of(passages, count, 5_000_000 + 10_000 * row) for row, (name, count) in counts}
    contents = _msmarco(passages, topics) | _predictions(passages) | _beir(passages) | _trec_car(passages, topics)
    # Files that the smoke test has no use for, of larger collections.
    unused = {name for name, file in catalog.files.items() if file.urls} - contents.keys() - catalog.archives
    packed = {name: gzip.compress(tsv([[name]])) for name in unused if name.endswith(".gz")}
    contents |= {name: tsv([[name]]) for name in unused} | packed
    for name in catalog.archives - contents.keys():
        members = {file.member: contents[file.name] for file in catalog.files.values() if file.archive == name}
        contents[name] = archive_of(name, members)
    return contents


def _msmarco(passages, topics):
    generator, ids = seeded(1), list(passages)
    topics = topics | {"dev": topics["dev"] + topics["dev.small"], "eval.small": topics["eval"]}

    def others(relevant, count):
        return generator.sample([doc_id for doc_id in ids if doc_id != relevant], count)

    ranked = [
        (query, text, doc_id)
        for query, text, relevant in topics["dev.small"]
        for doc_id in sorted([relevant, *others(relevant, CANDIDATES - 1)])
    ]
    triples = [(query, text, doc_id, generator.choice(ids)) for query, text, doc_id in sorted(topics["train"] * 4)]
    numbers = gzip.compress(tsv((query, positive, negative) for query, _, positive, negative in triples))
    contents = {
        "msmarco/collection.tsv": tsv(passages.items()),
        "msmarco/top1000.dev.tsv": tsv((query, doc_id, text, passages[doc_id]) for query, text, doc_id in ranked),
        "msmarco/qidpidtriples.train.full.tsv.gz": numbers,
        "msmarco/qidpidtriples.train.full.2.tsv.gz": numbers,
    }
    places = ((query, doc_id, row % CANDIDATES + 1) for row, (query, _, doc_id) in enumerate(ranked))
    contents["doctttttquery/run.dev.small.tsv"] = tsv(places)
    for name in ("train", "dev", "dev.small", "eval", "eval.small"):
        contents[f"msmarco/queries.{name}.tsv"] = tsv(topic[:2] for topic in topics[name])
        contents[f"msmarco/qrels.{name}.tsv"] = tsv((query, 0, doc_id, 1) for query, _, doc_id in topics[name])
    for year, second in (("2019", "Q0"), ("2020", "0")):
        # Some topics of 2020 have no judgements.
        judged = [
            (query, second, doc_id, grade)
            for query, _, relevant in topics[year][:3]
            for grade, doc_id in zip((3, 2, 1, 0), [relevant, *others(relevant, 3)], strict=True)
        ]
        contents[f"trec-dl/queries.{year}.tsv.gz"] = gzip.compress(tsv(topic[:2] for topic in topics[year]))
        contents[f"trec-dl/qrels.{year}.txt"] = contents["dl-hard/qrels.txt"] = tsv(judged, " ")
    return contents


def _predictions(passages):
    """Predict queries, words of their passage, in the layouts of doc2query and docTTTTTquery."""
    generator = seeded(2)
    words = [WORD.findall(text.lower()) for text in passages.values()]
    samples = [tsv([generator.choices(own, k=4) for own in words], " ").splitlines(True) for _ in range(80)]
    lines = tsv(([line.decode().strip() for line in row] for row in zip(*samples[:10], strict=True)), " ")
    part = -(-len(words) // 18)
    members = {
        f"predicted_queries_topk_sample{number:03d}.txt{at // part:03d}-1004000": b"".join(sample[at : at + part])
        for number, sample in enumerate(samples)
        for at in range(0, len(words), part)
    }
    return {
        "doc2query/pred-test_topk10.txt": lines,
        "doc2query/trec-car-pred-test_topk10.tar.gz": archive_of(".gz", {"trec-car-pred-test_topk10.txt": lines}),
        "doctttttquery/predicted_queries_topk_sampling.zip": archive_of(".zip", members),
    }


def _beir(passages):
    """Make NFCorpus and SciFact, here with the same passages and queries."""
    first = dict(itertools.islice(passages.items(), 1_000))
    topics = topics_of(first, sum(BEIR.values()), 1)
    corpus = [{"_id": f"MED-{doc_id}", "title": text[:20], "text": text[20:]} for doc_id, text in first.items()]
    queries = [{"_id": f"PLAIN-{query}", "text": text} for query, text, _ in topics]
    files = {
        "corpus.jsonl": tsv([json.dumps(row)] for row in corpus),
        "queries.jsonl": tsv([json.dumps(row)] for row in queries),
    }
    left = iter(topics)
    for name, count in BEIR.items():
        rows = [(f"PLAIN-{query}", f"MED-{doc_id}", 1) for query, _, doc_id in itertools.islice(left, count)]
        files[f"qrels.{name}.tsv"] = tsv([("query-id", "corpus-id", "score"), *rows])
    return {f"{name}/{file}": content for name in ("nfcorpus", "scifact") for file, content in files.items()}


def car_ids(passages):
    """Number passages as TREC-CAR does its paragraphs: doc_id -> id."""
    return {doc_id: f"{row:040x}" for row, doc_id in enumerate(passages)}


def _trec_car(passages, topics):
    """Make judgements whose topics are a page and two headings."""
    ids = car_ids(passages)
    parts = {f"fold-{number}": topics["train"][number::4] for number in range(4)}
    parts |= {"fold-4": topics["dev"][:1_000], "test": topics["dev"][1_000:]}
    contents = {}
    for name, part in parts.items():
        named = (("enwiki:{}%20{}%20{}/{}/{}".format(*text.split()), ids[doc_id]) for _, text, doc_id in part)
        contents[f"trec-car/{name}.qrels"] = tsv(((topic, 0, doc_id, 1) for topic, doc_id in named), " ")
    return contents


def publish(server, catalog, contents):
    """Serve the files, each with a first mirror that fails in a way of its own; returns their catalogue as YAML."""
    files = {}
    for row, file in enumerate(catalog.files.values()):
        content = contents[file.name]
        text = gzip.decompress(content) if file.lines and file.name.endswith(".gz") else content
        facts = {"bytes": len(content), "size": len(content), "lines": text.count(b"\n"), "records": len(content)}
        facts |= {name: hashlib.new(name, content).hexdigest() for name in ("md5", "sha256")}
        facts |= {name: getattr(file, name) for name in ("archive", "member", "no_checksum")}
        files[file.name] = {name: value for name, value in facts.items() if getattr(file, name) is not None}
        if file.urls:
            half = len(content) // 2
            faults = [
                Step(status=404),
                Step(status=503, headers={"Retry-After": "0"}),
                Step(body=content[:half] + bytes(byte ^ 0x55 for byte in content[half:])),
                Step(body=PAGE, headers={"Content-Type": "text/html"}),
                Step(cut=half + 1),
            ]
            broken = server.serve(f"/broken/{file.name}", content, faults[row % len(faults)])
            files[file.name]["urls"] = [broken, server.serve(f"/files/{file.name}", content)]
    return yaml.safe_dump({"files": files})


# Models: sizes; and for each repository its class and settings, some of which today's libraries do not know.

NARROW = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
# RepBERT has no projection: its dimension is BERT's own.
WIDE = {"hidden_size": 768, "num_hidden_layers": 1, "num_attention_heads": 12, "intermediate_size": 64}
BERT = {"gradient_checkpointing": False, "position_embedding_type": "absolute", "use_cache": True, "pad_token_id": 0}
SCORE = BERT | NARROW | {"num_labels": 1}
ELECTRA = NARROW | {"embedding_size": 32, "summary_activation": "gelu", "summary_type": "first", "pad_token_id": 0}
ALBERT = NARROW | {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}
ALBERT |= {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "hidden_act": "gelu_new", "embedding_size": 16}
ALBERT |= {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "inner_group_num": 1, "num_hidden_groups": 1}
MODELS = {
    "albert/albert-base-v2": ("albert", "AlbertForMaskedLM", ALBERT),
    "google-bert/bert-base-uncased": ("bert", "BertForPreTraining", BERT | WIDE),
    "google-bert/bert-large-uncased": ("bert", "BertForPreTraining", BERT | NARROW),
    "google/electra-large-discriminator": ("electra", "ElectraForPreTraining", ELECTRA),
    "sentence-transformers/all-MiniLM-L6-v2": ("bert", "BertModel", BERT | NARROW),
    "macavaney/deepct": ("bert", "BertForTokenClassification", SCORE),
    "cross-encoder/ms-marco-MiniLM-L6-v2": ("bert", "BertForSequenceClassification", SCORE),
}


def named_models():
    """Read the revision of each model on a hub that the shipped experiments name."""
    text = "".join(path.read_text("utf-8") for path in (ROOT / "config").rglob("*.yaml"))
    return dict(re.findall(r"pretrained: ([\w-]+/[\w.-]+),?\s+revision: ([\w/@]+)", text))


def write_model(folder, name, texts):
    """Draw a model and save it with a tokenizer, its weights under the older names of the repository."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    kind, head, settings = MODELS[name]
    tokenizer = _unigram(texts) if kind == "albert" else train_tokenizer(lambda: iter([texts]), 4_000)
    torch.manual_seed(42)
    config = transformers.AutoConfig.for_model(kind, **settings, vocab_size=tokenizer.get_vocab_size())
    model = getattr(transformers, head)(config)
    for value in model.parameters():
        # Initial ones and zeros, too: a loader puts them in place of weights whose name it does not know.
        value.data.add_(torch.randn_like(value), alpha=0.02)
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    if kind == "bert":
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        weights = {
            re.sub(r"LayerNorm\.\w+$", lambda match: old[match[0]], key): value for key, value in weights.items()
        }
    else:
        weights[f"{kind}.embeddings.position_ids"] = torch.arange(config.max_position_embeddings)[None]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 512})
    if head == "BertModel":
        write_modules(folder, length=256)


def _unigram(texts):
    """Train a tokenizer like ALBERT's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.Unigram())
    plain = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer.normalizer = normalizers.Sequence(plain)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    options = {"vocab_size": 2_000, "special_tokens": special, "unk_token": special[1]}
    trainer = trainers.UnigramTrainer(**options, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    single, pair = "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    framed = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=framed)
    return tokenizer


def serve_model(server, name, revision, folder):
    """Serve a model as a hub does at a revision; the rest of a pull request's abbreviated commit is made up."""
    known = revision.rpartition("@")[2]
    commit = known + hashlib.sha256(known.encode()).hexdigest()[len(known) : 40]
    listed = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        file, content = path.relative_to(folder).as_posix(), path.read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        listed.append({"type": "file", "path": file, "rfilename": file, "size": len(content), "oid": tag})
        step = Step(etag=f'"{tag}"', headers={"X-Repo-Commit": commit})
        server.serve(f"/{name}/resolve/{commit}/{file}", content, step)
    about = {"id": name, "sha": commit, "siblings": listed, "tags": [], "gated": False}
    for known in (quote(revision.partition("@")[0], safe=""), commit):
        server.serve(f"/api/models/{name}/revision/{known}", json.dumps(about).encode())
        server.serve(f"/api/models/{name}/tree/{known}", json.dumps(listed).encode())


def small_world(server, tree, data):
    """Replace the catalogue of a copy of the project by one of small files; serve them, and all models."""
    catalog, passages = load_catalog(CATALOG), passages_of(data)
    (tree / CATALOG.relative_to(ROOT)).write_text(publish(server, catalog, contents_of(catalog, passages)), "utf-8")
    # ir_datasets takes only as many paragraphs as TREC-CAR has.
    (tree / "paragraphs.tsv").write_bytes(tsv(zip(car_ids(passages).values(), passages.values(), strict=True)))
    config = tree / "config" / "trec-car.yaml"
    text = config.read_text("utf-8").replace("collection: {irds: car/v2.0}", "collection: {passages: paragraphs.tsv}")
    config.write_text(text, "utf-8")
    for name, revision in named_models().items():
        write_model(tree.parent / "hub" / name, name, list(passages.values()))
        serve_model(server, name, revision, tree.parent / "hub" / name)


def encoder_settings(pooling, dimension, query_length, passage_length, similarity="angular", **more):
    """Settings of a new encoder."""
    names = ("pooling", "dimension", "query_length", "passage_length", "similarity")
    values = (pooling, dimension, query_length, passage_length, similarity)
    return EncoderSettings(**dict(zip(names, values, strict=True)), **more)


def pair_settings(query_length, max_length, kind="cross_encoder", **more):
    """Settings of a new re-ranker."""
    return PairSettings(query_length=query_length, max_length=max_length, kind=kind, **more)
