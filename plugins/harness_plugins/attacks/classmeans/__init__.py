"""`classmeans`: what the classes look like, from encodings and their soft labels alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl
from harness_plugins.mixtures import PRIOR

# Of so few public images the class means are known to 18.5 dB before the release is seen.
_FEW_PUBLIC: dict[str, Any] = {"private_size": 1000, "public_size": 1000}


class ClassMeansConfig(Config):
    """What is believed of the class means before the release is seen."""

    prior: Literal["classes", "spread", "none"] = Field(
        default="classes",
        description="classes: they are the public class means but for which images were drawn; "
        "spread: only how far public class means lie from the mean of all; none: least squares",
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Class prototypes."""
    return [
        AttackSpec(
            name="classmeans",
            version="1",
            summary="the mean image of each class by weighted least squares on soft labels",
            reference="generalised least squares (Aitken, 1936) on the mixture of means that soft "
            "labels spell out, with a Gaussian prior from the public pool",
            factory="harness_plugins.attacks.classmeans.prototypes:ClassMeans",
            config=ClassMeansConfig,
            needs=(frozenset({Channel.ENCODINGS, Channel.LABELS}),),
            optional=frozenset({Channel.WEIGHTS, Channel.PUBLIC, Channel.ENCODER}),
            preparations=(replace(PRIOR, constants={"mean": "class"}),),
            linear="no",
            controls=(
                Control("none", "fashion-mini", "class_mean_snr_db", 45.0, options=_FEW_PUBLIC),
                Control(
                    "mixup[k=2]", "fashion-mini", "class_mean_snr_db", 23.0, options=_FEW_PUBLIC
                ),
                Control(
                    "singmix[tau=1]", "fashion-mini", "class_mean_snr_db", 20.5, options=_FEW_PUBLIC
                ),
            ),
            formula=(
                "x~_i = g y~_i M + noise,  M^ = (g^2 Y'N^-1 Y + S P^-1)^-1 (g Y'N^-1 X~ + S P^-1 "
                "M_public)\n"
                "N: noise of a row, from its norm; S: what is left per principal component; P: "
                "prior variance v (1/n_public + 1/n_private) of a class mean, v the variance of "
                "images along the component (`spread`: that of public class means, about the mean "
                "of all)\n"
                "g: share of the mixture that encodings hold, 0 under random signs; measured on "
                "public images under the owner's law\n"
                "x^: the mean of the image's most likely class"
            ),
            weaknesses=(
                "a class mean is no image: as a reconstruction it scores at best a little above "
                "the public class mean",
                "random signs (InstaHide) leave nothing of means: it answers with its prior",
                "prior=classes trusts public class means as one population with the private "
                "ones; where they are not, `spread` or `none` say more of the release",
                "without public images and the encoder, encodings are taken to hold the whole "
                "mixture (g = 1)",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --attack 'classmeans'",
        )
    ]
