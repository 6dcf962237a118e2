"""Training of fusion and denoiser on clusters of the attacker's own images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import one_hot

from harness.api.training import descend
from harness_plugins.attacks.luo.fusion import Heap
from harness_plugins.attacks.luo.lessons import Law, Lesson, lesson_of, lessons
from harness_plugins.attacks.luo.restorer import Restorer
from harness_plugins.networks.holdout import held_out
from harness_plugins.networks.training import schedule
from harness_plugins.structural_similarity import mean_ssim

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, Scale, Stream, View
    from harness_plugins.attacks.luo import LuoConfig
    from harness_plugins.attacks.luo.likeness import Likeness

_BATCH = 32
_MOST = 12  # members of a cluster that training looks at
_ROUNDS = 8
_EXAMINED = 200
_ABSOLUTE, _STRUCTURE = 0.3, 0.7  # Luo et al.: .3 L1 - .7 SSIM


@dataclass(frozen=True)
class Plan:
    """How long, how fast, and with which share of wrong members."""

    steps: int
    lr: float
    impure: float
    members: int


def learn(
    view: View, law: Law, config: LuoConfig, likeness: Likeness, progress: Progress
) -> Mapping[str, Tensor]:
    """A trained restorer, and the SSIM that held-out images get.

    `exam` of pure clusters, `blind` of strangers of their class, which tell of the class alone.
    """
    rng = view.rng.stream(use="fusion")
    samples = view.public[: config.pair_images]
    held = held_out(len(samples))
    exam = lesson_of(view, law, samples[:held], _ROUNDS, rng.stream(use="exam"))
    places = likeness(exam.members[torch.arange(1, device=view.device)]).shape[1]
    sizes = (places, config.fusion_base, config.groups, config.width, config.tile)
    restorer = Restorer.fresh(view, exam, sizes, law.largest)
    source = lessons(view, law, samples[held:], _ROUNDS, rng.stream(use="lessons"))
    wrong = 0.0 if config.knows("clusters") else config.impure
    plan = Plan(config.fusion_steps, config.fusion_rate, wrong, config.members)
    clusters = simulated(source, likeness, view.classes, plan, rng.stream(use="train"))
    train(restorer, clusters, plan, view, progress)
    restorer.eval()
    most = min(plan.members, _MOST)
    images, drawn = exam.usable[:_EXAMINED], rng.stream(use="examined")
    found = {"exam": exam.draw, "blind": exam.strangers}
    scores = {
        name: examine(restorer, exam, likeness, view.scale, images, draw(images, most, drawn))
        for name, draw in found.items()
    }
    return {**restorer.kept(), **scores}


def train(
    restorer: Restorer,
    clusters: Iterator[tuple[Heap, Tensor]],
    plan: Plan,
    view: View,
    progress: Progress,
) -> None:
    """Fusion and denoiser learn together; the loss of what is fused counts half."""
    scale = view.scale

    def loss_of(cluster: tuple[Heap, Tensor]) -> Tensor:
        heap, truth = cluster
        fused, image = restorer(heap)
        unit, right = scale.restore(image), scale.restore(truth)
        return objective(unit, right) + objective(scale.restore(fused), right) / 2

    optimizer = torch.optim.Adam(restorer.parameters(), lr=plan.lr)
    losses = descend(
        restorer,
        optimizer,
        islice(clusters, plan.steps),
        loss_of,
        schedule=schedule(optimizer, plan.steps),
        longest=1.0,
        precision=view.precision,
    )
    for step, loss in enumerate(losses, 1):
        if step % 10 == 0 or step == plan.steps:
            progress(step, plan.steps, f"fusion: loss {float(loss):.3f}")


def objective(images: Tensor, truth: Tensor) -> Tensor:
    """[] loss of images [n, c, h, w] in the units in which valid ones lie in [0,1]."""
    absolute = (images - truth).abs().mean()
    return _ABSOLUTE * absolute - _STRUCTURE * mean_ssim(images, truth).mean()


def simulated(
    source: Iterator[Lesson], likeness: Likeness, classes: int, plan: Plan, rng: Stream
) -> Iterator[tuple[Heap, Tensor]]:
    """Clusters and the images they are of, _BATCH at a time; some members are another image's."""
    turn = 0
    for lesson in source:
        usable = lesson.usable
        order = usable[rng.stream(order=turn).permutation(len(usable)).to(usable.device)]
        for images in order.split(_BATCH):
            drawn = rng.stream(turn=turn)
            most = 1 + int(drawn.integers(min(_MOST, plan.members)))
            rows = heap_rows(lesson, images, most, plan.impure, drawn)
            yield heap_of(lesson, images, rows, likeness, classes), lesson.images[images]
            turn += 1


def heap_rows(lesson: Lesson, images: Tensor, most: int, impure: float, rng: Stream) -> Tensor:
    """[b, most] rows: members, each cluster with its own share of strangers, up to 2 `impure`."""
    own = lesson.draw(images, most, rng)
    if not impure:
        return own
    chance = 2 * impure * rng.uniform(len(images), 1).to(own.device)
    wrong = rng.uniform(len(images), most).to(own.device) < chance
    return torch.where(wrong, lesson.strangers(images, most, rng), own)


def heap_of(lesson: Lesson, images: Tensor, rows: Tensor, likeness: Likeness, classes: int) -> Heap:
    """The clusters of some images."""
    members = lesson.members[rows.flatten()]
    seen, places = members.scaled, likeness(members)
    kind = one_hot(lesson.labels[images], classes).to(seen)
    count = rows.shape
    return Heap(
        seen.unflatten(0, count), places.unflatten(0, count), members.share.view(count), kind
    )


@torch.no_grad()
def examine(
    restorer: Restorer,
    exam: Lesson,
    likeness: Likeness,
    scale: Scale,
    images: Tensor,
    rows: Tensor,
) -> Tensor:
    """[] mean SSIM with some images [b] of what is made of the members in `rows` [b, M]."""
    heap = heap_of(exam, images, rows, likeness, restorer.classes)
    found = scale.within(scale.restore(restorer.images(heap)))
    return mean_ssim(found, scale.restore(exam.images[images])).mean()
