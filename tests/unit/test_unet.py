"""The U-Net attack on tiny pools: where it starts, what it needs, what it never does."""

import pytest
import torch
from views import (
    BUDGET,
    MIXTURE,
    attack,
    clothes,
    coloured,
    quiet,
    released,
    snr,
    view_of,
    with_prior,
)

from harness.api import Channel, Config, Scale
from harness_plugins.attacks.lmmse import LmmseConfig
from harness_plugins.attacks.lmmse.attack import Lmmse
from harness_plugins.attacks.unet import UNetConfig, conditioned, harness_attacks
from harness_plugins.attacks.unet.attack import UNetAttack
from harness_plugins.attacks.unet.evidence import weigh
from harness_plugins.attacks.unet.knowledge import Knowledge
from harness_plugins.attacks.unet.rows import released_rows
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.networks.training import best_share
from harness_plugins.networks.unet import UNet

pytestmark = pytest.mark.numeric

TINY = {"base": 4, "images": 300, "batch": 32}
PUBLIC = clothes(300, 1000)
LABELS = (Channel.LABELS,)


def singmix(**config):
    return Singmix(SingmixConfig(**config))


def class_means(view):
    images, labels = view.public.images[30:], view.public.labels[30:]
    return torch.stack([images[labels == label].mean(0) for label in range(10)])


@pytest.mark.parametrize("without", [(), LABELS, MIXTURE, (*MIXTURE, *LABELS)])
@pytest.mark.parametrize("size", [None, (17, 30)])
@pytest.mark.parametrize("variant", ["conditioned", "paper"])
def test_answers_have_the_shape_of_targets_whatever_is_granted(variant, size, without):
    scale = None if size is None else Scale((0.4,) * 3, (0.3,) * 3)
    shaped = clothes(24) if size is None else coloured(clothes(24), size)
    pool = PUBLIC[:80] if size is None else coloured(PUBLIC[:80], size)
    kept = {} if scale is None else {"scale": scale}
    view = released(singmix(radius=30.0), shaped, pool, rounds=2, without=without, **kept)
    found = attack(UNetAttack(UNetConfig(**TINY, variant=variant, epochs=1)), view)
    assert found.images.shape == shaped.images.shape
    assert torch.isfinite(found.images).all()
    named = found.rows if without[:1] == MIXTURE[:1] else found.targets
    assert torch.equal(named, torch.arange(24))


def test_without_training_or_evidence_the_answer_is_the_class_mean():
    private = clothes(60)
    view = released(singmix(tau=1e-12), private, PUBLIC)
    config = UNetConfig(**TINY, epochs=0)
    images = attack(UNetAttack(config), view).images
    torch.testing.assert_close(images, class_means(view)[private.labels], atol=1e-3, rtol=0)


def learned(view):
    """What is known before the release, and what is kept of an untrained network."""
    view = with_prior(view)
    prepared = conditioned.learn(view, UNetConfig(**TINY, epochs=0), BUDGET, quiet)
    return view, Knowledge.of(view, BUDGET, prepared), prepared


def test_the_network_starts_at_zero_so_the_answer_starts_at_the_linear_one():
    view, known, prepared = learned(released(singmix(tau=1.0), clothes(60), PUBLIC))
    evidence = weigh(known, [released_rows(view, known.subspace, 0)])
    share = float(prepared["shares"][0])
    images = conditioned.estimate(view, UNetConfig(**TINY, epochs=0), BUDGET, prepared)
    start = view.scale.clamp(evidence.mean + share * evidence.linear)
    torch.testing.assert_close(images, start)


def test_the_linear_evidence_is_that_of_the_best_linear_attack():
    view, known, _ = learned(released(singmix(tau=1.0), clothes(60), PUBLIC, rounds=2))
    rows = [released_rows(view, known.subspace, turn) for turn in range(2)]
    evidence = weigh(known, rows)
    best = attack(Lmmse(LmmseConfig()), view).images
    torch.testing.assert_close(
        view.scale.clamp(evidence.mean + evidence.linear), best, atol=2e-3, rtol=0
    )


