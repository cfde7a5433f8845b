"""Small checkpoints under the names of large ones: their architectures, files and names of weights, random values.

Settings and names of files and weights are those of the repositories, also where they are older than today's programs.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cort.base_model import train_tokenizer
from cort.system.errors import input_error
from workflow.experiment.checks import extended, read

SEED = 42
VOCABULARY = 4_000
NARROW = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
# RepBERT has no projection: its dimension is BERT's own.
WIDE = {"hidden_size": 768, "num_hidden_layers": 1, "num_attention_heads": 12, "intermediate_size": 64}
UNCASED = {"do_lower_case": True, "model_max_length": 512}
ALBERT_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
# Settings of the repositories beside the sizes, some of them unknown to today's programs.
BERT = {"gradient_checkpointing": False, "position_embedding_type": "absolute", "use_cache": True, "pad_token_id": 0}
ALBERT: dict[str, Any] = {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}
ALBERT |= {
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
    "hidden_act": "gelu_new",
    "inner_group_num": 1,
    "num_hidden_groups": 1,
}
ALBERT |= {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "embedding_size": 16}
ELECTRA = {"embedding_size": 32, "summary_activation": "gelu", "summary_type": "first", "pad_token_id": 0}
# Of a config, those that name models of the hub.
SECTIONS = ("base_models", "encoders", "rerankers", "weighers", "expanders")
BERT_NAMES = {r"LayerNorm\.weight$": "LayerNorm.gamma", r"LayerNorm\.bias$": "LayerNorm.beta"}


def named_models(configs: Sequence[Path]) -> dict[str, str]:
    """Name -> revision of the hub's models in experiments."""
    found = dict[str, str]()
    for path in configs:
        config = extended(read(path), str(path))
        entries = [entry for key in SECTIONS for entry in config.get(key, {}).values()]
        found |= {entry["pretrained"]: entry["revision"] for entry in entries if "revision" in entry}
    return found


def write_models(names: Sequence[str], texts: Sequence[str], folder: Path) -> None:
    """Write a small model for each name into a folder of that name.

    :raises InputError: names a model that nobody has said how to make small.
    """
    for name in names:
        if name not in MAKERS:
            fix = "say in scripts/dress/models.py how it is made small"
            raise input_error(name, "a model without a small one", "one for each model of config/", fix)
        (folder / name).mkdir(parents=True)
        MAKERS[name](folder / name, texts)


def _bert(head: str, sizes: Mapping[str, int], **more: Any) -> Callable[[Path, Sequence[str]], None]:
    def write(folder: Path, texts: Sequence[str]) -> None:
        vocabulary = _write_wordpiece(folder, texts)
        _write_weights(folder, "bert", head, {**sizes, **BERT, **more, "vocab_size": vocabulary}, BERT_NAMES)

    return write


def _electra(folder: Path, texts: Sequence[str]) -> None:
    settings = {**NARROW, **ELECTRA, "vocab_size": _write_wordpiece(folder, texts)}
    _write_weights(folder, "electra", "ElectraForPreTraining", settings, positions="electra.embeddings.position_ids")


def _albert(folder: Path, texts: Sequence[str]) -> None:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.Unigram())
    steps = [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY // 2, special_tokens=list(ALBERT_SPECIAL), unk_token=ALBERT_SPECIAL[1]
    )
    tokenizer.train_from_iterator(texts, trainer)
    single, pair = "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    special = [(token, ALBERT_SPECIAL.index(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", UNCASED)
    settings = {**NARROW, **ALBERT, "vocab_size": tokenizer.get_vocab_size()}
    _write_weights(folder, "albert", "AlbertForMaskedLM", settings, positions="albert.embeddings.position_ids")


def _minilm(folder: Path, texts: Sequence[str]) -> None:
    """Write an encoder in the layout of sentence-transformers: mean pooling, then unit length."""
    _bert("BertModel", NARROW)(folder, texts)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    index = [
        {"idx": row, "name": str(row), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for row, (path, kind) in enumerate(kinds.items())
    ]
    _write_json(folder / "modules.json", index)
    modes = {f"pooling_mode_{name}": name == "mean_tokens" for name in ("cls_token", "mean_tokens", "max_tokens")}
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": NARROW["hidden_size"], **modes})
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    _write_json(folder / "config_sentence_transformers.json", {"__version__": {"sentence_transformers": "2.0.0"}})


def _write_wordpiece(folder: Path, texts: Sequence[str]) -> int:
    """Write BERT's tokenizer files; the size of the vocabulary."""

    def batches() -> Iterator[list[str]]:
        yield list(texts)

    tokenizer = train_tokenizer(batches, VOCABULARY)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", UNCASED)
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in tokens), encoding="utf-8")
    return int(tokenizer.get_vocab_size())


def _write_weights(
    folder: Path,
    kind: str,
    head: str,
    settings: dict[str, Any],
    names: Mapping[str, str] | None = None,
    positions: str = "",
) -> None:
    """Draw weights for a class of transformers; write them under the repository's names, with the settings it has."""
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.manual_seed(SEED)
    config = transformers.AutoConfig.for_model(kind, **settings)
    model = getattr(transformers, head)(config)
    with torch.no_grad():
        for value in model.parameters():
            # Ones and zeros, too, which a loader that does not know a name puts in its place.
            value.add_(torch.randn_like(value), alpha=0.02)
    weights = {_renamed(name, names or {}): value.clone() for name, value in _untied(model)}
    if positions:
        weights[positions] = torch.arange(config.max_position_embeddings)[None]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    said = {"architectures": [head], "model_type": kind, "max_position_embeddings": config.max_position_embeddings}
    _write_json(folder / "config.json", {**said, "type_vocab_size": config.type_vocab_size, **settings})


def _untied(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield each weight once, without those that are another under a second name."""
    seen = set[int]()
    for name, value in model.state_dict().items():
        if value.data_ptr() not in seen:
            seen.add(value.data_ptr())
            yield name, value


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for pattern, old in names.items():
        name = re.sub(pattern, old, name)
    return name


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


ONE_LABEL = {"num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
MAKERS: Mapping[str, Callable[[Path, Sequence[str]], None]] = {
    "albert/albert-base-v2": _albert,
    "google-bert/bert-base-uncased": _bert("BertForPreTraining", WIDE),
    "google-bert/bert-large-uncased": _bert("BertForPreTraining", NARROW),
    "google/electra-large-discriminator": _electra,
    "sentence-transformers/all-MiniLM-L6-v2": _minilm,
    "macavaney/deepct": _bert("BertForTokenClassification", NARROW, **ONE_LABEL),
    "cross-encoder/ms-marco-MiniLM-L6-v2": _bert("BertForSequenceClassification", NARROW, **ONE_LABEL),
}
