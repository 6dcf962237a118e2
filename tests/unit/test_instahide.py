"""InstaHide against algorithm 2 of its paper, scheme by scheme."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import one_hot, softmax
from views import clothes, coloured, stream

from harness.api import CellFailed, Samples
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.instahide.patches import draw_different
from harness_plugins.sign_masks import _flip_on_device, draw_masks, flip_signs


def defense(**config):
    return InstaHide(InstaHideConfig(**config))


def encode(private, public=None, seed=0, **config):
    public = private[:0] if public is None else public
    return defense(**config).encode(private, public, stream(use="owner", seed=seed))


def flat(samples):
    """The same samples as vectors [n, d]: public ones are then mixed whole."""
    return Samples(samples.images.flatten(1), samples.labels)


def signs(encoded):
    """The secret masks as ±1 [n, d]."""
    values = encoded.images[0].numel()
    bits = np.unpackbits(encoded.secrets.extra["masks"].numpy(), axis=1, count=values)
    return torch.from_numpy(1 - 2 * bits.astype(np.float32))


def mixture(encoded, pool):
    """The mixture by its definition, image by image, in float64."""
    w, s = encoded.secrets.weights.double(), encoded.secrets.sources
    return (w.unsqueeze(-1) * pool.flatten(1).double()[s]).sum(1)


configs = st.one_of(
    st.tuples(st.just("inside"), st.integers(1, 6)), st.tuples(st.just("cross"), st.integers(3, 6))
)


@settings(max_examples=12, deadline=None)
@given(configs, st.sampled_from(["uniform", "half-normal"]), st.integers(0, 1000))
def test_encodings_are_the_masked_mixture_of_their_secrets(scheme, weights, seed):
    private, public = flat(clothes(40)), flat(clothes(30, start=40))
    config = InstaHideConfig(scheme=scheme[0], k=scheme[1], weights=weights)
    encoded = InstaHide(config).encode(private, public, stream(seed=seed))
    own = config.privates
    w, s = encoded.secrets.weights, encoded.secrets.sources
    torch.testing.assert_close(w.sum(1), torch.ones(40))
    assert w.max() <= config.max_weight or config.k == 1
    assert (w[:, :own].sum(1) >= config.min_private - 1e-6).all()
    assert torch.equal(s[:, 0], torch.arange(40))
    assert (s[:, :own] < 40).all()
    assert (s[:, own:] >= 40).all()
    assert all(len(set(row)) == config.k for row in s.tolist())
    explicit = mixture(encoded, torch.cat([private.images, public.images]))
    rounding = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(encoded.images.double(), signs(encoded) * explicit, **rounding)
    torch.testing.assert_close(encoded.images.abs().double(), explicit.abs(), **rounding)
    hard = one_hot(private.labels, 10).float()
    soft = (w[:, :own, None] * hard[s[:, :own]]).sum(1)
    torch.testing.assert_close(encoded.labels, soft)
    torch.testing.assert_close(encoded.labels.sum(1), w[:, :own].sum(1))


def test_cross_labels_are_not_renormalised():
    encoded = encode(flat(clothes(50)), flat(clothes(50, start=50)), scheme="cross", k=6)
    mass = encoded.labels.sum(1)
    assert mass.max() < 1
    assert mass.min() >= 0.3 - 1e-6
    assert mass.mean() < 0.6


def test_one_image_is_masked_and_not_mixed():
    private = clothes(30)
    encoded = encode(private, k=1)
    assert torch.equal(encoded.images.abs(), private.images.abs())
    assert torch.equal(encoded.labels.argmax(1), private.labels)
    assert torch.equal(encoded.secrets.weights, torch.ones(30, 1))


def test_labels_of_private_images_are_mixed_only_with_private_ones():
    # public labels are all of a class that no private image has
    private, public = flat(clothes(40)), flat(clothes(40, start=40))
    private = Samples(private.images, private.labels % 9)
    public = Samples(public.images, torch.full((40,), 9))
    assert encode(private, public, scheme="cross", k=4).labels[:, 9].max() == 0


@pytest.mark.parametrize("prng", ["shake256", "mt19937"])
def test_masks_are_balanced_and_independent_across_values_images_and_rounds(prng):
    rng = stream(use="masks")
    n, values = 400, 1000
    rounds = [
        1 - 2.0 * np.unpackbits(draw_masks(n, values, rng, prng).numpy(), axis=1, count=values)
        for _ in range(2)
    ]
    first, second = rounds
    bound = 5 / np.sqrt(n * values)  # five deviations of a mean of fair signs
    assert abs(first.mean()) < bound
    assert abs((first[:, 1:] * first[:, :-1]).mean()) < bound
    assert abs((first[1:] * first[:-1]).mean()) < bound
    assert abs((first * second).mean()) < bound
    assert abs(first.mean(0)).max() < 5.5 / np.sqrt(n)
    assert abs(first.mean(1)).max() < 5.5 / np.sqrt(values)


def test_a_weak_mask_is_rebuilt_from_32_bits():
    rng = stream(use="weak")
    masks = draw_masks(20, 100, rng, "mt19937")
    seed = int.from_bytes(stream(use="weak").bytes(4), "little")
    again = np.frombuffer(np.random.RandomState(seed).bytes(20 * 13), np.uint8).reshape(20, 13)
    assert np.array_equal(masks.numpy(), again)
    assert not torch.equal(masks, draw_masks(20, 100, stream(use="weak"), "shake256"))


def test_a_strong_mask_is_the_cryptographic_stream_itself():
    masks = draw_masks(20, 100, stream(use="strong"), "shake256")
    assert masks.numpy().tobytes() == stream(use="strong").bytes(20 * 13)


@pytest.mark.parametrize("values", [1, 7, 8, 100, 3072])
def test_a_set_bit_flips_a_sign_and_nothing_else(values):
    images = torch.randn(60, values)
    masks = draw_masks(60, values, stream(values=values), "shake256")
    bits = np.unpackbits(masks.numpy(), axis=1, count=values)
    in_cache, on_device = images.clone(), images.clone()
    flip_signs(in_cache, masks)
    _flip_on_device(on_device, masks)
    assert torch.equal(in_cache, images * torch.from_numpy(1 - 2.0 * bits).float())
    assert torch.equal(in_cache, on_device)


def test_every_call_draws_anew():
    rng = stream(use="owner")
    private = clothes(30)
    first, second = (defense().encode(private, private[:0], rng) for _ in range(2))
    for a, b in (
        (first.secrets.extra["masks"], second.secrets.extra["masks"]),
        (first.secrets.weights, second.secrets.weights),
        (first.secrets.sources, second.secrets.sources),
    ):
        assert not torch.equal(a, b)


def same(a, b):
    tensors = [(e.images, e.labels, e.secrets.weights, e.secrets.sources) for e in (a, b)]
    return all(torch.equal(x, y) for x, y in zip(*tensors, strict=True)) and torch.equal(
        a.secrets.extra["masks"], b.secrets.extra["masks"]
    )


@pytest.mark.parametrize(
    "config",
    [
        {"k": 4},
        {"k": 4, "prng": "mt19937"},
        {"k": 2, "augment": "crop-flip"},
        {"k": 2, "augment": "affine"},
        {"k": 5, "scheme": "cross"},
    ],
)
def test_the_same_stream_gives_the_same_bits_on_any_number_of_threads(config):
    private, public = coloured(clothes(150), (32, 32)), coloured(clothes(60, start=150), (32, 32))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = encode(private, public, **config)
        torch.set_num_threads(2)
        assert same(alone, encode(private, public, **config))
        assert not same(alone, encode(private, public, seed=1, **config))
    finally:
        torch.set_num_threads(threads)


def test_numbers_drawn_for_a_row_differ_and_are_uniform():
    drawn = draw_different(6000, 3, 5, stream(use="different"))
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    for column in drawn.unbind(1):
        assert (column.bincount(minlength=5) - 1200).abs().max() < 5 * 31  # sd of a binomial
    assert torch.equal(draw_different(9, 4, 4, stream()).sort(1).values[0], torch.arange(4))


class Counting(torch.nn.Module):
    """Keeps what it is asked about; its logits are the first ten values."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, images):
        self.seen.append(images)
        return images.flatten(1)[:, :10] * 3


