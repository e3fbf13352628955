"""Native files that the package carries, or not."""
import contextlib
import io
import os
import tempfile
import unittest
from unittest import mock

from mycroft import __main__ as command
from mycroft import native


class Native(unittest.TestCase):
    def told(self, folder):
        """Exit code, output and errors of `env`, for a package that lies in this folder."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(native, "__file__", os.path.join(folder, "native.py")):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return command.main(["env"]), out.getvalue(), err.getvalue()

    def test_the_variable_is_printed_for_a_shell(self):
        with tempfile.TemporaryDirectory(suffix=" x") as folder:
            os.mkdir(os.path.join(folder, "libexec"))
            plugin = os.path.join(folder, "libexec", native.PLUGIN)
            with open(plugin, "wb"):
                pass
            self.assertEqual(self.told(folder), (0, f"export NCCL_PROFILER_PLUGIN='{plugin}'\n", ""))

    def test_without_native_files_it_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = self.told(folder)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("install the wheel for this platform", err)
            with mock.patch.object(native, "__file__", os.path.join(folder, "native.py")):
                self.assertIsNone(native.path(native.PROGRAM))
                with contextlib.redirect_stderr(io.StringIO()):
                    self.assertEqual(native.run(), 2)


if __name__ == "__main__":
    unittest.main()
