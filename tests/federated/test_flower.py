"""Flower's averages beside a FedAvg that is written here; in the environment that has Flower."""

import copy
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

PLACE = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(PLACE))
import federated_app as app  # noqa: E402

PARTIES, ROUNDS, CLASSES, VALUES = 3, 3, 4, 12
SIZES = (200, 80, 120)


@pytest.fixture(scope="module")
def parties():
    """Features about a mean for each class; the parties have other shares of the classes."""
    drawn = torch.Generator().manual_seed(3)
    means = torch.randn(CLASSES, VALUES, generator=drawn)

    def features(count, shares):
        labels = torch.multinomial(torch.tensor(shares), count, True, generator=drawn)
        return means[labels] + 1.2 * torch.randn(count, VALUES, generator=drawn), labels

    mixes = ([0.7, 0.1, 0.1, 0.1], [0.1, 0.4, 0.4, 0.1], [0.1, 0.1, 0.2, 0.6])
    own = [features(n, mix) for n, mix in zip(SIZES, mixes, strict=True)]
    return own, features(2000, [0.25] * CLASSES)


def averaged(parties, test, recipe):
    """FedAvg (McMahan et al. 2017, algorithm 1), every party in every round."""
    model = app.network(VALUES, CLASSES, recipe.head, recipe.seed)
    for round_ in range(1, recipe.rounds + 1):
        states = []
        for number, (images, labels) in enumerate(parties):
            own = copy.deepcopy(model)
            seed = app.turn_seed(recipe, round_, number)
            app.train(own, images, labels, recipe, mu=recipe.mu, seed=seed)
            states.append(app.weights_of(own))
        total = sum(SIZES)
        mean = {
            name: sum(n / total * state[name] for n, state in zip(SIZES, states, strict=True))
            for name in states[0]
        }
        model.load_state_dict(mean, strict=False)
    return app.accuracy(model, *test)


def test_a_pull_to_the_servers_weights_keeps_a_party_near_them(parties):
    images, labels = parties[0][0]
    recipe = app.Recipe(PARTIES, epochs=5, rate=0.05)

    def moved(mu):
        model = app.network(VALUES, CLASSES, "linear", 0)
        before = app.weights_of(model)
        app.train(model, images, labels, recipe, mu=mu, seed=0)
        after = app.weights_of(model)
        return sum(float((after[n] - before[n]).square().sum()) for n in after)

    assert moved(10.0) < 0.2 * moved(0.0)


def test_averaging_parties_is_worth_more_than_one_of_them(parties):
    own, test = parties
    recipe = app.Recipe(PARTIES, ROUNDS, epochs=5, rate=0.02, head="linear")
    together = averaged(own, test, recipe)
    alone = []
    for number, (images, labels) in enumerate(own):
        model = app.network(VALUES, CLASSES, recipe.head, 0)
        app.train(model, images, labels, recipe, mu=0.0, seed=number)
        alone.append(app.accuracy(model, *test))
    assert together > max(alone)


@pytest.mark.parametrize(("mu", "head"), [(0.0, "linear"), (0.01, "linear"), (0.0, "paper")])
def test_flower_averages_as_the_plain_loop_does(parties, tmp_path, mu, head):
    pytest.importorskip("flwr")
    from safetensors.torch import save_file

    own, test = parties
    recipe = app.Recipe(PARTIES, ROUNDS, epochs=5, rate=0.02, mu=mu, head=head)
    named = {**dict(enumerate(own)), "test": test}
    images = {f"images.{name}": each[0] for name, each in named.items()}
    labels = {f"labels.{name}": each[1] for name, each in named.items()}
    save_file(images | labels, tmp_path / "parties.safetensors")
    (tmp_path / "asked.json").write_text(json.dumps(asdict(recipe)), encoding="utf-8")
    files = [tmp_path / name for name in ("parties.safetensors", "asked.json", "answer.json")]
    command = [sys.executable, PLACE / "federated_app.py", *files]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(files[-1].read_text(encoding="utf-8"))
    assert len(found["accuracies"]) == ROUNDS + 1
    assert found["accuracies"][-1] == pytest.approx(averaged(own, test, recipe), abs=0.02)
    assert found["accuracies"][-1] > found["accuracies"][0] + 0.1
