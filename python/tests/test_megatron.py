"""Plans in Megatron-Core: against its interface as documented, and against the released package where it can be imported."""
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

from mycroft import Controller, Plan, megatron

try:
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.enums import ModelType
    from megatron.core.num_microbatches_calculator import destroy_num_microbatches_calculator as destroyed
    from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer import TransformerConfig

    missing = ""
except Exception as error:
    missing = f"megatron-core cannot be imported here: {error}"

REPLICAS, TOTAL = 4, 16


def schedule(*, forward_step_func, data_iterator, model, num_microbatches, forward_only=False):
    """A schedule as Megatron's are: the loss of each micro-batch is divided by their number, then scaled."""
    calculators, config = sys.modules["megatron.core.num_microbatches_calculator"], model[0].config
    scale = config.grad_scale_func or (lambda loss: loss)
    for _ in range(num_microbatches):
        loss = forward_step_func(next(data_iterator)) / (1 if config.calculate_per_token_loss else num_microbatches)
        model[0].seen.append(calculators.get_num_microbatches())
        if not forward_only:
            model[0].gradient += scale(loss)


def documented():
    """Modules with the names that Megatron-Core documents."""
    calculator = types.SimpleNamespace(get=lambda: TOTAL // REPLICAS, get_current_global_batch_size=lambda: 2 * TOTAL)
    calculators = types.ModuleType("megatron.core.num_microbatches_calculator")
    setattr(calculators, megatron.CALCULATOR, calculator)
    calculators.get_num_microbatches = lambda: getattr(calculators, megatron.CALCULATOR).get()
    schedules = types.ModuleType("megatron.core.pipeline_parallel.schedules")
    for name in megatron.SCHEDULES:
        setattr(schedules, name, schedule)
    utils = types.ModuleType("megatron.core.utils")
    utils.get_model_config = lambda model: model.config
    found = {module.__name__: module for module in (calculators, schedules, utils)}
    parents = ("megatron", "megatron.core", "megatron.core.pipeline_parallel")
    return {**{name: types.ModuleType(name) for name in parents}, **found}


class Model:
    """One parameter, whose gradient is what the schedule adds up."""

    def __init__(self, per_token=False, scale=None):
        self.config = types.SimpleNamespace(grad_scale_func=scale, calculate_per_token_loss=per_token)
        self.gradient, self.seen = 0.0, []


class Documented(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "plan")
        self.modules = documented()
        patch = mock.patch.dict(sys.modules, self.modules)
        patch.start()
        self.addCleanup(patch.stop)

    def replica(self, number, **options):
        return Controller(self.path, **{"replica": number, "replicas": REPLICAS, "total": TOTAL, "agree": list, **options})

    def pass_of(self, model, data, name=megatron.SCHEDULES[0], **more):
        run = getattr(self.modules["megatron.core.pipeline_parallel.schedules"], name)
        each = self.modules["megatron.core.num_microbatches_calculator"].get_num_microbatches()
        run(forward_step_func=float, data_iterator=data, model=[model], num_microbatches=each, **more)

    def test_gradients_are_those_of_the_even_split(self):
        for name in megatron.SCHEDULES:
            for counts in [(4, 4, 4, 4), (5, 5, 5, 1), (7, 1, 4, 4)]:
                Plan(1, 0, counts).write(self.path)
                gradients, data = [], [float(loss * loss) for loss in range(TOTAL)]
                for number in range(REPLICAS):
                    controller, model = self.replica(number), Model(scale=lambda loss: 1024 * loss)
                    installed = megatron.install(controller)
                    self.pass_of(model, iter(data[sum(counts[:number]) :]), name)
                    self.assertEqual(model.seen, [counts[number]] * counts[number])
                    installed.remove()
                    gradients.append(model.gradient / 1024)
                self.assertAlmostEqual(sum(gradients) / REPLICAS, sum(data) / TOTAL, places=12)

    def test_outside_of_a_schedule_the_numbers_are_megatrons(self):
        Plan(1, 0, (5, 5, 5, 1)).write(self.path)
        scale, calculators = abs, self.modules["megatron.core.num_microbatches_calculator"]
        own = getattr(calculators, megatron.CALCULATOR)
        model, installed = Model(scale=scale), megatron.install(self.replica(3))
        for _ in range(2):
            self.pass_of(model, iter([1.0]))
            self.assertEqual((calculators.get_num_microbatches(), model.config.grad_scale_func), (4, scale))
        self.assertEqual(getattr(calculators, megatron.CALCULATOR).get_current_global_batch_size(), 2 * TOTAL)
        setattr(calculators, megatron.CALCULATOR, types.SimpleNamespace(get=lambda: 4))
        self.pass_of(model, iter([1.0]))
        self.assertEqual(model.seen, [1, 1, 1], "configured anew, and still planned")
        setattr(calculators, megatron.CALCULATOR, own)
        installed.remove()
        schedules = self.modules["megatron.core.pipeline_parallel.schedules"]
        self.assertEqual({getattr(schedules, name) for name in megatron.SCHEDULES}, {schedule})
        self.assertIs(getattr(calculators, megatron.CALCULATOR), own)

    def test_a_failed_step_leaves_nothing_behind(self):
        Plan(1, 0, (5, 5, 5, 1)).write(self.path)
        model = Model()
        self.addCleanup(megatron.install(self.replica(0)).remove)
        with self.assertRaises(StopIteration):
            self.pass_of(model, iter([1.0]))
        calculators = self.modules["megatron.core.num_microbatches_calculator"]
        self.assertEqual((calculators.get_num_microbatches(), model.config.grad_scale_func), (4, None))

    def test_evaluation_and_other_batch_sizes_are_left_alone(self):
        Plan(1, 0, (5, 5, 5, 1)).write(self.path)
        model, controller = Model(), self.replica(3)
        self.addCleanup(megatron.install(controller).remove)
        self.pass_of(model, iter([1.0] * 4), forward_only=True)
        with self.assertLogs("mycroft", "WARNING") as told:
            for _ in range(2):
                setattr(
                    self.modules["megatron.core.num_microbatches_calculator"],
                    megatron.CALCULATOR,
                    types.SimpleNamespace(get=lambda: 2),
                )
                self.pass_of(model, iter([1.0] * 2))
        self.assertEqual((model.seen, len(told.output)), ([4] * 4 + [2] * 4, 1))

    def test_losses_of_tokens_are_not_weighed(self):
        Plan(1, 0, (5, 5, 5, 1)).write(self.path)
        model = Model(per_token=True)
        self.addCleanup(megatron.install(self.replica(3)).remove)
        self.pass_of(model, iter([3.0]))
        self.assertEqual(model.gradient, 3.0)

    def test_a_step_that_is_run_again_is_the_same_step(self):
        controller, model = self.replica(0), Model()
        self.addCleanup(megatron.install(controller, step=lambda: 0).remove)
        self.pass_of(model, iter([1.0] * 4))
        Plan(1, 0, (5, 5, 5, 1)).write(self.path)
        self.pass_of(model, iter([1.0] * 4))
        self.assertEqual(model.seen, [4] * 8)


@unittest.skipIf(missing, missing)
class Released(unittest.TestCase):
    """The package that NVIDIA releases: its calculator, and its schedule without pipelining, on processors."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "plan")
        dist.init_process_group("gloo", init_method=f"file://{folder.name}/meet", rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        parallel_state.initialize_model_parallel()
        self.addCleanup(parallel_state.destroy_model_parallel)
        # The schedule counts tokens on a GPU.
        zeros = torch.zeros
        patch = mock.patch.object(torch, "zeros", lambda *size, device=None, **more: zeros(*size, **more))
        patch.start()
        self.addCleanup(patch.stop)
        init_num_microbatches_calculator(0, None, 2 * TOTAL, 2, REPLICAS)
        self.addCleanup(destroyed)

    def gradient(self, number, counts):
        """What one replica's backward passes leave, and the numbers that its forward passes saw."""
        torch.manual_seed(5)
        model, data = torch.nn.Linear(3, 1, dtype=torch.float64), torch.randn(TOTAL, 2, 3, dtype=torch.float64)
        model.config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
        model.model_type, model.set_input_tensor = ModelType.encoder_or_decoder, lambda _: None
        installed = megatron.install(
            Controller(self.path, replica=number, replicas=REPLICAS, total=TOTAL, agree=list)
        )
        seen = []

        def forward(batches, of):
            seen.append(get_num_microbatches())
            return of(next(batches)), lambda out: ((out**2).mean(), {"loss": out.detach()})

        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter(data[sum(counts[:number]) :]),
            model=[model],
            num_microbatches=get_num_microbatches(),
            seq_length=1,
            micro_batch_size=2,
        )
        installed.remove()
        self.assertEqual(get_num_microbatches(), TOTAL // REPLICAS)
        return model.weight.grad, seen

    def test_gradients_are_those_of_the_even_split(self):
        even = (TOTAL // REPLICAS,) * REPLICAS
        expected = sum(self.gradient(number, even)[0] for number in range(REPLICAS)) / REPLICAS
        for counts in [(5, 5, 5, 1), (7, 1, 4, 4)]:
            Plan(1, 0, counts).write(self.path)
            told = [self.gradient(number, counts) for number in range(REPLICAS)]
            self.assertEqual([seen for _, seen in told], [[count] * count for count in counts])
            torch.testing.assert_close(sum(grad for grad, _ in told) / REPLICAS, expected, rtol=1e-12, atol=1e-12)


if __name__ == "__main__":
    unittest.main()
