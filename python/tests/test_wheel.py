"""The wheel: built, installed and imported, where pip and setuptools are there (no network is asked)."""
import glob
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULES = {name for name in os.listdir(os.path.join(PACKAGE, "src/mycroft")) if name.endswith((".py", ".typed"))}


def version(name):
    """The first number of an installed package's version, 0 where it is not."""
    try:
        return int(importlib.metadata.version(name).split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return 0


@unittest.skipIf(version("setuptools") < 77 or not version("pip"), "no pip, or no setuptools of version 77 or later")
class Wheel(unittest.TestCase):
    def test_it_is_built_installed_and_imported(self):
        with tempfile.TemporaryDirectory() as folder:
            source, pip = os.path.join(folder, "source"), [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
            shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
            options = ["--no-deps", "--no-index"]
            subprocess.run([*pip, "wheel", *options, "--no-build-isolation", "-w", folder, source], check=True)
            wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
            self.assertEqual(len(wheels), 1, wheels)
            self.assertTrue(wheels[0].endswith("-py3-none-any.whl"))
            target = os.path.join(folder, "target")
            subprocess.run([*pip, "install", *options, "--target", target, os.path.join(folder, wheels[0])], check=True)
            self.assertEqual(MODULES - set(os.listdir(os.path.join(target, "mycroft"))), set())
            entries = glob.glob(os.path.join(target, "mycroft-*.dist-info/entry_points.txt"))
            with open(entries[0], encoding="ascii") as file:
                self.assertIn("[torchrun.handlers]\nmycroft = mycroft.rendezvous:handler\n", file.read())
            asked = "import mycroft; print(mycroft.__file__, mycroft.mark(1))"
            path = {**os.environ, "PYTHONPATH": target}
            said = subprocess.run([sys.executable, "-c", asked], env=path, stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(said.stdout, f"{target}/mycroft/__init__.py False\n")


if __name__ == "__main__":
    unittest.main()
