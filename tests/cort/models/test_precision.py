import pytest
import torch

from cort.models import precision
from cort.models.encoder import load_encoder
from cort.runtime.errors import InputError

CPU = torch.device("cpu")


@pytest.mark.parametrize(("gain", "expected"), [(0.2, "fp32"), (1.29, "fp32"), (1.3, "bf16")])
def test_a_machine_takes_bf16_if_it_is_clearly_faster(monkeypatch, gain, expected):
    monkeypatch.setattr(precision, "gain_of_bf16", lambda device: gain)
    monkeypatch.setattr(precision, "is_right", lambda *_: True)
    assert precision.settle("auto", CPU) == expected
    assert precision.settle("fp16", CPU) == "fp16"


@pytest.mark.parametrize(("seconds", "expected", "rounds"), [(60.0, 2.0, 11), (0.0, 9.0, 1)])
def test_the_gain_is_a_median_after_a_warm_up_if_there_is_time_for_it(monkeypatch, seconds, expected, rounds):
    # fp32 and bf16 in turns; one round of the measured ones is disturbed.
    times = [9.0, 1.0, *[2.0, 1.0] * 9, 50.0, 1.0]
    taken = iter(times)
    monkeypatch.setattr(precision, "_seconds", lambda inputs, weights: next(taken))
    monkeypatch.setattr(precision, "SECONDS", seconds)
    assert precision.gain_of_bf16(CPU) == expected
    assert len(list(taken)) == len(times) - 2 * rounds


def broken(*_, **__):
    raise RuntimeError("not implemented for 'BFloat16'")


@pytest.mark.parametrize("attention", [broken, lambda query, *_: query * float("nan"), lambda query, *_: 2 * query])
def test_a_precision_in_which_the_processor_is_wrong_is_not_used(monkeypatch, attention, make_encoder, request):
    real = precision.functional.scaled_dot_product_attention

    def half_broken(query, *rest):
        return (attention if query.dtype == torch.bfloat16 else real)(query, *rest)

    monkeypatch.setattr(precision.functional, "scaled_dot_product_attention", half_broken)
    monkeypatch.setattr(precision, "gain_of_bf16", lambda device: 9.0)
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
        # Meanwhile another machine measures, too.
        answer = next(answers)
        monkeypatch.setattr(precision, "measure", lambda device: next(answers))
        assert precision.settle("auto", device, kept) == "fp32"
        return answer

    monkeypatch.setattr(precision, "measure", slow)
    assert precision.settle("auto", CPU, kept) == precision.settle("auto", CPU, kept) == "fp32"
    assert next(answers) == "fp32"
    precision.forget(kept)
    assert list(kept.iterdir()) == []
