"""The singularized-mixup paper's classifier."""

import pytest
import torch
from pydantic import ValidationError
from small_fashion import built_in, splits
from torch import nn

from harness.rng import KeyedStream
from harness.running.training import fit, fresh
from harness.sandbox.rebuilding import cut_at
from harness_plugins.victims.paper_head import PaperHeadConfig, harness_victims

CPU = torch.device("cpu")


def test_its_layers_are_those_of_equation_8():
    model = built_in("paper_head").build((512, 2, 2), classes=7)
    layers = [layer for layer in model.modules() if not isinstance(layer, nn.Sequential)]
    dense = [nn.Linear, nn.BatchNorm1d, nn.GELU, nn.Dropout]
    assert [type(layer) for layer in layers] == [nn.Flatten, *dense, *dense, nn.Linear]
    sizes = [(x.in_features, x.out_features) for x in layers if isinstance(x, nn.Linear)]
    assert sizes == [(2048, 1024), (1024, 512), (512, 7)]
    assert {x.p for x in layers if isinstance(x, nn.Dropout)} == {0.5}


def test_the_default_cut_leaves_1024_units():
    victim = built_in("paper_head")
    h, g = cut_at(victim.build((4, 3, 3), 10).eval(), victim.config.cut)
    features = torch.rand(2, 4, 3, 3)
    assert h(features).shape == (2, 1024)
    assert g(h(features)).shape == (2, 10)


def test_every_block_is_a_cut_and_the_parts_compose_to_the_whole():
    model = built_in("paper_head").build((4, 3, 3), 10).eval()
    features = torch.rand(3, 4, 3, 3)
    for block in ("flatten", "hidden1", "hidden2"):
        h, g = cut_at(model, block)
        assert torch.equal(g(h(features)), model(features))


def test_the_paper_preset_is_its_appendix_e():
    config = built_in("paper_head", "paper").config
    assert (config.epochs, config.batch_size) == (200, 128)
    assert (config.optimizer, config.lr, config.weight_decay) == ("adamw", 1e-3, 1e-4)
    assert config.schedule == "cosine"


@pytest.mark.parametrize(
    ("option", "value"),
    [("epochs", 0), ("batch_size", 1), ("lr", 0), ("lr", float("nan")), ("weight_decay", -1)],
)
def test_nonsense_is_refused_by_name(option, value):
    with pytest.raises(ValidationError, match=option):
        PaperHeadConfig(**{option: value})


def test_it_learns_real_images_in_the_quick_preset():
    (spec,) = harness_victims()
    assert spec.presets["quick"] == {"epochs": 6}
    data = splits(private=1000, public=0, test=500)
    train, test = (part.standardised(data.scale) for part in (data.private, data.test))
    labels = torch.nn.functional.one_hot(train.labels, 10).float()
    victim, stream = built_in("paper_head"), KeyedStream(b"paper head")
    model = fresh(victim, (1, 28, 28), 10, stream, device=CPU)
    fit(model, train.images[None], labels[None], victim.config, stream, device=CPU)
    with torch.no_grad():
        right = (model(test.images).argmax(1) == test.labels).float().mean()
    assert right > 0.7