@pytest.mark.parametrize("scheme", ["inside", "cross"])
def test_inference_averages_predictions_of_as_many_encodings(scheme):
    private, public, test = clothes(40), clothes(40, start=40), clothes(25, start=80)
    model, chosen = Counting(), defense(infer=7, k=4, scheme=scheme)
    assert chosen.infers
    found = chosen.infer(model, test.images, private, public, stream(use="test"))
    assert len(model.seen) == 7
    assert not any(torch.equal(model.seen[0].abs(), other.abs()) for other in model.seen[1:])
    mean = torch.stack([softmax(x.flatten(1)[:, :10] * 3, 1) for x in model.seen]).mean(0)
    torch.testing.assert_close(found.exp(), mean)


def test_a_test_image_takes_the_place_of_the_primary_one():
    # private images are zero: what is left of an encoding is the test image times its weight
    test = clothes(60)
    private = Samples(torch.zeros(20, 1, 28, 28), torch.arange(20) % 10)
    model = Counting()
    defense(infer=1, k=4).infer(model, test.images, private, private[:0], stream())
    shares = model.seen[0].abs().flatten(1) / test.images.abs().flatten(1)
    torch.testing.assert_close(shares, shares[:, :1].expand_as(shares))
    assert shares.min() > 0
    assert shares.max() <= 0.65 + 1e-5
    assert shares[:, 0].std() > 0.05


def test_without_encoded_inference_the_model_sees_the_image():
    plain, model, test = defense(infer=0), Counting(), clothes(5)
    assert not plain.infers
    logits = plain.infer(model, test.images, test, test, stream())
    assert len(model.seen) == 1
    assert torch.equal(logits, test.images.flatten(1)[:, :10] * 3)


def test_too_few_images_are_refused():
    private = clothes(10)
    with pytest.raises(CellFailed, match="k=4"):
        encode(private[:3], k=4)
    with pytest.raises(CellFailed, match=r"4 different public images.* has 0 of 0"):
        encode(private, private[:0], k=6, scheme="cross")
    with pytest.raises(CellFailed, match="3 different images"):
        defense(k=4).infer(Counting(), private.images, private[:2], private, stream())


MEASURE = """
import sys
import torch
from pathlib import Path
from harness.api import Samples
from harness.rng import KeyedStream
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

def encode(n):
    private = Samples(torch.rand(n, 3, 64, 64), torch.arange(n) % 10)
    defense = InstaHide(InstaHideConfig(k=4, scheme=sys.argv[1], augment=sys.argv[2]))
    public = private[:100]
    before = peak()
    release = defense.encode(private, public, KeyedStream(b"")).images
    return (peak() - before) / (release.numel() * 4)

torch.set_num_threads(1)
encode(100)
print(encode(4000))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's peak memory")
@pytest.mark.parametrize(("scheme", "augment"), [("inside", "none"), ("cross", "crop-flip")])
def test_encoding_never_holds_a_second_release(scheme, augment):
    command = [sys.executable, "-c", MEASURE, scheme, augment]
    measured = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.8 < float(measured.stdout) < 1.6
