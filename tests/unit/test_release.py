"""What leaves the owner, of each kind, and what stays."""

import pytest
import torch
from small_fashion import BOARD, CPU, OWNER, same, splits, tiny
from torch.nn.functional import cross_entropy, one_hot

from harness.api import (
    CellFailed,
    Config,
    Encoded,
    EncodingDefense,
    GradientDefense,
    ReleaseKind,
    Secrets,
    TrainingDefense,
    UsageError,
)
from harness.running.encoding import source_of
from harness.running.inside import _local_batches
from harness.running.release import ReleaseProtocol, Stack, input_shape, release
from harness.running.samples import standardised
from harness.running.train import train
from harness.sandbox.rebuilding import cut_at, restore
from harness.store.artifacts import below
from harness_plugins.defenses.dpmeans import DpmeansConfig
from harness_plugins.defenses.dpmeans.sums import Dpmeans

DATA = splits()
PRIVATE = standardised(DATA.private, DATA.scale)
ENCODINGS, FEATURES, GRADIENTS, STATISTICS, UPDATES = ReleaseKind


class Pairs(EncodingDefense[Config]):
    """.75·x_i + .25·x_π(i), with a secret number for each encoding."""

    def encode(self, private, public, rng):
        partner = rng.permutation(len(private))
        truth = one_hot(private.labels, 10).float()
        return Encoded(
            images=0.75 * private.images + 0.25 * private.images[partner],
            labels=0.75 * truth + 0.25 * truth[partner],
            secrets=Secrets(
                weights=torch.tensor([0.75, 0.25]).expand(len(private), 2),
                sources=torch.stack([torch.arange(len(private)), partner], dim=1),
                extra={"partner": partner},
            ),
            resolved={"mean_energy": private.images.pow(2).mean().item()},
        )


class Broken(Pairs):
    """Pairs, with one thing changed."""

    def __init__(self, **changes):
        super().__init__(Config())
        self.changes = changes

    def encode(self, private, public, rng):
        made = super().encode(private, public, rng)
        secrets = {k: self.changes.get(k, getattr(made.secrets, k)) for k in vars(made.secrets)}
        given = {k: self.changes.get(k, getattr(made, k)) for k in ("images", "labels")}
        return Encoded(**given, secrets=Secrets(**secrets), resolved=made.resolved)


class Wavers(Pairs):
    """Calibrates on its own randomness."""

    def encode(self, private, public, rng):
        made = super().encode(private, public, rng)
        return Encoded(made.images, made.labels, made.secrets, {"r": rng.uniform(1).item()})


class Doubled(GradientDefense[Config]):
    def protect(self, gradients, rng):
        return {name: 2 * gradient for name, gradient in gradients.items()}


class Noise(GradientDefense[Config]):
    def protect(self, gradients, rng):
        return {name: g + rng.normal(*g.shape) for name, g in gradients.items()}


class Energy(TrainingDefense[Config]):
    def penalty(self, hidden, labels):
        return hidden.pow(2).mean()


PAIRS = Stack(encoding=("pairs", Pairs(Config())))
PLAIN = Stack()
SUMS = Stack(statistics=("dpmeans", Dpmeans(DpmeansConfig())))
STACKS = {kind: SUMS if kind is STATISTICS else PAIRS for kind in ReleaseKind}


def made(kind=ENCODINGS, stack=PAIRS, owner=OWNER, victim=None, rounds=1, **protocol):
    return release(
        DATA,
        source_of(DATA, stack.encoding, owner, rounds=rounds),
        stack,
        kind,
        victim or tiny(),
        ReleaseProtocol(**protocol),
        owner=owner,
        board=BOARD,
        device=CPU,
    )


def test_after_the_shuffle_rows_still_belong_together():
    out = made(rounds=3)
    weights, sources = out.secrets["weights"], out.secrets["sources"]
    assert out.tensors["encodings"].shape == (3, 24, 1, 28, 28)
    mixed = (weights[..., None, None, None] * PRIVATE.images[sources]).sum(dim=2)
    torch.testing.assert_close(out.tensors["encodings"], mixed)
    truth = (weights[..., None] * one_hot(PRIVATE.labels, 10)[sources]).sum(dim=2)
    torch.testing.assert_close(out.tensors["labels"], truth)
    assert torch.equal(out.secrets["extra.partner"], sources[..., 1])


def test_rows_are_in_a_secret_order_of_their_own_each_round():
    primary = made(rounds=2).secrets["sources"][..., 0]
    other = made(rounds=2, owner=OWNER.stream(key=2)).secrets["sources"][..., 0]
    orders = [tuple(row.tolist()) for row in (*primary, *other, torch.arange(24))]
    assert len(set(orders)) == 5
    assert all(sorted(order) == list(range(24)) for order in orders)


