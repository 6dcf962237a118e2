"""The training loop: what it computes, what defenses may do to it, what it leaves behind."""

import pytest
import torch
from pydantic import ValidationError
from small_fashion import BOARD, CPU, same, splits, tiny
from torch.nn.functional import one_hot

from harness.api import (
    CellFailed,
    Config,
    GradientDefense,
    Recipe,
    TrainingDefense,
    UsageError,
)
from harness.api.training import spans
from harness.running.release import Stack
from harness.running.samples import standardised
from harness.running.training import (
    Batches,
    EpochClock,
    fit,
    fresh,
    gradient_streams,
    objective,
    rate,
    state,
)
from harness.sandbox.rebuilding import cut_at, restore


@pytest.fixture(scope="module")
def material():
    data = splits()
    private = standardised(data.private, data.scale)
    return private.images[None], one_hot(private.labels, 10).float()[None]


def trained(material, stream=BOARD, stack=None, **recipe):
    victim = tiny(**recipe)
    model = fresh(victim, (1, 28, 28), 10, stream, device=CPU)
    return fit(model, *material, victim.config, stream, device=CPU, stack=stack)


class Shrinks(TrainingDefense[Config]):
    """Pulls h(x) towards zero."""

    def penalty(self, hidden, labels):
        assert labels.shape == (len(hidden), 10)
        return 10 * hidden.pow(2).mean()


class TenthOfTheRate(TrainingDefense[Config]):
    """Replaces the optimiser before the first step."""

    def prepare(self, model, optimizer, loader, *, epochs, rng):
        return model, torch.optim.SGD(model.parameters(), lr=1e-9), loader


class OnlyHead(GradientDefense[Config]):
    """Keeps the gradients of the head and zeroes the others."""

    def protect(self, gradients, rng):
        return {n: g if n.startswith("head") else torch.zeros_like(g) for n, g in gradients.items()}


class Noise(GradientDefense[Config]):
    def protect(self, gradients, rng):
        return {name: g + rng.normal(*g.shape) for name, g in gradients.items()}


class Forgets(GradientDefense[Config]):
    def protect(self, gradients, rng):
        return {}


