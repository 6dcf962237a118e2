"""`gradmatch`: images whose gradients, or local training, give what was released."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl

Labels = Literal["auto", "known", "distinct", "counted", "joint"]
Statistics = Literal["auto", "exact", "inferred", "none"]

_DLG: dict[str, Any] = {
    "distance": "l2",
    "optimizer": "lbfgs",
    "steps": 3000,
    "restarts": 4,
    "tv": 0.0,
    "bn": 0.0,
    "labels": "joint",
    "statistics": "none",
    "box": False,
}
_COSINE: dict[str, Any] = {"steps": 2400, "tv": 1e-2, "bn": 0.0, "statistics": "none"}
_BN: dict[str, Any] = {"steps": 2400, "tv": 1e-3, "bn": 1e-3}
# Huang et al.'s attackers: in both columns of its Table 5 they know the labels, and the realistic
# one does not know the statistics. The scripts that the authors published give no labels either.
_STRONGEST: dict[str, Any] = {
    "steps": 2400,
    "tv": 0.1,
    "bn": 5e-3,
    "labels": "known",
    "statistics": "exact",
}
_REALISTIC: dict[str, Any] = {
    "steps": 2400,
    "tv": 0.05,
    "bn": 1e-3,
    "labels": "known",
    "statistics": "inferred",
}
_SCRIPTS: dict[str, Any] = {**_REALISTIC, "labels": "counted"}
_CONTROL: dict[str, Any] = {
    "victim": "strided",
    "release": "gradients",
    "targets": 8,
    "private_size": 100,
    "public_size": 200,
}
_UPDATES: dict[str, Any] = {**_CONTROL, "release": "updates", "local_steps": 5, "targets": 4}


class GradmatchConfig(Config):
    """The distance, the priors, what is known, and the search."""

    distance: Literal["cosine", "l2"] = Field(
        default="cosine", description="of gradients: angle over all layers, or squared distance"
    )
    optimizer: Literal["signed-adam", "adam", "lbfgs"] = Field(
        default="signed-adam", description="signed-adam: Adam on the signs of derivatives"
    )
    steps: int = Field(
        default=1200, ge=1, le=1_000_000, description="steps; of lbfgs evaluations of the loss"
    )
    lr: float = Field(default=0.1, gt=0, le=1e3, description="rate of Adam, in deviations")
    restarts: int = Field(
        default=1, ge=1, le=1000, description="random starts of each batch; least loss wins"
    )
    tv: float = Field(
        default=1e-2, ge=0, le=1e6, description="weight of mean absolute differences of neighbours"
    )
    bn: float = Field(
        default=1e-3, ge=0, le=1e6, description="weight of the distance of BatchNorm statistics"
    )
    labels: Labels = Field(
        default="auto",
        description="auto: known where granted, else counted; known: or not at all; distinct: the "
        "rows of the last layer's gradient with the least minima; counted: by its bias's gradient; "
        "joint: searched for, as those of mixed batches always are where they are not known",
    )
    statistics: Statistics = Field(
        default="auto",
        description="of BatchNorm; auto: exact where granted, else inferred; exact: the batch's "
        "own, or not at all; inferred: the model's running ones; none: not asked for",
    )
    adaptive: bool = Field(
        default=True, description="do not match entries that were pruned; off: match zeros too"
    )
    box: bool = Field(default=True, description="hold images to the range they can have")
    at_once: int = Field(
        default=16,
        ge=1,
        le=4096,
        description="problems in one graph at the most; fewer of models with millions of weights",
    )
    decode_ridge: float = Field(
        default=1e-3, ge=0, le=1e3, description="of mixtures: weight of the mean public image"
    )
    decode_steps: int = Field(
        default=100,
        ge=1,
        le=100_000,
        description="of mixtures with hidden signs: turns of signs and least squares",
    )

    def forgoes(self) -> frozenset[Channel]:
        """What is reconstructed or left out is not asked for."""
        forgone = set()
        if self.labels not in ("auto", "known"):
            forgone.add(Channel.BATCH_LABELS)
        if self.statistics not in ("auto", "exact"):
            forgone.add(Channel.BN_STATISTICS)
        return frozenset(forgone)


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Gradient matching, with the literature's forms as presets."""
    return [
        AttackSpec(
            name="gradmatch",
            version="1",
            summary="finds images whose gradients or updates match those released; presets dlg, "
            "cosine, bn, strongest, realistic (labels, no statistics), scripts (neither)",
            reference="Zhu et al. 2019, Deep Leakage from Gradients; Geiping et al. 2020, "
            "Inverting Gradients; Yin et al. 2021, See through Gradients; settings of Huang et "
            "al. 2021, Evaluating Gradient Inversion Attacks and Defenses, appendix A; of updates "
            "Dimitrov et al. 2022, Data Leakage in Federated Averaging",
            factory="harness_plugins.attacks.gradmatch.attack:GradientMatching",
            config=GradmatchConfig,
            needs=(
                frozenset({Channel.GRADIENTS, Channel.MODEL}),
                frozenset({Channel.UPDATES, Channel.MODEL}),
            ),
            optional=frozenset(
                {
                    Channel.BATCH_LABELS,
                    Channel.BN_STATISTICS,
                    Channel.WEIGHTS,
                    Channel.SOURCES,
                    Channel.PUBLIC,
                    Channel.ENCODER,
                    Channel.N_PRIVATE,
                }
            ),
            effort="steps",
            controls=(
                Control("none", "fashion-mini", "snr_db", 12.0, options=_CONTROL),
                Control(
                    "gradprune[p=0.5]",
                    "fashion-mini",
                    "snr_db",
                    8.0,
                    options=_CONTROL,
                ),
                Control("none", "fashion-mini", "snr_db", 12.0, options=_UPDATES),
            ),
            presets={
                "quick": {"steps": 300},
                "standard": {"steps": 2400},
                "paper": {"steps": 10_000},
                "dlg": _DLG,
                "cosine": _COSINE,
                "bn": _BN,
                "strongest": _STRONGEST,
                "realistic": _REALISTIC,
                "scripts": _SCRIPTS,
            },
            formula=(
                "min over x of d(grad L(x, y), g~) + tv TV(x) + bn sum over layers "
                "(|mean - mean'| + |var - var'|)\n"
                "d = 1 - cos over all layers, or |.|^2; entries of g~ that were pruned are left "
                "out; signed Adam, rate x .1 at 3/8, 5/8, 7/8\n"
                "mixed batches: inputs first, then images by least squares on the known mixture; "
                "TV and squares on absolute values where signs are hidden\n"
                "updates: in place of grad L, the mean of the gradients that simulated steps "
                "follow, differentiated through all of them"
            ),
            weaknesses=(
                "knows the loss as cross entropy: penalties of training defenses and the clipping "
                "of dpsgd are not in its model of the gradient",
                "dropout in train mode draws other units than the owner's did",
                "finds little where max pooling or sigmoid saturation make gradients flat",
                "inputs of a mixed batch are told apart by their labels alone",
                "of updates: simulates images in one order, and parties shuffle; labels are read "
                "off the mean gradient; what only some steps pruned is matched as if none had",
            ),
            example="harness evaluate --defense 'gradprune[p=0.9]' --victim strided "
            "--attack 'gradmatch[steps=600]'",
        )
    ]
