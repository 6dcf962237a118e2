"""`firstlayer`: inputs of a fully connected first layer, read off its gradient."""

from __future__ import annotations

from harness.api import AttackSpec, Channel, Config, Control, hookimpl

_ALONE = {
    "victim": "mlp",
    "release": "gradients",
    "targets": 16,
    "private_size": 100,
    "public_size": 200,
}

_UPDATES = {**_ALONE, "release": "updates", "local_steps": 5}
_PLANTED = {**_UPDATES, "victim": "planted", "victim_epochs": 0, "batch_size": 4}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The closed form, for models that begin with a dense layer that has a bias."""
    return [
        AttackSpec(
            name="firstlayer",
            version="1",
            summary="divides a dense first layer's gradient by its bias's: exact for one image",
            reference="Huang et al. 2020, InstaHide, lemma B.1; Phong et al. 2017, "
            "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption, section 3; "
            "Fowl et al. 2022, Robbing the Fed, of batches and planted layers",
            factory="harness_plugins.attacks.firstlayer.attack:FirstLayer",
            config=Config,
            needs=(
                frozenset({Channel.GRADIENTS, Channel.MODEL}),
                frozenset({Channel.UPDATES, Channel.MODEL}),
            ),
            controls=(
                Control("none", "fashion-mini", "snr_db", 60.0, options=_ALONE),
                Control(
                    "none", "fashion-mini", "snr_db", 40.0, options={**_ALONE, "batch_size": 4}
                ),
                Control("none", "fashion-mini", "snr_db", 60.0, options=_UPDATES),
                Control("none", "fashion-mini", "snr_db", 60.0, options=_PLANTED),
            ),
            formula=(
                "dL/dW_i = dL/db_i x for every unit i:  x^ = sum_i (dL/db_i) (dL/dW_i) / "
                "sum_i (dL/db_i)^2, over entries that were not set to zero\n"
                "of b images each unit tells (dL/dW_i) / (dL/db_i), a mixture of those that it "
                "answered to; the b that most others repeat are taken, no two of them alike\n"
                "units alike but for their thresholds tell an image apart by the step from one to "
                "the next; an update is -lr times the sum of its steps' gradients"
            ),
            weaknesses=(
                "models that begin with a convolution are out of its reach",
                "noise on gradients stays in the answer: it knows no prior of images",
                "in a batch an image is seen as it is only where some unit answered to it alone",
                "what it finds of mixed batches are the mixtures",
                "an update is rounded as weights are: the less a step adds to them, the less exact",
            ),
            example="harness evaluate --defense none --victim mlp --release gradients "
            "--attack firstlayer",
        )
    ]
