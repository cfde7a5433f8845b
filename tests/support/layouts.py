"""Layouts of encoders that others release, each with random weights."""

import shutil

import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling, StaticEmbedding, WordWeights

from cort import pretrained
from tests.support import released as support
from tests.support.common import command_line
from tests.support.released import change_json, copy_model, write_json

CONFIG, TOKENIZER, POOLING, WEIGHTS = (
    "config.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
    "model.safetensors",
)
E5 = {"query": "ba ko: ", "passage": "ri lu: "}
ASKED = {"query": "Instruct: ba ko\nQuery:"}
SINGLE = {"dtype": torch.float32}


class Maker:
    """Writes folders as the libraries do; `folder` is the one to be loaded."""

    def __init__(self, folder, world, lm):
        self.folder, self.world, self.lm, self.source = folder, world, lm, folder.with_name("transformer")

    def bert(self):
        return Transformer(str(self.lm), max_seq_length=20)

    def other(self, kind, length=30):
        return Transformer(str(support.write_transformer(self.source, self.world.texts, kind)), max_seq_length=length)

    def of_config(self, name, head="AutoModel", **config):
        """A new transformer with the tokenizer of the world's BERT."""
        support.write_like(self.source, self.lm, name, head, **config)
        return Transformer(str(self.source), max_seq_length=30)

    def save(self, first, *, pooling="mean", dense=(), unit=True, **options):
        width = first.get_embedding_dimension()
        modules = [first, Pooling(width, pooling)] if isinstance(first, Transformer) else [first]
        for size, activation in dense:
            modules.append(Dense(width, size, activation_function=activation))
            width = size
        SentenceTransformer(modules=[*modules, *[Normalize()] * unit], device="cpu", **options).save(str(self.folder))

    def weighted(self):
        """Tokens with weights, as for their inverse document frequency."""
        first = self.bert()
        names = [str(number) for number in range(first.model.config.vocab_size)]
        weights = WordWeights(names, {name: 0.5 + int(name) % 7 for name in names})
        modules = [first, weights, Pooling(first.get_embedding_dimension(), "mean"), Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save(str(self.folder))

    def normed(self):
        first, norm = self.bert(), LayerNorm(32)
        torch.nn.init.normal_(norm.norm.weight)
        modules = [first, Pooling(32, "mean"), Dropout(0.3), norm]
        SentenceTransformer(modules=modules, device="cpu").save(str(self.folder))

    def static(self, **options):
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.lm)
        return self.save(StaticEmbedding(tokenizer, embedding_dim=16), **options)

    def model2vec(self):
        """As model2vec saves it."""
        modules = {"StaticEmbedding": ".", "Normalize": "1_Normalize"}
        support.write_index(self.folder, modules)
        for name in ("tokenizer.json", CONFIG):
            shutil.copyfile(self.lm / name, self.folder / name)
        write_json(self.folder / CONFIG, {"model_type": "model2vec", "normalize": True})
        save_file({"embeddings": torch.randn(160, 16).half()}, self.folder / WEIGHTS)

    def routes(self):
        other = self.of_config("bert", max_position_embeddings=48)
        query, document = ([module, Pooling(32, "cls"), Normalize()] for module in (other, self.bert()))
        router = Router.for_query_document(query, document)
        SentenceTransformer(modules=[router], device="cpu", prompts=E5).save(str(self.folder))

    def static_queries(self):
        """Queries by static embeddings, passages by a transformer, both projected to one size."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.lm)
        query = [StaticEmbedding(tokenizer, embedding_dim=16), Dense(16, 24, activation_function=torch.nn.Identity())]
        document = [self.bert(), Pooling(32, "mean"), Dense(32, 24, activation_function=torch.nn.Identity())]
        modules = [Router.for_query_document(query, document), Normalize()]
        SentenceTransformer(modules=modules, device="cpu", prompts=E5).save(str(self.folder))

    def end_by_flag(self):
        """Like e5-mistral: add_eos_token, which transformers 5 ignores. The reference has the token."""
        self.save(self.other("decoder"), pooling="lasttoken")
        reference = shutil.copytree(self.folder, self.folder.with_name("reference"))
        support.without_end(self.folder)
        return reference

    def known_code(self):
        self.save(self.bert())
        change_json(self.folder / CONFIG, auto_map={"AutoModel": "other/repository--modeling.X"})

    def shards(self):
        self.save(self.bert())
        model = transformers.AutoModel.from_pretrained(self.lm)
        (self.folder / WEIGHTS).unlink()
        model.save_pretrained(self.folder, max_shard_size="40KB")
        assert len(list(self.folder.glob("*.safetensors"))) > 1

    def brain_floats(self):
        self.save(self.bert())
        transformers.AutoModel.from_pretrained(self.lm).bfloat16().save_pretrained(self.folder)


GEMMA = {"num_key_value_heads": 1, "head_dim": 16, "use_bidirectional_attention": True, "max_position_embeddings": 48}
MODERN = {"pad_token_id": 0, "max_position_embeddings": 48, "initializer_range": 0.3}
T5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "initializer_factor": 2.0}
PROJECTIONS = [(64, torch.nn.Identity()), (24, torch.nn.Identity())]
#: layout -> function of a `Maker` that writes the folder, and perhaps returns another one as reference
LAYOUTS = {
    "BERT": lambda make: make.save(make.bert()),
    "BERT, cosine, not normalized": lambda make: make.save(make.bert(), pooling="cls", unit=False),
    "BERT, inner product, tanh": lambda make: make.save(
        make.bert(), dense=[(8, torch.nn.Tanh())], unit=False, similarity_fn_name="dot"
    ),
    "weighted mean": Maker.weighted,
    "older names": lambda make: support.write_modules(copy_model(make.lm, make.folder), prompts=E5, length=20),
    "plain transformers": lambda make: copy_model(make.lm, make.folder),
    "XLM-R, E5's prompts": lambda make: make.save(make.other("sentencepiece"), prompts=E5),
    "lower case": lambda make: make.save(
        Transformer(make.other("sentencepiece").model.name_or_path, max_seq_length=30, do_lower_case=True)
    ),
    "ModernBERT": lambda make: make.save(make.of_config("modernbert", **MODERN), pooling="cls"),
    "Qwen3, instruction": lambda make: make.save(make.other("decoder"), pooling="lasttoken", prompts=ASKED),
    "add_eos_token": Maker.end_by_flag,
    "EmbeddingGemma": lambda make: make.save(make.of_config("gemma3_text", **GEMMA), dense=PROJECTIONS, prompts=E5),
    "T5": lambda make: make.save(make.of_config("t5", "T5EncoderModel", **T5)),
    "static": Maker.static,
    "static, prompts, inner product": lambda make: make.static(unit=False, similarity_fn_name="dot", prompts=E5),
    "model2vec": Maker.model2vec,
    "Router": Maker.routes,
    "Router, static queries": Maker.static_queries,
    "Dropout and LayerNorm": Maker.normed,
    "auto_map of a known type": Maker.known_code,
    "shards": Maker.shards,
    "bf16": Maker.brain_floats,
}
#: layouts that are encoded without torch
LIGHT = ("static", "static, prompts, inner product", "model2vec")


def options_of(kind, source, output, **changes):
    return command_line({"kind": kind, "pretrained": source, "output": output}, changes)


def take_in(source, output, kind="dense", **changes):
    assert pretrained.main(options_of(kind, source, output, **changes)) == 0
    return output
