"""A training that is interrupted anywhere gives the same bits as an undisturbed one; all in this process."""

import os
import random
import signal
import threading

import numpy as np
import pytest
import torch
from torch import nn

from cort.runtime.interruption import Interrupted, Requests, exit_status, unwind_on_signals
from cort.training.checkpoints import Checkpoints
from cort.training.loop import Task, fit
from cort.training.microbatches import join_consecutive
from cort.training.selection import Validation
from cort.training.settings import TrainingSettings
from tests.support.common import logged
from tests.support.errors import line_of

pytestmark = pytest.mark.usefixtures("training_process")

EXAMPLES, ACCUMULATE, BATCH = 62, 3, 2
MINI_BATCHES = EXAMPLES // BATCH
UPDATES = 11
OPTIONS = {
    "batch_size": BATCH,
    "gradient_accumulation": ACCUMULATE,
    "learning_rate": 0.05,
    "weight_decay": 0.1,
    "decay": "all",
    "warmup_updates": 2,
    "validate_every": 4,
}
SETTINGS = TrainingSettings(**OPTIONS, max_gradient_norm=1.0, precision="fp32", seed=1)


class Model(nn.Module):
    """Dropout, a buffer, and one tensor under two names."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.first, self.second, self.twin = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        for layer in (self.first, self.second):
            with torch.no_grad():
                layer.weight.copy_(torch.randn(4, 4, generator=generator))
                layer.bias.zero_()
        self.twin.weight = self.second.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.dropout = nn.Dropout(0.3)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, rows):
        return self.twin(self.second(self.dropout(torch.tanh(self.first(rows))))) * self.scale


class Training:
    """A training that draws from every generator and sends itself a signal at the given mini-batches and validations.

    Called again after an interruption, it starts as a new process would: fresh objects, other random states.
    """

    def __init__(self, folder=None, identity="this", every=1e9, signals=None, validation_signals=None):
        self.folder, self.identity, self.every = folder, identity, every
        self.signals, self.validation_signals = signals or {}, validation_signals or {}
        self.count = self.validations = 0
        self.ends, self.saved = [], {}
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randn(EXAMPLES, 4, generator=generator)

    def _send(self, number):
        if number:
            os.kill(os.getpid(), number)

    def chunks(self, examples, size, room):
        # So long that each mini-batch stands alone.
        return join_consecutive(examples, size, lambda some: 10**6 * len(some), room.limit)

    def losses(self, chunk, forward):
        self._send(self.signals.pop(self.count, None))
        self.count += 1
        self.starts.append(int(chunk[0, 0]))
        noise = random.random() + np.random.rand() + random.gauss(0, 1) + np.random.normal()  # noqa: NPY002, S311
        return (forward.model(self.rows[chunk.reshape(-1)]) + 0.1 * noise).square().mean().reshape(1)

    def validate(self, forward):
        losses, model = [], forward.model
        for start in range(0, 20, 5):
            self._send(self.validation_signals.pop(self.validations, None))
            self.validations += 1
            losses.append(model(self.rows[start : start + 5]).square().mean().item())
        # Chosen so that the best model is not the last one.
        return Validation(abs(sum(losses) - 3.7))

    def once(self):
        torch.manual_seed(11)
        random.seed(11)
        np.random.seed(11)  # noqa: NPY002
        model, self.starts, self.saved = Model(), [], {}

        def save(name, _):
            self.saved[name] = {key: value.clone() for key, value in model.state_dict().items()}

        checkpoints = self.folder and Checkpoints(self.folder, lambda: self.identity, self.every)
        curve, _ = fit(Task(model, EXAMPLES, 31, self.chunks, self.losses, self.validate, save), SETTINGS, checkpoints)
        return [(point.step, point.epoch, point.loss, point.validation_loss, point.learning_rate) for point in curve]

    def run(self):
        """Call it until it is done; the curve without what is measured, and the models."""
        while True:
            try:
                return self.once(), self.saved
            except Interrupted as end:
                self.ends.append(end)
                assert self.saved == {}
                torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002, S311


def same(one, other):
    """Compare to the bit."""
    assert one[0] == other[0]
    assert set(one[1]) == set(other[1]) == {"best", "last"}
    for name, weights in one[1].items():
        assert list(weights) == list(other[1][name])
        assert all(value.numpy().tobytes() == other[1][name][key].numpy().tobytes() for key, value in weights.items())


@pytest.fixture(scope="module")
def undisturbed():
    return Training().run()


def test_the_undisturbed_training_is_a_fair_test(undisturbed):
    curve, models = undisturbed
    assert len(curve) == 1 + UPDATES
    assert [step for step, _, _, loss, _ in curve if loss is not None] == [0, 4, 8, 11]
    losses = [loss for *_, loss, _ in curve if loss is not None]
    assert losses.index(min(losses)) == 2
    assert not torch.equal(models["best"]["first.weight"], models["last"]["first.weight"])
    same((curve, models), Training().run())


@pytest.mark.parametrize(
    ("number", "places"),
    [(signal.SIGTERM, range(MINI_BATCHES)), (signal.SIGUSR1, [0, 5, 30]), (signal.SIGINT, [1, 8, 30])],
)
def test_a_signal_at_any_mini_batch_changes_no_bit(undisturbed, tmp_path, number, places):
    for at in places:
        training = Training(tmp_path / str(at), signals={at: number})
        same(training.run(), undisturbed)
        (end,) = training.ends
        assert end.status == (130 if number == signal.SIGINT else 75)
        # At the last mini-batch, the update is completed; otherwise it is dropped after the next forward pass.
        last = (at + 1) % ACCUMULATE == 0 or at == MINI_BATCHES - 1
        done = at // ACCUMULATE + last
        path = tmp_path / str(at) / "checkpoint.safetensors"
        name = signal.Signals(number).name
        assert str(end) == (f"{name}: checkpoint written at update {done} of 11; call it again to resume from {path}")
        assert training.starts[0] == done * ACCUMULATE * BATCH if done < UPDATES else training.starts == []
        assert training.count == MINI_BATCHES + (0 if last else at % ACCUMULATE + 1)


def test_a_signal_at_any_moment_of_validation_changes_no_bit(undisturbed, tmp_path):
    for at in range(16):
        training = Training(tmp_path / str(at), validation_signals={at: signal.SIGTERM})
        same(training.run(), undisturbed)
        assert len(training.ends) == 1
        # Validation was abandoned, and started again.
        assert training.validations == 16 + at % 4 + 1
        assert training.count == MINI_BATCHES


def test_many_interruptions_at_random_change_no_bit(undisturbed, tmp_path):
    generator = random.Random(7)  # noqa: S311
    for number in range(8):
        signals = {at: signal.SIGUSR1 for at in range(90) if generator.random() < 0.25}
        validation_signals = {at: signal.SIGINT for at in range(30) if generator.random() < 0.15}
        every = generator.choice([0.0, 1e9])
        training = Training(tmp_path / str(number), every=every, signals=signals, validation_signals=validation_signals)
        same(training.run(), undisturbed)
        assert len(training.ends) > 2


def test_several_signals_at_once_count_as_one(undisturbed, tmp_path, caplog):
    caplog.set_level("INFO")
    training = Training(tmp_path / "c", signals={7: signal.SIGTERM})
    send = training._send
    training._send = lambda number: [send(number), send(number and signal.SIGUSR1), send(number)]
    same(training.run(), undisturbed)
    assert [str(end)[:8] for end in training.ends] == ["SIGTERM:"]
    assert f"resumed at update 2 of 11 from {tmp_path}/c/checkpoint.safetensors" in logged(caplog)


@pytest.mark.parametrize(("folder", "times"), [("c", 2), (None, 1)])
def test_a_second_ctrl_c_or_one_without_checkpoints_does_not_wait(tmp_path, folder, times):
    training = Training(folder and tmp_path / folder, signals={7: signal.SIGINT})
    send = training._send
    training._send = lambda number: [send(number) for _ in range(times)]
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_checkpoints_alone_change_nothing_and_signal_handlers_are_restored(undisturbed, tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    same(Training(tmp_path / "c", every=0).run(), undisturbed)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == before
    # Off the main thread, there are no handlers.
    result = []
    thread = threading.Thread(target=lambda: result.append(Training(tmp_path / "d", every=0).run()))
    thread.start()
    thread.join()
    same(result[0], undisturbed)


def test_a_checkpoint_is_found_after_a_death_without_warning(undisturbed, tmp_path):
    """As if the process were killed in update 8: it resumes from the checkpoint of the update before."""

    class Killed(BaseException):
        pass

    training = Training(tmp_path / "c", every=0)
    losses = training.losses

    def dying(*args):
        if training.count == 7 * ACCUMULATE + 1:
            training.count += 1
            raise Killed
        return losses(*args)

    training.losses = dying
    with pytest.raises(Killed):
        training.run()
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names == {"checkpoint.safetensors"}
    same(training.run(), undisturbed)
    assert training.starts[0] == 7 * ACCUMULATE * BATCH


def fail_at(*steps):
    """A `Checkpoints.write` to which the disk is full at these updates."""
    write = Checkpoints.write

    def full(checkpoints, checkpoint):
        if checkpoint.state["progress"]["step"] in steps:
            raise OSError(28, "No space left on device")
        return write(checkpoints, checkpoint)

    return full


def test_a_full_disk_does_not_end_a_training(undisturbed, tmp_path, caplog, monkeypatch):
    training = Training(tmp_path / "c", every=0)
    monkeypatch.setattr(Checkpoints, "write", fail_at(5, 6))
    same(training.run(), undisturbed)
    lines = [line.partition(";")[0] for line in logged(caplog, "WARNING")]
    assert lines == [f"no checkpoint of update {step}: No space left on device" for step in (5, 6)]


@pytest.mark.parametrize("steps", [(5, 6, 7), range(20)], ids=["resumes", "starts again"])
def test_a_full_disk_at_a_signal_is_one_line_and_costs_no_bit(undisturbed, tmp_path, monkeypatch, steps):
    training = Training(tmp_path / "c", every=0, signals={22: signal.SIGUSR1})
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", fail_at(*steps))
        line = line_of(training.run)
    assert line.startswith(f"{tmp_path}/c/checkpoint.safetensors: found No space left on device at SIGUSR1")
    assert line.endswith("; make room and call it again")
    same(training.run(), undisturbed)


def test_patient_requests_ignore_a_second_sigint_and_statuses_make_a_scheduler_try_again():
    with Requests(patient=True) as requests:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert requests.received == signal.SIGINT
    assert [exit_status(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == [75, 75, 130]


@pytest.fixture
def handlers():
    """Restore how signals are handled."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_an_ignored_ctrl_c_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Requests() as requests:
        os.kill(os.getpid(), signal.SIGINT)
        assert requests.received is None
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.usefixtures("handlers")
def test_a_warning_that_is_ignored_ends_nothing_until_work_can_be_saved():
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    unwind_on_signals()
    signal.raise_signal(signal.SIGUSR1)
    with Requests() as requests:
        signal.raise_signal(signal.SIGUSR1)
    assert requests.received == signal.SIGUSR1
    requests.deliver()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    unwind_on_signals()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGUSR1)
