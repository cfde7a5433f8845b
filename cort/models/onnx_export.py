"""A model as ONNX: token ids to the vectors of the stage `encode`, or to the logits of `score`.

A graph takes what the exported tokenizers give (``input_ids``, ``attention_mask``, and ``token_type_ids`` where a model
has segments), of shape (batch, length) with any two numbers; pooling, projection and length 1 are part of it. In int8,
weights have a scale per output; activations are rounded as they come, with a scale per product.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cort.models.cross_encoder import CrossEncoder
from cort.models.encoder import Encoder
from cort.models.settings import INSTALL_ONNX, ONNX_FILES, OnnxPrecision
from cort.models.transformer import count_tokens
from cort.system.errors import input_error, shorten

FOLDER = "onnx"
#: what a graph gives
VECTORS, LOGITS = "sentence_embedding", "logits"
# The newest that torch writes without the package onnxscript.
OPSET = 17
# Largest difference to this project's own numbers, relative to the largest of those above 1.
TOLERANCE = 1e-5
FATAL = 4
# Of the batch that is traced, and of those that are compared.
TRACED, COMPARED = (3, 7), ((1, 3), (2, 7), (5, 12))


class Exported(nn.Module):
    """An encoder, or a re-ranker, of tensors in the order of `inputs`; gives what its stage writes."""

    def __init__(self, model: Encoder | CrossEncoder) -> None:
        super().__init__()
        self.model, self.inputs = model, model.inputs
        self.unit_length = isinstance(model, Encoder) and model.settings.unit_length

    def forward(self, *tensors: Tensor) -> Tensor:
        """Map tensors of shape (batch, length); returns vectors (batch, e) or logits (batch,)."""
        found: Tensor = self.model(dict(zip(self.inputs, tensors, strict=True)))
        return functional.normalize(found, dim=-1) if self.unit_length else found


def write_onnx(model: Encoder | CrossEncoder, source: Path, precisions: Sequence[OnnxPrecision], folder: Path) -> None:
    """Write a model in each precision to ``onnx/`` of `folder`, its graph in fp32 compared with the model itself.

    :param source: folder of the model, for messages.
    :raises InputError: ONNX is not installed, or the graph gives other numbers than the model.
    """
    if not precisions:
        return
    _check_installed()
    target = folder / FOLDER
    target.mkdir()
    exported = Exported(model).eval()
    vocabulary = count_tokens(model.transformer if isinstance(model, Encoder) else model.classifier)
    with tempfile.TemporaryDirectory(dir=folder) as temporary, _quiet():
        whole = Path(temporary) / ONNX_FILES["fp32"]
        if problem := _trace_and_compare(exported, vocabulary, whole):
            fix = "empty export_onnx: ONNX does not hold this architecture"
            raise input_error(source, problem, f"the numbers of the model itself up to {TOLERANCE}", fix)
        for precision in precisions:
            file = target / ONNX_FILES[precision]
            if precision == "int8":
                _quantize(whole, file)
            else:
                shutil.copyfile(whole, file)


def _check_installed() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise input_error("onnx", "no such package", "onnx, for export_onnx", INSTALL_ONNX) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what tracing says of every condition, and onnxruntime of a step that is not needed."""
    root = logging.getLogger()
    shown = root.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root.setLevel(logging.ERROR)
        try:
            yield
        finally:
            root.setLevel(shown)


def _batch(inputs: tuple[str, ...], shape: tuple[int, int], vocabulary: int) -> tuple[Tensor, ...]:
    """Draw token ids of texts of different lengths, the same each time."""
    rows, length = shape
    drawn = torch.Generator().manual_seed(length)
    mask = (torch.arange(length) < length - torch.arange(rows).unsqueeze(1) % length).long()  # (rows, length)
    batch = {"input_ids": torch.randint(vocabulary, shape, generator=drawn), "attention_mask": mask}
    batch["token_type_ids"] = (torch.arange(length) >= length // 2).long().expand(shape)
    return tuple(batch[name] for name in inputs)


def _trace_and_compare(exported: Exported, vocabulary: int, path: Path) -> str:
    """Write a graph; what is wrong with it, else nothing."""
    try:
        _trace(exported, vocabulary, path)
        difference = _difference(exported, vocabulary, path)
    # Both libraries raise many kinds, and a shape that the trace has fixed ends in one.
    except Exception as error:
        return f"in ONNX {shorten(' '.join(str(error).split()), 120)}"
    # No number is not less either.
    return "" if difference <= TOLERANCE else f"numbers from ONNX that differ by {difference:.2g}"


def _trace(exported: Exported, vocabulary: int, path: Path) -> None:
    output = VECTORS if isinstance(exported.model, Encoder) else LOGITS
    torch.onnx.export(
        exported,
        _batch(exported.inputs, TRACED, vocabulary),
        str(path),
        input_names=list(exported.inputs),
        output_names=[output],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in exported.inputs} | {output: {0: "batch"}},
        opset_version=OPSET,
        # The other exporter needs two more packages, and six times the time.
        dynamo=False,
    )


def _difference(exported: Exported, vocabulary: int, path: Path) -> float:
    """Largest difference between a graph in ONNX Runtime and the model, in batches of other shapes."""
    session, found = open_session(path), []
    for shape in COMPARED:
        tensors = _batch(exported.inputs, shape, vocabulary)
        with torch.inference_mode():
            expected = exported(*tensors)
        fed = {name: tensor.numpy() for name, tensor in zip(exported.inputs, tensors, strict=True)}
        given = torch.from_numpy(session.run(None, fed)[0])
        found.append((given - expected).abs().max() / expected.abs().max().clamp(min=1))
    return float(torch.stack(found).max())


def open_session(path: Path) -> Any:
    """Open a graph in ONNX Runtime, in one thread of the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # What it logs, it also raises.
    options.log_severity_level = FATAL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _quantize(whole: Path, path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(whole, path, weight_type=QuantType.QInt8, per_channel=True)
