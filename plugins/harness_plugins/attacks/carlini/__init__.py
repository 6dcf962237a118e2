"""`carlini`: encodings of one image are found, put together, and solved for it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import AttackSpec, Control, hookimpl
from harness_plugins.clusters import PAIRS, PUBLISHED, PairConfig
from harness_plugins.mixtures import PRIOR
from harness_plugins.signs import DEMASKING, UNFOLDING
from harness_plugins.unfolding import UnfoldConfig


class CarliniConfig(PairConfig, UnfoldConfig):
    """How likeness is had, encodings are shared out, and images solved for."""

    way: Literal["auto", "absolute", "signed"] = Field(
        default="signed",
        description="how `unfold` solves: signed is faster, and further where there are rounds; "
        "absolute is the paper's; auto: what served public images better",
    )
    likeness: Literal["learned", "whitened"] = Field(
        default="learned",
        description="learned: an embedding trained on public images encoded twice; whitened: the "
        "cosine of absolute values, whitened on public encodings",
    )
    assign: Literal["flow", "greedy"] = Field(
        default="flow",
        description="flow: all encodings of a round together, every image as often as the law "
        "says; greedy: each encoding its nearest clusters, as the paper has it",
    )
    settles: int = Field(
        default=12, ge=1, le=1000, description="turns of memberships and prototypes, at the most"
    )
    rereads: int = Field(
        default=2,
        ge=0,
        le=100,
        description="times that memberships and weights are read anew off the images, memberships "
        "only where no public images are mixed in, beside which likeness tells more; the paper "
        "does neither",
    )

    def unprepared(self) -> frozenset[str]:
        """No network of pairs where likeness is a formula, or clusters are told."""
        spared = super().unprepared()
        if self.rereads:
            spared -= {DEMASKING.name}
        learned = self.likeness == "learned" and not self.knows("clusters")
        return spared if learned else spared | {PAIRS.name}


_MANY = {"private_size": 40, "rounds": 30}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Carlini et al."""
    return [
        AttackSpec(
            name="carlini",
            version="1",
            summary="finds which encodings hold the same image, and solves them for it",
            reference="Carlini et al. 2021, Is Private Learning Possible with Instance Encoding?; "
            "an embedding in place of its network of pairs, a flow in place of its greedy "
            "assignment, and rereading, are this benchmark's own",
            factory="harness_plugins.attacks.carlini.attack:Carlini",
            config=CarliniConfig,
            needs=(PUBLISHED,),
            fewest_rounds=2,
            preparations=(PAIRS, PRIOR, DEMASKING, UNFOLDING),
            effort="pair_steps",
            controls=(
                Control("instahide[k=2]", "fashion-mini", "snr_db_abs", 7.0, options=_MANY),
                Control("mixup[k=2]", "fashion-mini", "snr_db", 15.0, options=_MANY),
            ),
            presets={
                "quick": {
                    "pair_steps": 60,
                    "pair_batch": 96,
                    "epochs": 2,
                    "images": 4000,
                },
                "standard": {"epochs": 3, "images": 20_000},
                "paper": {
                    "assign": "greedy",
                    "rereads": 0,
                    "way": "absolute",
                    "settles": 1,
                    "pair_steps": 20_000,
                    "base": 32,
                    "epochs": 20,
                    "images": 100_000,
                },
            },
            formula=(
                "p = f(|x~|), f trained by InfoNCE on two rounds of public images, shared weight "
                "as target\n"
                "cliques of each class: from many seeds, argmax_r sum_members <p_r, p>; those "
                "that most runs agree on\n"
                "in turns: memberships = argmax sum <p_r, P_j> with one image for each class of "
                "the label and every image as often in a round as the law says; P = argmin "
                "|p - W P|^2\n"
                "weights: the label's shares; of two images of one class, what serves their "
                "encodings best\n"
                "images: `unfold`'s, with the mixture that was found in place of the true one"
            ),
            weaknesses=(
                "the paper's networks of pairs and of prototypes are replaced by an embedding, "
                "its prefixes of 50 and 25 by cliques of half an image's encodings",
                "needs several encodings of each image: with few rounds cliques are small",
                "likeness is learned from public images; where those differ, it is worse",
                "images that are moved before mixing are solved as if they were not, and blur",
                "a class with many images alike is clustered worse than one with few",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --rounds 50 --private-size 100 "
            "--attack carlini",
        )
    ]