def test_a_release_is_the_same_bits_again_and_others_for_another_owner():
    first, second = made(rounds=2), made(rounds=2)
    assert same(first.tensors, second.tensors)
    assert same(first.secrets, second.secrets)
    assert not same(first.tensors, made(rounds=2, owner=OWNER.stream(key=2)).tensors)


def test_more_rounds_leave_the_first_ones_as_they_were():
    assert torch.equal(made(rounds=3).tensors["encodings"][:2], made(rounds=2).tensors["encodings"])


def test_resolved_parameters_are_public_by_defense():
    resolved = made().resolved
    assert resolved == {"pairs": {"mean_energy": PRIVATE.images.pow(2).mean().item()}}


def test_without_a_defense_the_standardised_images_leave_in_a_secret_order():
    out = made(stack=PLAIN)
    own = out.secrets["sources"][0, :, 0]
    assert torch.equal(out.tensors["encodings"][0], PRIVATE.images[own])
    assert torch.equal(out.tensors["labels"][0], one_hot(PRIVATE.labels[own], 10).float())
    assert torch.equal(out.secrets["weights"], torch.ones(1, 24, 1))
    assert out.resolved == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": torch.zeros(23, 1, 28, 28)}, r"images \[23, 1, 28, 28\].*wanted \[24"),
        ({"images": torch.zeros(24, 1, 28, 28).double()}, "float64"),
        ({"images": torch.full((24, 1, 28, 28), torch.inf)}, "not all finite"),
        ({"labels": torch.zeros(24, 11)}, r"labels \[24, 11\].*wanted \[24,10\]"),
        ({"labels": torch.full((24, 10), 0.11)}, "sum to 1.1"),
        ({"labels": torch.full((24, 10), -0.1)}, "negative"),
        ({"weights": torch.zeros(24)}, r"weights \[24\].*\[24,k\]"),
        ({"sources": torch.zeros(24, 2)}, "sources .*int64"),
        ({"sources": torch.full((24, 2), 56)}, r"outside 0\.\.55"),
        ({"extra": {"mask": torch.zeros(3)}}, "one row for each encoding: mask"),
    ],
)
def test_a_defense_that_breaks_its_contract_is_named(changes, message):
    with pytest.raises(CellFailed, match=f"'broken' returned.*{message}"):
        made(stack=Stack(encoding=("broken", Broken(**changes))))


def test_rounds_must_resolve_alike():
    with pytest.raises(CellFailed, match="'wavers' in round 1 resolved"):
        made(stack=Stack(encoding=("wavers", Wavers(Config()))), rounds=2)


def test_features_are_h_of_the_private_images_and_the_head_stays():
    out = made(FEATURES, PLAIN)
    encoder = below("feature_encoder.", out.tensors)
    assert all(name.startswith("body.") for name in encoder)
    assert set(out.tensors) == {"features", *(f"feature_encoder.{name}" for name in encoder)}
    h = restore(tiny(), input_shape(out), 10, encoder, cut=True)
    torch.testing.assert_close(out.tensors["features"], h(PRIVATE.images).detach())


def test_the_model_trained_for_features_is_the_victim_of_that_stack():
    out = made(FEATURES, PLAIN)
    model = train(out, tiny(), 10, BOARD, CPU)
    hits = (model(PRIVATE.images).argmax(dim=1) == PRIVATE.labels).float().mean().item()
    assert out.facts["train_accuracy"] == pytest.approx(hits)
    h, _ = cut_at(model, "body")
    torch.testing.assert_close(out.tensors["features"], h(PRIVATE.images).detach())


def test_features_of_a_mixture_come_from_a_model_trained_on_the_mixture():
    mixed, plain = made(FEATURES, PAIRS), made(FEATURES, PLAIN)
    assert mixed.tensors["features"].shape == plain.tensors["features"].shape
    assert not torch.equal(mixed.tensors["features"], plain.tensors["features"])
    assert "pairs" in mixed.resolved


def by_hand(out, images, labels, penalty=0.0):
    """Autograd's own gradient of one batch, at the released model, in training mode."""
    model = restore(tiny(), input_shape(out), 10, below("model.", out.tensors)).train()
    log_p = model(images).log_softmax(dim=1)
    loss = -(labels * log_p).sum(dim=1).mean() + penalty * model.body(images).pow(2).mean()
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_gradients_are_autograds_own_on_the_private_images_in_order(epochs):
    out = made(GRADIENTS, PLAIN, batches=3, batch_size=4, victim_epochs=epochs)
    labels = one_hot(PRIVATE.labels, 10).float()
    for i in range(3):
        rows = slice(4 * i, 4 * i + 4)
        for name, gradient in by_hand(out, PRIVATE.images[rows], labels[rows]).items():
            torch.testing.assert_close(out.tensors[f"gradients.{name}"][i], gradient)
        assert torch.equal(out.secrets["batch_labels"][i], labels[rows])
        assert out.secrets["sources"][i, :, 0].tolist() == list(range(4 * i, 4 * i + 4))


