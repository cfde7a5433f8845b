"""Models as others release them: folders in the layout of sentence-transformers, with random weights."""

import json
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from cort import tokenize
from cort.formats import tables
from cort.formats.shards import Tokens
from cort.models.cross_encoder import CrossEncoder
from cort.models.encoder import load_encoder
from cort.models.tokenizer import fingerprint
from tests.support.common import BERT, write_rows

DISTILBERT = {**dict.fromkeys(BERT), "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
# A text over any limit, an empty one, special tokens spelled out, letters that a filter removes.
STRANGE = ["ba " * 200, "", "[SEP] bako [CLS] rilu", "Bäko — rílu!", "٣ ko; ri", "x"]
OLD = "sentence_transformers.models."
PROMPTS = "config_sentence_transformers.json"


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")


def change_json(path, **changes):
    write_json(path, json.loads(path.read_text("utf-8")) | changes)


def change_weights(path, change):
    """Let a function change the tensors of a file."""
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})


def weights_of(folder):
    """All tensors of a model folder, by file and name."""
    files = [(path.relative_to(folder).as_posix(), load_file(path)) for path in sorted(folder.rglob("*.safetensors"))]
    return {(file, name): tensor for file, tensors in files for name, tensor in tensors.items()}


def without_end(folder):
    """Have tokenizer.json leave the token at the end to `add_eos_token`, as e5-mistral's does."""
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    content["post_processor"] = None
    write_json(folder / "tokenizer.json", content)
    change_json(folder / "tokenizer_config.json", add_eos_token=True)


