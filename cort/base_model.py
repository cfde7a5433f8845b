"""Put the base model for training, with its tokenizer, into a local folder.

It is either pretrained (a hub name with a pinned revision, or a folder) or built from scratch: the weights of the given
architecture are drawn from a seed, and a WordPiece tokenizer is trained on the passages, of more than 100,000 on a
sample of 100,000 drawn from the seed. Safetensors only, no remote code.

Writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json.

Usage: python -m cort.base_model --pretrained albert/albert-base-v2 --output models/albert
              --revision 8e2f239c5f8a2c0f253781ca60135db913e5c80c
       python -m cort.base_model --architecture '{"model_type": "bert", "hidden_size": 256}'
              --vocabulary-size 16000 --passages passages.parquet --seed 42 --output models/small
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import pyarrow as pa

from cort.config.fields import Revision, Seed
from cort.config.models import Cleaned, Vocabulary
from cort.formats import tables
from cort.formats.artifacts import json_option
from cort.formats.cleaning import Form, convert
from cort.formats.records import offsets_of
from cort.models.hub import opened_folder, save_plain
from cort.models.layout import refusing
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.files import atomic_folder
from cort.runtime.progress import track
from cort.runtime.sections import Contents, FolderPath, JsonFile, Maybe, ParquetFile, same_as

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROWS = 1_000
# Of more passages, a sample determines vocabulary and embeddings: enough for both, and few enough for time and memory.
SAMPLE = 100_000
LSA_CHARACTERS = 1_000
# So many of the most frequent characters are in the vocabulary; words with others are unknown.
ALPHABET = 1_000
NEEDED_SETTINGS = ("hidden_size", "max_position_embeddings")


def train_tokenizer(texts: Callable[[], Iterator[list[str]]], vocabulary_size: int) -> Tokenizer:
    """Train a lower-casing WordPiece tokenizer that frames texts like BERT's.

    The trainer numbers continuation characters (``##a``), which break ties between merges, in the order of a hash table
    that differs between processes. If they are passed as special tokens, their numbers are fixed. The trained
    vocabulary then goes into a tokenizer in which they are not special.

    :param texts: starts a pass over the texts; called twice.
    """
    from tokenizers import processors, trainers

    draft = _wordpiece({})
    alphabet = _alphabet(texts(), draft)
    log.info("%d characters; next, their merges", len(alphabet))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[*SPECIAL_TOKENS, *(f"##{letter}" for letter in alphabet if _continues(letter, draft))],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    draft.train_from_iterator(texts(), trainer)
    tokenizer = _wordpiece(draft.get_vocab())
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    single, pair = "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
    return tokenizer


def _wordpiece(vocabulary: dict[str, int]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))  # noqa: S106 - a token of text
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _alphabet(texts: Iterator[list[str]], tokenizer: Tokenizer) -> list[str]:
    """Return the most frequent characters of the normalized texts, by (-count, character)."""
    counts = Counter(chain.from_iterable(map(tokenizer.normalizer.normalize_str, chain.from_iterable(texts))))
    characters = [character for character in counts if not character.isspace()]
    return sorted(characters, key=lambda character: (-counts[character], character))[:ALPHABET]


def _continues(character: str, tokenizer: Tokenizer) -> bool:
    """Tell whether a character can continue a word, unlike punctuation and Chinese characters."""
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(f"a{character}"))) == 1


def sampled(passages: str, form: Form, seed: int) -> Callable[[], Iterator[list[str]]]:
    """Choose `SAMPLE` passages, or all if there are no more; return what starts a pass over their texts, in order."""
    schema = pa.schema([tables.PASSAGES.field("text")])
    rows = tables.count_rows(passages, schema)
    kept = np.arange(rows)
    if rows > SAMPLE:
        kept = np.sort(np.random.default_rng(seed).choice(rows, SAMPLE, replace=False, shuffle=False))
    log.info("%d of %d passages determine the vocabulary", len(kept), rows)

    def begin() -> Iterator[list[str]]:
        start = 0
        for batch in tables.iter_batches(passages, schema, ROWS):
            first, last = np.searchsorted(kept, [start, start + len(batch)])
            yield convert(batch["text"].take(pa.array(kept[first:last] - start)), form).to_pylist()
            start += len(batch)

    return lambda: track(begin(), len(kept), "passages", size=len)


def build_from_scratch(architecture: dict[str, Any], passages: str, options: Options, folder: Path) -> None:
    """Train a tokenizer on the passages, draw the weights, and save both."""
    from transformers import PreTrainedTokenizerFast

    texts = sampled(passages, options.cleaning, options.seed)
    tokenizer = train_tokenizer(texts, options.vocabulary_size)
    log.info("trained a tokenizer of %d tokens", tokenizer.get_vocab_size())
    model = draw_model(architecture, tokenizer.get_vocab_size(), options.seed)
    if options.embeddings == "lsa":
        set_embeddings(model, texts(), tokenizer, options.seed)
    special = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}
    longest = getattr(model.config, "max_position_embeddings", None)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **special).save_pretrained(folder)
    model.save_pretrained(folder)
    log.info("drew %d weights of a %s with seed %d", model.num_parameters(), model.config.model_type, options.seed)


def draw_model(architecture: dict[str, Any], vocabulary_size: int, seed: int) -> PreTrainedModel:
    """Draw the weights of a transformers model; unknown settings are refused."""
    import torch
    from transformers import AutoConfig, AutoModel

    from cort.models.loading import check_kind

    expected = "model_type and settings of a BERT-like encoder"
    with refusing("--architecture", json.dumps(architecture), expected):
        settings = dict(architecture)
        model_type = settings.pop("model_type", "")
        known = AutoConfig.for_model(model_type)
        check_kind("--architecture", known, "AutoModel")
        # transformers would silently keep a misspelled setting and use the default of the correct one.
        problems = [f"the unknown setting {name!r}" for name in settings if not hasattr(known, name)]
        problems += [f"a {model_type}, which has no {name}" for name in NEEDED_SETTINGS if not hasattr(known, name)]
        if problems:
            raise input_error("--architecture", problems[0], expected, "fix it")
        pad = SPECIAL_TOKENS.index("[PAD]")
        config = AutoConfig.for_model(model_type, vocab_size=vocabulary_size, pad_token_id=pad, **settings)
        check_kind("--architecture", config, "AutoModel")
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModel.from_config(config)
    return model


def set_embeddings(model: PreTrainedModel, texts: Iterable[list[str]], tokenizer: Tokenizer, seed: int) -> None:
    """Set a model's token embeddings to the singular vectors of tf-idf, of length 1; tokens in no text keep theirs."""
    import torch
    from scipy.sparse import csr_array
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    embeddings = cast("torch.nn.Embedding", model.get_input_embeddings()).weight.detach()  # (vocabulary, e)
    begun = ([text[:LSA_CHARACTERS] for text in batch] for batch in texts)
    parts = [encoded.ids for batch in begun for encoded in tokenizer.encode_batch_fast(batch, add_special_tokens=False)]
    tokens = np.concatenate(parts).astype(np.int32)
    counts = csr_array((np.ones(len(tokens)), tokens, offsets_of([*map(len, parts)])), (len(parts), len(embeddings)))
    if (size := embeddings.shape[1]) > len(parts):
        found, fix = f"{len(parts)} passages", "take random token embeddings, or a smaller architecture"
        raise input_error("--embeddings", f"lsa of {found}", f"at least {size}, the size of the vectors", fix)
    analysis = TruncatedSVD(size, n_iter=2, random_state=seed).fit(
        TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    )
    vectors = torch.from_numpy(analysis.components_.T.astype(np.float32))  # (vocabulary, e)
    seen = torch.from_numpy(np.bincount(tokens, minlength=len(embeddings)) > 0)
    embeddings[seen] = torch.nn.functional.normalize(vectors[seen], dim=1)


def fetch_pretrained(name: str, revision: str | None, seed: int, folder: Path) -> None:
    """Load a model from a folder or a hub, and save it; only safetensors weights are accepted.

    :param seed: of the pooler, which some models lack.
    """
    import torch

    from cort.models.card import Origin
    from cort.models.loading import load_transformer

    with opened_folder(name, revision, folder) as source:
        torch.manual_seed(seed)
        model: Any = load_transformer(source, dtype="auto")
        save_plain(source, model, folder)
        Origin.of(source, None if Path(name).is_dir() else name).write(folder)
    log.info("loaded %s: %s, %d weights", name, model.config.model_type, model.num_parameters())


class Options(Revision, Vocabulary):
    """Options of this stage."""

    pretrained: Maybe[Annotated[str, Contents("NAME_OR_FOLDER")]] = None
    """A model to start from; or else."""
    architecture: Maybe[JsonFile] = None
    """Model_type and settings of a new model."""
    passages: Maybe[ParquetFile] = None
    """Texts on which the tokenizer is trained."""
    cleaning: Form = same_as(Cleaned, "cleaning")
    """How these texts are cleaned first."""
    seed: int = same_as(Seed, "seed")
    output: FolderPath


def stage(options: Options) -> None:
    """Build the folder atomically."""
    if bool(options.pretrained) == bool(options.architecture):
        found = "both" if options.pretrained else "neither"
        raise input_error("--pretrained, --architecture", found, "one of them", "name a model, or describe one")
    # Otherwise, merges of equal frequency could be counted in varying order by several threads.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with atomic_folder(options.output) as folder:
        if options.pretrained:
            fetch_pretrained(options.pretrained, options.revision, options.seed, folder)
            return
        architecture = json_option("--architecture", options.architecture or "")
        if options.passages is None:
            raise input_error("--passages", "nothing", "the table to train the tokenizer on", "name it")
        build_from_scratch(architecture, options.passages, options, folder)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