def test_gradients_of_mixed_batches_are_of_the_encodings_that_secrets_describe():
    out = made(GRADIENTS, PAIRS, batches=2, batch_size=4)
    weights, sources = out.secrets["weights"], out.secrets["sources"]
    assert sources.shape == (2, 4, 2)
    mixed = (weights[0][..., None, None, None] * PRIVATE.images[sources[0]]).sum(dim=1)
    for name, gradient in by_hand(out, mixed, out.secrets["batch_labels"][0]).items():
        torch.testing.assert_close(out.tensors[f"gradients.{name}"][0], gradient)


def test_penalties_are_part_of_the_gradient_that_leaves():
    stack = Stack(training=(("energy", Energy(Config())),))
    out = made(GRADIENTS, stack, batches=1, batch_size=4)
    labels = one_hot(PRIVATE.labels[:4], 10).float()
    for name, gradient in by_hand(out, PRIVATE.images[:4], labels, penalty=1.0).items():
        torch.testing.assert_close(out.tensors[f"gradients.{name}"][0], gradient)


def test_gradients_are_protected_before_they_leave():
    protected = made(GRADIENTS, Stack(gradient=(("doubled", Doubled(Config())),)), victim_epochs=0)
    bare = made(GRADIENTS, PLAIN, victim_epochs=0)
    assert same(below("model.", protected.tensors), below("model.", bare.tensors))
    for name, gradient in below("gradients.", bare.tensors).items():
        assert torch.equal(protected.tensors[f"gradients.{name}"], 2 * gradient)


def test_the_noise_of_each_gradient_is_its_own_and_the_owners():
    stack = Stack(gradient=(("noise", Noise(Config())),))
    name = "gradients.head.1.bias"
    bare = made(GRADIENTS, PLAIN, victim_epochs=0).tensors[name]
    noise = made(GRADIENTS, stack, victim_epochs=0).tensors[name] - bare
    again = made(GRADIENTS, stack, victim_epochs=0).tensors[name] - bare
    others = made(GRADIENTS, stack, OWNER.stream(key=2), victim_epochs=0).tensors[name] - bare
    assert torch.equal(noise, again)
    assert not torch.allclose(noise, others)
    assert not torch.allclose(noise[0], noise[1])


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_batchnorm_statistics_are_those_of_the_layers_input(mode):
    out = made(GRADIENTS, PLAIN, batches=2, batch_size=4, bn_mode=mode)
    model = restore(tiny(), input_shape(out), 10, below("model.", out.tensors))
    for i in range(2):
        entering = model.body.conv(PRIVATE.images[4 * i : 4 * i + 4]).detach()
        rows = entering.permute(1, 0, 2, 3).flatten(1)
        mean, var = rows.mean(dim=1), (rows - rows.mean(dim=1, keepdim=True)).pow(2).mean(dim=1)
        torch.testing.assert_close(out.secrets["bn_statistics.body.norm.mean"][i], mean)
        torch.testing.assert_close(out.secrets["bn_statistics.body.norm.var"][i], var)


def test_batchnorm_in_evaluation_mode_gives_another_gradient_at_the_same_model():
    train_mode = made(GRADIENTS, PLAIN, batch_size=4, batches=1)
    eval_mode = made(GRADIENTS, PLAIN, batch_size=4, batches=1, bn_mode="eval")
    assert same(below("model.", train_mode.tensors), below("model.", eval_mode.tensors))
    assert not same(below("gradients.", train_mode.tensors), below("gradients.", eval_mode.tensors))


# ---------------------------------------------------------------- updates


def sent(out):
    """The model that each party began with."""
    return restore(tiny(), input_shape(out), 10, below("model.", out.tensors)).train()


def rounding(out, lr):
    """What the last bit of the greatest weight is worth in a gradient."""
    most = max(float(w.abs().max()) for w in below("model.", out.tensors).values())
    return 2 * torch.finfo(torch.float32).eps * most / lr


