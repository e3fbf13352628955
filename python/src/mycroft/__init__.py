"""Mycroft from Python: step marks, micro-batch plans and exclusion lists.

Importing this package imports no framework and loads no library. `mycroft.hooks` counts steps of PyTorch, Lightning and
Transformers, `mycroft.pytorch` and `mycroft.megatron` carry micro-batch plans out, `mycroft.exclude` and
`mycroft.rendezvous` speak to schedulers.
"""
from mycroft.controller import Controller, Share, TooFarAhead
from mycroft.data import MicroBatchSampler
from mycroft.marks import load, mark, step, watched
from mycroft.plan import Plan, PlanError

__all__ = [
    "Controller",
    "MicroBatchSampler",
    "Plan",
    "PlanError",
    "Share",
    "TooFarAhead",
    "load",
    "mark",
    "step",
    "watched",
]