def test_one_step_of_sgd_is_the_step_computed_by_hand(material):
    images, labels = material
    soft = 0.7 * labels + 0.2 * labels.roll(1, dims=1)
    recipe = {"epochs": 1, "batch_size": 24, "optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0}
    before = fresh(tiny(), (1, 28, 28), 10, BOARD, device=CPU)
    log_p = before(images[0]).log_softmax(dim=1)
    loss = -(soft[0] * log_p).sum(dim=1).mean()
    gradients = torch.autograd.grad(loss, list(before.parameters()))
    after = trained((images, soft), **recipe)
    for old, gradient, new in zip(before.parameters(), gradients, after.parameters(), strict=True):
        torch.testing.assert_close(new, old - 0.5 * gradient)


def test_the_same_stream_trains_the_same_bits_and_another_does_not(material):
    first, second = state(trained(material)), state(trained(material))
    other = state(trained(material, BOARD.stream(run=2)))
    assert same(first, second)
    assert not same(first, other)


def test_torchs_global_generator_is_left_as_it_was(material):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    trained(material)
    assert torch.equal(before, torch.random.get_rng_state())


def test_global_randomness_around_the_training_does_not_reach_it(material):
    torch.manual_seed(1)
    first = state(trained(material))
    torch.manual_seed(2)
    assert same(first, state(trained(material)))


def test_a_penalty_acts_on_the_layer_at_the_cut(material):
    h_free, _ = cut_at(trained(material, epochs=20, lr=0.01), "body")
    stack = Stack(training=(("shrinks", Shrinks(Config())),))
    h_held, _ = cut_at(trained(material, stack=stack, epochs=20, lr=0.01), "body")
    with torch.no_grad():
        free, held = h_free(material[0][0]).pow(2).mean(), h_held(material[0][0]).pow(2).mean()
    assert held < free / 4


def test_penalties_add_up(material):
    model = fresh(tiny(), (1, 28, 28), 10, BOARD, device=CPU)
    images, labels = material[0][0], material[1][0]
    twice = Stack(training=(("a", Shrinks(Config())), ("b", Shrinks(Config()))))
    with (
        torch.no_grad(),
        objective(model, model, "body", Stack()) as plain,
        objective(model, model, "body", twice) as penalised,
    ):
        extra = penalised(images, labels) - plain(images, labels)
        assert extra.item() == pytest.approx(20 * model.body(images).pow(2).mean().item(), rel=1e-4)


def test_prepare_may_replace_the_optimiser(material):
    stack = Stack(training=(("slow", TenthOfTheRate(Config())),))
    start = fresh(tiny(), (1, 28, 28), 10, BOARD, device=CPU)
    end = trained(material, stack=stack)
    for old, new in zip(start.parameters(), end.parameters(), strict=True):
        torch.testing.assert_close(new, old)


def test_protect_decides_what_the_optimiser_sees(material):
    stack = Stack(gradient=(("onlyhead", OnlyHead(Config())),))
    start = fresh(tiny(), (1, 28, 28), 10, BOARD, device=CPU)
    end = trained(material, stack=stack, optimizer="sgd", weight_decay=0.0)
    assert torch.equal(start.body.conv.weight, end.body.conv.weight)
    assert not torch.equal(start.head[1].weight, end.head[1].weight)


def test_gradient_defenses_draw_from_the_stream(material):
    stack = Stack(gradient=(("noise", Noise(Config())),))
    first, second = state(trained(material, stack=stack)), state(trained(material, stack=stack))
    assert same(first, second)
    assert not same(first, state(trained(material)))


def test_one_defense_twice_draws_two_noises():
    two = Stack(gradient=(("noise", Noise(Config())), ("noise", Noise(Config()))))
    first, second = (s.normal(5) for s in gradient_streams(two, BOARD))
    assert not torch.equal(first, second)


def test_a_defense_that_loses_gradients_fails_the_cell(material):
    stack = Stack(gradient=(("forgets", Forgets(Config())),))
    with pytest.raises(CellFailed, match="'forgets' must return each gradient"):
        trained(material, stack=stack)


def test_divergence_fails_the_cell_and_says_what_to_change(material):
    with pytest.raises(CellFailed, match=r"diverged.*epoch \d of 5 .*smaller lr"):
        trained(material, epochs=5, lr=1e30, optimizer="sgd")


def test_an_unknown_cut_names_the_nearest_and_all():
    model = tiny().build((1, 28, 28), 10)
    with pytest.raises(UsageError, match=r"'bdy'.*Did you mean 'body'\? .*body, head"):
        cut_at(model, "bdy")


def test_an_unknown_cut_is_refused_before_anything_is_trained():
    with pytest.raises(UsageError, match="no block 'bdy' to cut after"):
        fresh(tiny(cut="bdy"), (1, 28, 28), 10, BOARD, device=CPU)


@pytest.mark.parametrize("wrong", [{"optimizer": "adamv"}, {"schedule": "cosin"}, {"epochs": 0}])
def test_a_recipe_refuses_what_it_does_not_know(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_a_last_image_alone_joins_the_batch_before_it():
    sizes = [span.stop - span.start for span in spans(17, 8)]
    assert sizes == [8, 9]
    assert [s.stop - s.start for s in spans(3, 1)] == [1, 1, 1]


def test_a_dataset_with_one_image_too_many_trains_through_batchnorm():
    images = torch.rand(1, 9, 1, 5, 5)
    model = fresh(tiny(), (1, 5, 5), 10, BOARD, device=CPU)
    labels = torch.eye(10)[:9][None]
    fitted = fit(model, images, labels, tiny().config, BOARD, device=CPU)
    assert all(value.isfinite().all() for value in fitted.state_dict().values())


def test_epoch_e_reads_round_e_mod_t():
    rounds = torch.arange(3.0).view(3, 1, 1).expand(3, 4, 2)
    labels = torch.ones(3, 4, 1)
    loader = Batches(rounds, labels, batch_size=4, generator=torch.Generator(), device=CPU)
    assert [next(iter(loader))[0][0, 0].item() for _ in range(5)] == [0, 1, 2, 0, 1]


def test_every_epoch_sees_every_image_once_in_a_new_order():
    images = torch.arange(10.0).view(1, 10, 1)
    loader = Batches(images, images.clone(), batch_size=4, generator=torch.Generator(), device=CPU)
    epochs = [torch.cat([x for x, _ in loader]).flatten().tolist() for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [("none", [1, 1, 1, 1]), ("step", [1, 1, 0.1, 0.01]), ("cosine", [1, 0.8536, 0.5, 0.1464])],
)
def test_schedules(schedule, shares):
    share = rate(Recipe(schedule=schedule), steps=100)
    assert [share(step) for step in (0, 25, 50, 75)] == pytest.approx(shares, abs=1e-4)


def test_stopping_early_is_a_part_of_the_whole_training(material):
    """The rate after one of two epochs is that of the full schedule, not of a short one."""
    seen = []

    class Watches(TrainingDefense[Config]):
        def prepare(self, model, optimizer, loader, *, epochs, rng):
            seen.append(optimizer)
            return model, optimizer, loader

    victim = tiny(epochs=4)
    model = fresh(victim, (1, 28, 28), 10, BOARD, device=CPU)
    stack = Stack(training=(("watches", Watches(Config())),))
    fit(model, *material, victim.config, BOARD, device=CPU, stack=stack, stop_after=2)
    assert seen[0].param_groups[0]["lr"] == pytest.approx(victim.config.lr / 2)


def test_the_clock_leaves_out_what_only_the_start_costs(monkeypatch):
    """Epochs of 9, 1, 3 and 2 seconds: the median of the last three, four times."""
    now = iter([0.0, 9.0, 10.0, 13.0, 15.0])
    monkeypatch.setattr("harness.running.training.time.perf_counter", lambda: next(now))
    told = []
    clock = EpochClock(lambda done, total, note: told.append((done, total, note)))
    for epoch in range(1, 5):
        clock(epoch, 4, "loss")
    assert clock.seconds == 8.0
    assert told[-1] == (4, 4, "loss")


def test_one_epoch_alone_is_not_timed():
    clock = EpochClock()
    clock(1, 1)
    assert clock.seconds == 0.0


def test_progress_tells_each_epoch(material):
    told = []
    model = fresh(tiny(), (1, 28, 28), 10, BOARD, device=CPU)
    fit(
        model,
        *material,
        tiny().config,
        BOARD,
        device=CPU,
        progress=lambda done, total, note="": told.append((done, total, note.split()[0])),
    )
    assert told == [(1, 2, "loss"), (2, 2, "loss")]


def test_a_state_comes_back_as_the_same_model(material):
    model = trained(material)
    back = restore(tiny(), (1, 28, 28), 10, state(model))
    assert torch.equal(back(material[0][0]), model(material[0][0]))
    h, _ = cut_at(model, "body")
    assert torch.equal(
        restore(tiny(), (1, 28, 28), 10, state(h), cut=True)(material[0][0]), h(material[0][0])
    )


def test_another_victims_state_is_refused(material):
    weights = state(trained(material))
    weights["head.9.weight"] = weights.pop("head.1.weight")
    with pytest.raises(CellFailed, match=r"not this victim's.*head\.9\.weight"):
        restore(tiny(), (1, 28, 28), 10, weights)