@pytest.mark.parametrize("stack", [PLAIN, PAIRS], ids=["plain", "mixed"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_an_update_of_one_step_is_the_batchs_gradient(stack, epochs):
    asked = {"batches": 3, "batch_size": 4, "victim_epochs": epochs}
    gradients = made(GRADIENTS, stack, **asked)
    updates = made(UPDATES, stack, **asked, local_lr=0.05)
    assert same(below("model.", updates.tensors), below("model.", gradients.tensors))
    assert torch.equal(updates.secrets["batch_inputs"], gradients.secrets["batch_inputs"])
    for name, gradient in below("gradients.", gradients.tensors).items():
        followed = updates.tensors[f"updates.{name}"] / -0.05
        torch.testing.assert_close(followed, gradient, rtol=1e-6, atol=rounding(updates, 0.05))


def test_five_steps_are_those_of_torchs_sgd_and_no_five_times_one():
    asked = {"batches": 2, "batch_size": 4, "victim_epochs": 0, "local_lr": 0.1}
    out, once = made(UPDATES, PLAIN, **asked, local_steps=5), made(UPDATES, PLAIN, **asked)
    labels = one_hot(PRIVATE.labels, 10).float()
    for i in range(2):
        model, rows = sent(out), slice(4 * i, 4 * i + 4)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            sgd.zero_grad()
            cross_entropy(model(PRIVATE.images[rows]), labels[rows]).backward()
            sgd.step()
        for name, after in model.named_parameters():
            moved = after.detach() - out.tensors[f"model.{name}"]
            torch.testing.assert_close(out.tensors[f"updates.{name}"][i], moved)
    name = "updates.head.1.weight"
    apart = out.tensors[name] - 5 * once.tensors[name]
    assert float(apart.norm()) > 0.05 * float(out.tensors[name].norm())


def test_a_party_takes_its_images_in_turn_and_in_a_secret_order():
    asked = {"batches": 2, "batch_size": 1, "victim_epochs": 0, "local_lr": 0.1}
    several = {"local_steps": 6, "local_images": 3}
    out = made(UPDATES, PLAIN, **asked, **several)
    other = made(UPDATES, PLAIN, OWNER.stream(key=2), **asked, **several)
    assert out.secrets["batch_labels"].shape == (2, 3, 10)
    assert out.secrets["sources"][..., 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not same(below("updates.", out.tensors), below("updates.", other.tensors))
    protocol = ReleaseProtocol(**asked, **several)
    for party in range(20):
        taken = torch.stack(list(_local_batches(OWNER.stream(party=party), protocol)))
        assert taken.shape == (6, 1)
        assert [sorted(taken[k : k + 3].flatten().tolist()) for k in (0, 3)] == [[0, 1, 2]] * 2


def test_each_party_begins_with_what_was_sent():
    asked = {"batch_size": 2, "victim_epochs": 0, "local_steps": 4, "local_lr": 0.1}
    one, both = (made(UPDATES, PLAIN, batches=n, **asked) for n in (1, 2))
    for name, update in below("updates.", one.tensors).items():
        assert torch.equal(update[0], both.tensors[f"updates.{name}"][0])


def test_every_local_step_is_protected_with_noise_of_its_own():
    asked = {"batches": 1, "batch_size": 4, "victim_epochs": 0, "local_lr": 0.01}
    bare = made(UPDATES, PLAIN, **asked)
    doubled = made(UPDATES, Stack(gradient=(("doubled", Doubled(Config())),)), **asked)
    for name, update in below("updates.", bare.tensors).items():
        found = doubled.tensors[f"updates.{name}"]
        torch.testing.assert_close(found, 2 * update, rtol=1e-6, atol=rounding(bare, 1))
    noisy = Stack(gradient=(("noise", Noise(Config())),))
    name = "updates.body.conv.weight"
    walked = [
        made(UPDATES, noisy, **asked, local_steps=steps).tensors[name]
        - made(UPDATES, PLAIN, **asked, local_steps=steps).tensors[name]
        for steps in (1, 100)
    ]
    # Independent steps add up as their root; the same noise each time would as their number.
    grown = float(walked[1].norm() / walked[0].norm())
    assert 7 < grown < 14


def test_parties_with_more_images_than_there_are_is_a_usage_error():
    with pytest.raises(UsageError, match="7 batches of 4 need 28 images, and there are 24"):
        made(UPDATES, PLAIN, batches=7, batch_size=2, local_images=4, local_steps=2)


def test_more_batches_than_images_is_a_usage_error():
    with pytest.raises(UsageError, match="7 batches of 4 need 28 images, and there are 24"):
        made(GRADIENTS, PLAIN, batches=7, batch_size=4)


@pytest.mark.parametrize("kind", list(ReleaseKind))
def test_no_kind_moves_torchs_global_generator(kind):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    made(kind, STACKS[kind])
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("kind", list(ReleaseKind))
def test_what_leaves_holds_no_secret(kind):
    out = made(kind, STACKS[kind])
    hidden = {"weights", "sources", "batch_labels"}
    assert not hidden & set(out.tensors)
    assert not [n for n in out.tensors if n.startswith(("extra.", "bn_statistics.", "owner_"))]
    assert all(tensor.is_contiguous() for tensor in out.tensors.values())
    assert not any(tensor.requires_grad for tensor in out.tensors.values())