def test_norm_and_label_tell_the_weight_where_it_is_not_granted():
    view = released(singmix(tau=1e-4), clothes(200), PUBLIC)
    told = view.weights[0, :, 0]
    errors = []
    for hidden in (MIXTURE, (*MIXTURE, *LABELS)):
        blind = {c: v for c, v in view.channels.items() if c not in hidden}
        blind_view, known, _ = learned(view_of(blind, clothes(200)))
        guess = known.weights(released_rows(blind_view, known.subspace, 0))[:, 0]
        errors.append(float((guess - told).abs().median()))
    assert errors[0] < 1e-6
    assert errors[1] < 0.01


def test_undefended_images_come_back():
    private = clothes(40)
    view = released(NoDefense(Config()), private, PUBLIC)
    found = attack(UNetAttack(UNetConfig(**TINY, epochs=0)), view)
    assert float(snr(found.images, private.images[found.targets]).mean()) > 15


def test_a_few_steps_of_training_serve_the_private_images_and_never_undercut_the_prior():
    private = clothes(200)
    for tau, gain in ((1.0, 2.0), (1e-4, -0.1)):
        view = released(singmix(tau=tau), private, PUBLIC)
        found = attack(UNetAttack(UNetConfig(**TINY, epochs=2)), view)
        truth = private.images[found.targets]
        null = class_means(view)[private.labels[found.targets]]
        assert float(snr(found.images, truth).mean()) > float(snr(null, truth).mean()) + gain


def test_every_round_adds_to_the_answer():
    private = clothes(100)
    config = UNetConfig(**TINY, epochs=0)
    scores = []
    for rounds in (1, 8):
        view = released(singmix(tau=1e-1), private, PUBLIC, rounds=rounds)
        found = attack(UNetAttack(config), view)
        scores.append(float(snr(found.images, private.images[found.targets]).mean()))
    assert scores[1] > scores[0] + 0.5


def test_an_upsampled_release_is_answered_at_the_targets_size():
    private = clothes(20)
    view = released(singmix(tau=1.0, resolution=48), private, PUBLIC[:60])
    for variant in ("conditioned", "paper"):
        config = UNetConfig(**TINY, variant=variant, epochs=1)
        assert attack(UNetAttack(config), view).images.shape == (20, 1, 28, 28)


def test_equal_seeds_give_equal_answers():
    view = released(singmix(tau=1.0), clothes(20), PUBLIC[:100])
    config = UNetConfig(**TINY, epochs=1)
    assert torch.equal(
        attack(UNetAttack(config), view).images, attack(UNetAttack(config), view).images
    )


@pytest.mark.parametrize("flat", [False, True])
def test_features_are_decoded(flat):
    private = clothes(40)
    layers = [torch.nn.AvgPool2d(4)] + [torch.nn.Flatten()] * flat
    encoder = torch.nn.Sequential(*layers)
    channels = {
        Channel.FEATURES: encoder(private.images),
        Channel.FEATURE_ENCODER: encoder,
        Channel.PUBLIC: PUBLIC,
    }
    view = view_of(channels, private)
    found = attack(UNetAttack(UNetConfig(**TINY, epochs=8)), view)
    mean = PUBLIC.images.mean(0).expand_as(private.images)
    gain = snr(found.images, private.images[found.targets]) - snr(mean, private.images)
    assert float(gain.mean()) > 0.5


def test_a_change_for_the_worse_gets_no_share():
    truth = torch.ones(4, 1, 2, 2)
    start = torch.zeros(4, 1, 2, 2)
    assert best_share(start, -truth, truth, lambda x: x)[0] == 0
    assert best_share(start, 2 * truth, truth, lambda x: x)[0] == 0.5


def test_the_papers_network_has_its_channels():
    network = UNet(3, 3, 48, normalised=False, from_zero=False)
    widths = [block[0].out_channels for block in network.down]
    assert widths == [48, 96, 192, 384]
    assert network(torch.zeros(1, 3, 30, 41)).shape == (1, 3, 30, 41)


def test_presets_are_valid_and_the_paper_is_to_the_letter():
    (spec,) = harness_attacks()
    presets = {name: UNetConfig(**values) for name, values in spec.presets.items()}
    paper = presets["paper"]
    assert (paper.variant, paper.base, paper.epochs, paper.batch, paper.lr) == (
        "paper", 48, 30, 32, 1e-3
    )  # fmt: skip
