"""Views of masked mixtures with what the attacks' preparations would have made."""

import importlib
from dataclasses import replace

import torch
from views import BUDGET, clothes, quiet, released

from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide

PUBLIC = clothes(900, 100)
_MADE = {}


def masked(n=100, rounds=1, without=(), **config):
    """A release of `n` clothes under InstaHide."""
    defense = InstaHide(InstaHideConfig(**config))
    return released(defense, clothes(n), PUBLIC, rounds=rounds, without=without)


def prepared(view, spec, config):
    """The view with the tensors of an attack's preparations, made once as the engine does."""
    shared = {}
    for preparation in spec.preparations:
        if preparation.channels <= view.granted:
            made = _made(view, preparation, config)
            shared |= {f"{preparation.name}.{key}": value for key, value in made.items()}
    return replace(view, shared=shared)


def _made(view, preparation, config):
    channels = {c: view.channels[c] for c in preparation.channels}
    options = {name: getattr(config, name) for name in preparation.options}
    options |= preparation.constants
    law = repr(view.encoder.config) if "encoder" in channels else ""
    key = (preparation.factory, repr(options), law, view.public.images.data_ptr())
    if key not in _MADE:
        module, name = preparation.factory.split(":")
        factory = getattr(importlib.import_module(module), name)
        narrow = replace(view, channels=channels, granted=frozenset(channels))
        torch.manual_seed(0)
        _MADE[key] = factory(narrow, BUDGET, quiet, **options), view.public
    return _MADE[key][0]
