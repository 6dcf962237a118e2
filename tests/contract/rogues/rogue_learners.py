"""Learners that are well declared: some learn, some misbehave, one pries."""

import inspect
import json
import math
from pathlib import Path

import torch

from harness.api import Classifier, Learner, LearnerSpec, NotApplicable, hookimpl

LEARNERS = (
    "remembers",
    "raises-later",
    "answers-nan",
    "answers-short",
    "forgets",
    "declines",
    "pries",
    "asks-far",
    "asks-nonsense",
    "answers-all",
)
VARYING = ("remembers",)


@hookimpl
def harness_learners():
    """Each by itself, and all of them together."""
    alone = [
        LearnerSpec(
            name=name,
            version="1",
            summary=f"a learner that {name}",
            reference="none",
            factory="rogue_learners:" + "".join(part.capitalize() for part in name.split("-")),
            varies=name in VARYING,
        )
        for name in LEARNERS
    ]
    everyone = LearnerSpec(
        name="everyone",
        version="1",
        summary="all of them",
        reference="none",
        factory="",
        members=LEARNERS,
    )
    return [*alone, everyone]


class Means(Classifier):
    """The nearest mean encoding of each class."""

    def __init__(self, means):
        self.means = means

    def logits(self, images):
        """Minus distances."""
        return -torch.cdist(images.flatten(1), self.means)


class Remembers(Learner):
    """Averages the release."""

    def learn(self, lesson, budget, progress):
        """One pass over every round; each row falls out at times, so that trainings differ."""
        sums = torch.zeros(lesson.classes, math.prod(lesson.release.shape))
        counts = torch.zeros(lesson.classes, 1)
        for round_ in range(lesson.release.rounds):
            for images, labels in lesson.release.pieces(round_):
                kept = labels * (torch.rand(len(labels), 1) < 0.8)
                sums += kept.T @ images.flatten(1)
                counts += kept.sum(0).view(-1, 1)
        return Means(sums / counts.clamp(min=1e-6))


class RaisesLater(Learner):
    """Learns, and cannot answer."""

    def learn(self, lesson, budget, progress):
        """A classifier that raises."""

        class Broken(Classifier):
            def logits(self, images):
                raise RuntimeError("no answer today")

        return Broken()


class AnswersNan(Learner):
    """Numbers that are none."""

    def learn(self, lesson, budget, progress):
        """NaN for every image."""

        class Lost(Classifier):
            def logits(self, images):
                return torch.full((len(images), lesson.classes), float("nan"))

        return Lost()


class AnswersShort(Learner):
    """One class too few."""

    def learn(self, lesson, budget, progress):
        """A column is missing."""

        class Short(Classifier):
            def logits(self, images):
                return torch.zeros(len(images), lesson.classes - 1)

        return Short()


class AnswersAll(Learner):
    """Takes the check of its answer away, and names every class at once."""

    def learn(self, lesson, budget, progress):
        """As many answers to each image as there are images."""
        from harness.sandbox import lessons

        lessons.checked_logits = lambda logits, *_: logits

        class All(Classifier):
            def logits(self, images):
                return torch.eye(11).argmax(1).expand(len(images), len(images), 11).mT.float()

        return All()


class Forgets(Learner):
    """Returns nothing."""

    def learn(self, lesson, budget, progress):
        """None is no classifier."""
        return


class Declines(Learner):
    """Has no use for any release."""

    def learn(self, lesson, budget, progress):
        """Says so."""
        raise NotApplicable("this is no release of mine")


class Pries(Learner):
    """Looks for what it was not given, and says what it found."""

    def learn(self, lesson, budget, progress):
        """Raises all files around where it works, and what the lesson says."""
        variables = [frame.frame.f_locals for frame in inspect.stack()]
        (folder,) = {Path(named["job"]["lesson"]) for named in variables if "job" in named}
        beside = [path for path in folder.parent.rglob("*") if path.is_file()]
        found = {
            "beside": sorted(str(path.relative_to(folder.parent)) for path in beside),
            "frame": json.loads((folder / "lesson.json").read_text()),
            "holds": sorted(vars(lesson)),
            "public": lesson.public.labels.unique().tolist(),
        }
        raise RuntimeError(json.dumps(found))


class AsksFar(Learner):
    """Wants a piece that no round has."""

    def learn(self, lesson, budget, progress):
        """Asks for it."""
        lesson.release.fetch(0, 10**12)


class AsksNonsense(Learner):
    """Wants a piece by no number."""

    def learn(self, lesson, budget, progress):
        """Asks for it."""
        lesson.release.fetch("first", 0.5)
