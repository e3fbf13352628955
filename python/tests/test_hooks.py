"""Step marks without a library, and from the callbacks of frameworks."""
import gc
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import mycroft
from mycroft import hooks, marks
from mycroft.hooks import OptimizerSteps


class Optimizer:
    """Something that steps."""


class Told:
    """Marks instead of a library's."""

    def __init__(self, test):
        self.steps = []
        patch = mock.patch.object(marks._marks._libraries, "functions", lambda: [lambda step: self.steps.append(step) or 0])
        patch.start()
        test.addCleanup(patch.stop)


class Marks(unittest.TestCase):
    def test_without_a_library_nothing_is_recorded(self):
        self.assertEqual((mycroft.mark(), mycroft.watched()), (False, False))
        with mycroft.step() as recorded:
            self.assertFalse(recorded)

    def test_numbers_go_on_from_the_last(self):
        told = Told(self)
        for number in (5, None, 9, None, None):
            self.assertTrue(mycroft.mark(number))
        self.assertEqual(told.steps, [5, 6, 9, 10, 11])
        for number in (-1, 2**64):
            with self.assertRaises(ValueError):
                mycroft.mark(number)

    def test_all_libraries_are_told(self):
        told = []
        functions = [lambda step: told.append(("a", step)) or 1, lambda step: told.append(("b", step)) or 0]
        with mock.patch.object(marks._marks._libraries, "functions", lambda: functions):
            self.assertTrue(mycroft.mark(3))
        self.assertEqual(told, [("a", 3), ("b", 3)])

    def test_what_cannot_be_loaded_is_an_error_of_the_system(self):
        with self.assertRaises(OSError):
            mycroft.load("/nowhere/libmycroft_nccl.so")

    def test_importing_it_imports_no_framework(self):
        script = "import sys, mycroft, mycroft.hooks, mycroft.pytorch, mycroft.megatron, mycroft.exclude\n"
        script += "print({name.split('.')[0] for name in sys.modules} & {'torch', 'lightning', 'transformers', 'megatron'})"
        path = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(mycroft.__file__))}
        said = subprocess.run([sys.executable, "-c", script], env=path, stdout=subprocess.PIPE, check=True, text=True)
        self.assertEqual(said.stdout, "set()\n")


class Optimizers(unittest.TestCase):
    def setUp(self):
        self.told = []

    def test_several_optimizers_are_one_step(self):
        hook, optimizers = OptimizerSteps(start=10, tell=self.told.append), [Optimizer() for _ in range(3)]
        for _ in range(4):
            for optimizer in optimizers:
                hook(optimizer)
        self.assertEqual(self.told, [11, 12, 13, 14])

    def test_one_that_is_named_counts_alone(self):
        generator, discriminator = Optimizer(), Optimizer()
        hook = OptimizerSteps(generator, tell=self.told.append)
        for _ in range(3):
            for optimizer in (discriminator, discriminator, generator):
                hook(optimizer)
        self.assertEqual(self.told, [1, 2, 3])

    def test_an_optimizer_that_is_gone_is_not_waited_for(self):
        hook, first = OptimizerSteps(tell=self.told.append), Optimizer()
        hook(first)
        del first
        gc.collect()
        second = Optimizer()
        for _ in range(2):
            hook(second)
        self.assertEqual(self.told, [1, 2, 3])


class Frameworks(unittest.TestCase):
    """The callbacks' names and arguments as documented."""

    def test_lightning_marks_once_for_accumulated_batches(self):
        told, base = Told(self), type("Callback", (), {})
        for name in ("lightning", "pytorch_lightning"):
            with mock.patch.dict(sys.modules):
                pytorch = types.SimpleNamespace(Callback=base)
                if name == "lightning":
                    sys.modules.update({"lightning": types.SimpleNamespace(pytorch=pytorch), "lightning.pytorch": pytorch})
                else:
                    sys.modules.update({"lightning": None, "pytorch_lightning": pytorch})
                callback = hooks.lightning_callback(start=3)
            self.assertIsInstance(callback, base)
            trainer = types.SimpleNamespace(accumulate_grad_batches=4)
            for _ in range(2):  # Passes of ten batches: 4 + 4 + 2.
                for batch in range(10):
                    callback.on_train_batch_start(trainer, None, None, batch)
            self.assertEqual(told.steps, [3, 4, 5, 6, 7, 8])
            told.steps.clear()

    def test_transformers_marks_by_the_number_of_the_trainer(self):
        told, base = Told(self), type("TrainerCallback", (), {})
        with mock.patch.dict(sys.modules, {"transformers": types.SimpleNamespace(TrainerCallback=base)}):
            callback = hooks.transformers_callback()
        for step in (0, 1, 7):
            callback.on_step_begin(None, types.SimpleNamespace(global_step=step), None, model=None)
        self.assertEqual((isinstance(callback, base), told.steps), (True, [0, 1, 7]))

    def test_the_released_lightning_marks_each_step_once(self):
        try:
            import lightning.pytorch as lightning
            import torch
        except Exception as error:
            self.skipTest(f"lightning cannot be imported here: {error}")

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def training_step(self, batch, _):
                return self.layer(batch).sum()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        told, off = Told(self), {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            max_epochs=2,
            accumulate_grad_batches=4,
            callbacks=[hooks.lightning_callback()],
            accelerator="cpu",
            enable_model_summary=False,
            **off,
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(10, 2)))
        self.assertEqual((told.steps, trainer.global_step), (list(range(6)), 6))

    def test_the_released_trainer_marks_each_step_once(self):
        try:
            import torch
            from transformers import Trainer, TrainingArguments
        except Exception as error:
            self.skipTest(f"transformers cannot be imported here: {error}")

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def forward(self, x):
                return {"loss": self.layer(x).sum()}

        told = Told(self)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=1,
                gradient_accumulation_steps=4,
                num_train_epochs=2,
                report_to=[],
                save_strategy="no",
                use_cpu=True,
                disable_tqdm=True,
            )
            data = [{"x": torch.randn(2)} for _ in range(8)]
            Trainer(Model(), arguments, train_dataset=data, callbacks=[hooks.transformers_callback()]).train()
        self.assertEqual(told.steps, [0, 1, 2, 3])


if __name__ == "__main__":
    unittest.main()