def write_tokenizer(folder, texts, kind):
    """Train a tokenizer on texts: XLM-R's way of SentencePiece (unigram), or a decoder's with a token at the end."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    if kind == "sentencepiece":
        names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        special = list(names.values())
        options = {"vocab_size": 150, "special_tokens": special, "unk_token": names["unk_token"]}
        trainer = trainers.UnigramTrainer(**options, show_progress=False)
        single, pair, more = "<s> $A </s>", "<s> $A </s> </s> $B </s>", {"sep_token": "</s>", "cls_token": "<s>"}
    else:
        names = {"pad_token": "<|end|>", "eos_token": "<|end|>"}
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        special, alphabet = ["<|end|>"], pre_tokenizers.ByteLevel.alphabet()
        options = {"vocab_size": 300, "special_tokens": special, "initial_alphabet": alphabet}
        trainer = trainers.BpeTrainer(**options, show_progress=False)
        single, pair, more = "$A <|end|>", "$A $B <|end|>", {}
    tokenizer.train_from_iterator(texts, trainer)
    tokens = [(name, tokenizer.token_to_id(name)) for name in special]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=40, **names, **more)
    fast.save_pretrained(folder)
    return fast.pad_token_id, len(fast)


def write_transformer(folder, texts, kind, head="AutoModel", labels=1):
    """Save a new transformer of a kind with a tokenizer of its own."""
    import transformers

    torch.manual_seed(3)
    if kind == "sentencepiece":
        pad, size = write_tokenizer(folder, texts, kind)
        more = {"max_position_embeddings": 42, "type_vocab_size": 1, "num_labels": labels, "initializer_range": 0.3}
        config = transformers.AutoConfig.for_model("xlm-roberta", vocab_size=size, pad_token_id=pad, **BERT, **more)
    else:
        pad, size = write_tokenizer(folder, texts, kind)
        more = {"num_key_value_heads": 1, "max_position_embeddings": 64, "head_dim": 16}
        config = transformers.AutoConfig.for_model("qwen3", vocab_size=size, pad_token_id=pad, **BERT, **more)
    getattr(transformers, head).from_config(config).save_pretrained(folder)
    return folder


def write_like(folder, base_model, name, head="AutoModel", **config):
    """Save a new transformer of a model type with the tokenizer of a base model."""
    import transformers

    torch.manual_seed(4)
    sizes = {} if name == "t5" else BERT
    named = transformers.AutoConfig.for_model(name, vocab_size=160, **sizes | config)
    model = getattr(transformers, head)
    (model(named) if head == "T5EncoderModel" else model.from_config(named)).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(base_model / file, folder / file)
    return folder


def write_t5(folder, tokenizer):
    """Save a new T5 with the tokenizer of a folder, whose texts end with ``[SEP]``."""
    import transformers

    torch.manual_seed(1)
    size = len(transformers.AutoTokenizer.from_pretrained(tokenizer))
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "initializer_factor": 2.0}
    special = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 3}
    config = transformers.T5Config(vocab_size=size, **sizes, **special)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    return folder


def write_index(folder, modules):
    """Write modules.json: names of modules -> their folders."""
    parts = enumerate(modules.items())
    index = [{"idx": row, "name": str(row), "path": path, "type": OLD + name} for row, (name, path) in parts]
    write_json(folder / "modules.json", index)


def write_modules(folder, pooling="mean", dense=(), normalize=True, similarity=None, prompts=None, length=None):
    """Say around a transformer which modules follow it, as sentence-transformers does.

    :param dense: (size, activation, whether it has a bias) of each.
    """
    names = ["Transformer", "Pooling", *["Dense"] * len(dense), *["Normalize"] * normalize]
    places = ["", *(f"{number}_{name}" for number, name in enumerate(names) if number)]
    parts = zip(names, places, strict=True)
    index = [{"idx": row, "name": str(row), "path": path, "type": OLD + name} for row, (name, path) in enumerate(parts)]
    write_json(folder / "modules.json", index)
    width = json.loads((folder / "config.json").read_text("utf-8"))["hidden_size"]
    pools = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken", "max": "max_tokens"}
    modes = {f"pooling_mode_{key}": name == pooling for name, key in pools.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    for number, (size, activation, bias) in enumerate(dense, start=2):
        config = {"in_features": width, "out_features": size, "bias": bias}
        place = folder / f"{number}_Dense"
        write_json(place / "config.json", config | {"activation_function": f"torch.nn.modules.{activation}"})
        weights = {"linear.weight": torch.randn(size, width)} | ({"linear.bias": torch.randn(size)} if bias else {})
        save_file(weights, place / "model.safetensors")
        width = size
    if normalize:
        (folder / places[-1]).mkdir()
    said = {"prompts": prompts or {}, "default_prompt_name": None, "similarity_fn_name": similarity}
    write_json(folder / PROMPTS, {key: value for key, value in said.items() if value is not None})
    if length:
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    return folder


def tokens_of(folder, model, texts, kind="passage", cleaning="raw"):
    """Make a token cache of texts with `tokenize`."""
    schema = tables.QUERIES if kind == "query" else tables.PASSAGES
    table = write_rows(folder / f"{kind}.parquet", schema, [(str(number), text) for number, text in enumerate(texts)])
    cache = str(folder / f"{kind}.arrow")
    options = ["--tokenizer", str(model), "--texts", table, "--cleaning", cleaning, "--output", cache]
    assert tokenize.main(options) == 0
    return Tokens(cache, fingerprint(model))


def vectors_of(model, tokens, kind):
    """Compute the vectors of a cache as they are stored."""
    encoder = load_encoder(model)
    texts = encoder.texts(tokens, kind)
    return texts.vectors(encoder, np.arange(len(tokens)), torch.device("cpu"))


def logits_of(model, queries, passages):
    """Score the pairs of the rows of two caches."""
    reranker = CrossEncoder.load(model)
    rows, pairs = np.arange(len(queries)), reranker.pairs(queries, passages)
    with torch.inference_mode():
        return pairs.score(reranker, rows, rows, torch.device("cpu")).numpy()


def difference(numbers, expected):
    """Largest difference of two arrays; for numbers above 1, relative to the largest."""
    return np.abs(numbers - expected).max() / max(np.abs(expected).max(), 1)


def copy_model(source, folder):
    shutil.copytree(source, folder)
    return folder


def peer(name, folder):
    """Load a folder with a class of sentence-transformers."""
    import sentence_transformers

    return getattr(sentence_transformers, name)(str(folder), device="cpu", local_files_only=True)


def take_a_step(model, compute):
    """Train all weights that can be trained by one step; what is computed depends on each of them."""
    weights = dict(model.named_parameters())
    trained = {name: weight for name, weight in weights.items() if weight.requires_grad}
    compute().square().sum().backward()
    assert [name for name, weight in trained.items() if weight.grad is None] == []
    torch.optim.AdamW(trained.values(), lr=0.01).step()
    model.eval()


def check_folder(folder):
    """A saved model has no code and no pickles."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md"}
    assert not any(b"auto_map" in path.read_bytes() or b"remote" in path.read_bytes() for path in files)
