"""FedAvg and FedProx by Flower over parties' own features, simulated on Ray.

Runs in an environment of its own, which has flwr and torch and none of this project: Flower pins
other versions of what it needs. `benchmarks/federated.py` makes it and calls this file:

    python federated_app.py parties.safetensors asked.json answer.json

`parties.safetensors` holds `images.N` [n, d] and `labels.N` of each party and of `test`;
`asked.json` is a `Recipe`. The answer names the accuracy on the test images after each round, and
bytes sent.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

HIDDEN = (1024, 512)
DROPOUT = 0.5


@dataclass(frozen=True)
class Recipe:
    """How parties train together. `mu` weighs FedProx's pull to the server's weights; 0: FedAvg."""

    parties: int
    rounds: int = 20
    epochs: int = 1
    batch_size: int = 128
    rate: float = 1e-3
    decay: float = 1e-2
    mu: float = 0.0
    head: str = "paper"
    seed: int = 0
    cpus: int = 1


def network(inputs: int, classes: int, head: str, seed: int) -> nn.Sequential:
    """A fresh classifier: the paper's three dense layers (equation 8), or one that is linear."""
    torch.manual_seed(seed)
    if head == "linear":
        return nn.Sequential(nn.Linear(inputs, classes))
    widths, blocks = (inputs, *HIDDEN), []
    for before, after in zip(widths, HIDDEN, strict=False):
        norm = nn.BatchNorm1d(after)
        blocks += [nn.Linear(before, after), norm, nn.GELU(), nn.Dropout(DROPOUT)]
    return nn.Sequential(*blocks, nn.Linear(HIDDEN[-1], classes))


def weights_of(model: nn.Module) -> OrderedDict[str, Tensor]:
    """What is averaged: parameters and BatchNorm's statistics, but not its count of batches."""
    state = model.state_dict()
    return OrderedDict((n, t.clone()) for n, t in state.items() if t.is_floating_point())


def batches(count: int, size: int, epochs: int, seed: int) -> Iterator[Tensor]:
    """Rows of each step; a last batch of one image, of which BatchNorm knows nothing, is left."""
    drawn = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(count, generator=drawn).split(size):
            if len(rows) > 1:
                yield rows


def train(
    model: nn.Module, images: Tensor, labels: Tensor, recipe: Recipe, *, mu: float, seed: int
) -> float:
    """One party's turn, in place; the last step's loss.

    AdamW on the cross entropy plus mu/2 ||w - w_t||², w_t the weights it began with (FedProx, Li et
    al. 2020, equation 2).
    """
    torch.manual_seed(seed)
    begun = [parameter.detach().clone() for parameter in model.parameters()]
    steps = torch.optim.AdamW(model.parameters(), recipe.rate, weight_decay=recipe.decay)
    model.train()
    loss = torch.zeros(())
    for rows in batches(len(labels), recipe.batch_size, recipe.epochs, seed):
        loss = cross_entropy(model(images[rows]), labels[rows])
        if mu:
            pairs = zip(model.parameters(), begun, strict=True)
            loss = loss + mu / 2 * sum((now - then).square().sum() for now, then in pairs)
        steps.zero_grad()
        loss.backward()
        steps.step()
    return float(loss.detach())


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images that the model names rightly."""
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part) for part in images.split(4096)]).argmax(1)
    return float((found == labels).double().mean())


def turn_seed(recipe: Recipe, round_: int, party: int) -> int:
    """Of one party's turn: other runs, rounds and parties shuffle otherwise."""
    return (recipe.seed * 100_000 + round_) * 1000 + party


def federated(data: Path, recipe: Recipe) -> dict[str, Any]:
    """Train together by Flower; the accuracies after each round, the first before any."""
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg, FedProx
    from flwr.simulation import run_simulation

    test = read(data, "test")
    inputs, classes = test[0].shape[1], int(test[1].max()) + 1
    accuracies: list[float] = []
    client, server = ClientApp(), ServerApp()

    def built(state: Mapping[str, Tensor] | None = None) -> nn.Sequential:
        model = network(inputs, classes, recipe.head, recipe.seed)
        if state is not None:
            model.load_state_dict(dict(state), strict=False)
        return model

    @client.train()  # type: ignore[misc,untyped-decorator]
    def turn(message: Message, context: Context) -> Message:
        torch.set_num_threads(recipe.cpus)
        party, config = int(context.node_config["partition-id"]), message.content["config"]
        images, labels = read(data, str(party))
        model = built(message.content["arrays"].to_torch_state_dict())
        mu, seed = float(config.get("proximal-mu", 0.0)), int(config["server-round"])
        loss = train(model, images, labels, recipe, mu=mu, seed=turn_seed(recipe, seed, party))
        metrics = MetricRecord({"loss": loss, "num-examples": len(labels)})
        content = {"arrays": ArrayRecord(weights_of(model)), "metrics": metrics}
        return Message(content=RecordDict(content), reply_to=message)

    @server.main()  # type: ignore[misc,untyped-decorator]
    def serve(grid: Grid, _context: Context) -> None:
        every = {"fraction_evaluate": 0.0, "min_train_nodes": recipe.parties}
        every["min_available_nodes"] = recipe.parties
        strategy = FedProx(**every, proximal_mu=recipe.mu) if recipe.mu else FedAvg(**every)

        def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
            accuracies.append(accuracy(built(arrays.to_torch_state_dict()), *test))
            return MetricRecord({"accuracy": accuracies[-1]})

        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(weights_of(built())),
            train_config=ConfigRecord({}),
            num_rounds=recipe.rounds,
            evaluate_fn=evaluate,
        )

    resources = {"client_resources": {"num_cpus": recipe.cpus, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=recipe.parties, backend_config=resources)
    if len(accuracies) != recipe.rounds + 1:
        raise RuntimeError(f"{len(accuracies) - 1} of {recipe.rounds} rounds came to an end")
    sent = sum(t.nbytes for t in weights_of(built()).values()) * recipe.rounds
    return {"recipe": asdict(recipe), "accuracies": accuracies, "bytes_per_party": sent}


def read(data: Path, name: str) -> tuple[Tensor, Tensor]:
    """One party's images and labels, or the test's."""
    from safetensors import safe_open

    with safe_open(data, "pt") as file:
        return file.get_tensor(f"images.{name}").float(), file.get_tensor(f"labels.{name}")


if __name__ == "__main__":
    where, asked, answer = map(Path, sys.argv[1:])
    told = federated(where, Recipe(**json.loads(asked.read_text(encoding="utf-8"))))
    answer.write_text(json.dumps(told), encoding="utf-8")
