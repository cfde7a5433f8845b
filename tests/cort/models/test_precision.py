import pytest
import torch

from cort.models import precision
from cort.models.encoder import load_encoder
from cort.runtime.errors import InputError
from tests.support.layers import batch_of

CPU = torch.device("cpu")


@pytest.mark.parametrize(("has", "expected"), [({}, "fp32"), ({"amx_bf16": False, "avx512_bf16": True}, "bf16")])
def test_a_machine_takes_bf16_if_it_has_instructions_for_it(monkeypatch, has, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True} | has)
    monkeypatch.setattr(precision, "is_right", lambda *_: True)
    assert precision.settle("auto", CPU) == expected
    assert precision.settle("fp16", CPU) == "fp16"


def broken(*_, **__):
    raise RuntimeError("not implemented for 'BFloat16'")


@pytest.mark.parametrize("attention", [broken, lambda query, *_: query * float("nan"), lambda query, *_: 2 * query])
def test_a_precision_in_which_the_processor_is_wrong_is_not_used(monkeypatch, attention, make_encoder, request):
    real = precision.functional.scaled_dot_product_attention

    def half_broken(query, *rest):
        return (attention if query.dtype == torch.bfloat16 else real)(query, *rest)

    monkeypatch.setattr(precision.functional, "scaled_dot_product_attention", half_broken)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    precision.is_right.cache_clear()
    request.addfinalizer(precision.is_right.cache_clear)
    assert precision.settle("auto", CPU) == "fp32"
    encoder = load_encoder(make_encoder())
    with pytest.raises(InputError, match=r"^precision: found bf16, in which this cpu cannot compute correctly, exp"):
        encoder.place(CPU, "bf16")
    encoder.place(CPU, "fp32")


def test_the_first_of_several_machines_decides(monkeypatch, tmp_path):
    kept, answers = tmp_path / "kept", iter(["bf16", "fp32", "fp32"])

    def slow(device):
        # Meanwhile another machine chooses, too.
        answer = next(answers)
        monkeypatch.setattr(precision, "choose", lambda device: next(answers))
        assert precision.settle("auto", device, kept) == "fp32"
        return answer

    monkeypatch.setattr(precision, "choose", slow)
    assert precision.settle("auto", CPU, kept) == precision.settle("auto", CPU, kept) == "fp32"
    assert next(answers) == "fp32"
    precision.forget(kept)
    assert not kept.exists()


def test_products_are_in_tf32_in_a_transformer_alone(monkeypatch, make_encoder):
    """On a GPU, where alone they are."""
    assert not precision.is_right("tf32", CPU)
    monkeypatch.setattr("cort.models.precision.refuse_wrong", lambda *_: None)
    encoder, seen = load_encoder(make_encoder()), []
    expected = encoder(batch_of(3, 5) | {"task": "document"})
    encoder.place(CPU, "tf32")
    for part in (encoder.transformer.encoder, encoder.projection):
        part.register_forward_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    assert torch.allclose(encoder(batch_of(3, 5) | {"task": "document"}), expected, atol=1e-5)
    assert (seen, torch.get_float32_matmul_precision()) == (["high", "highest"], "highest")
