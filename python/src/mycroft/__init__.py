"""Mycroft from Python: step marks.

Importing this package imports no framework and loads no library. `mycroft.hooks` counts steps of PyTorch, Lightning and
Transformers.
"""
from mycroft.marks import load, mark, step, watched

__all__ = [
    "load",
    "mark",
    "step",
    "watched",
]
