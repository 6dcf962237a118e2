"""`inversion`: an image whose features are the released ones, by descent or by a decoder."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from harness.api import AttackSpec, Channel, Config, Control, hookimpl

_PAPER: dict[str, Any] = {
    "distance": "l2",
    "features": "relative",
    "optimizer": "sgd",
    "schedule": "none",
    "steps": 500,
    "lr": 10.0,
    "weight_decay": 1e-4,
    "lambda_tv": 1e-5,
    "lambda_prior": 0.0,
    "start": "zeros",
    "restarts": 1,
    "clamp": False,
}
_SYNTHETIC: dict[str, Any] = {
    **_PAPER,
    "distance": "l1",
    "features": "raw",
    "lr": 0.01,
    "lambda_tv": 0.0,
    "start": "noise",
}
_DECODER_GAN: dict[str, Any] = {
    "method": "decoder",
    "gan": True,
    "epochs": 50,
    "batch": 128,
    "decoder_lr": 2e-3,
    "images": 50_000,
}
_QUICK: dict[str, Any] = {"steps": 200, "restarts": 1, "images": 2000, "base": 16, "epochs": 4}
_STANDARD: dict[str, Any] = {"steps": 400, "restarts": 2, "images": 4000}
_CONTROL: dict[str, Any] = {
    "release": "features",
    "victim": "lenet5",
    "private_size": 300,
    "public_size": 1500,
}


class InversionConfig(Config):
    """What is minimised, from where and how; and the decoder's training."""

    method: Literal["descent", "decoder"] = Field(
        "descent",
        description="descent: search an image for each row of features; decoder: a network "
        "trained on public images and their features answers all",
    )
    distance: Literal["l2", "squared", "l1"] = Field(
        "squared", description="between h(s) and z: the norm, its square, or the sum of moduli"
    )
    features: Literal["raw", "relative", "whitened"] = Field(
        "whitened",
        description="how features are measured: as they are, in units of ||z||, or by the inverse "
        "covariance of public features",
    )
    shrinkage: float = Field(
        0.03,
        gt=0,
        le=1e3,
        description="whitening adds so much of the mean variance to every direction",
    )
    optimizer: Literal["adam", "sgd"] = Field("adam", description="sgd: plain, no momentum")
    schedule: Literal["cosine", "none"] = Field(
        "cosine", description="of the learning rate, towards zero or constant"
    )
    steps: int = Field(400, ge=1, le=1_000_000, description="of the descent")
    lr: float = Field(0.05, gt=0, le=1e6, description="learning rate of the descent")
    weight_decay: float = Field(
        0.0, ge=0, le=1e3, description="weight decay of the descent's optimiser"
    )
    lambda_tv: float = Field(
        0.2, ge=0, le=1e6, description="ζ, weight of the isotropic total variation"
    )
    lambda_prior: float = Field(
        0.03,
        ge=0,
        le=1e6,
        description="weight of the squared distance to the mean public image, measured by the "
        "inverse covariance of public images (without public images: 0)",
    )
    start: Literal["ridge", "zeros", "noise"] = Field(
        "ridge",
        description="ridge regression from features to images (without public images: zeros), "
        "the number 0 in the domain, or standard normal noise in it",
    )
    restarts: int = Field(
        2,
        ge=1,
        le=1000,
        description="descents for each image, of which the lowest loss is kept; all but the "
        "first add noise to the start",
    )
    jitter: float = Field(
        0.5, ge=0, le=100, description="deviation of that noise, in standardised units"
    )
    domain: Literal["standardised", "unit"] = Field(
        "standardised", description="what s is and the penalties see: standardised values or [0,1]"
    )
    clamp: bool = Field(True, description="hold s to the valid range after each step")
    images: int = Field(
        4000, ge=20, le=1_000_000, description="public images that are learned from, at the most"
    )
    base: int = Field(24, ge=4, le=256, description="decoder: channels of the finest level")
    epochs: int = Field(8, ge=0, le=10_000, description="decoder: passes over the public images")
    batch: int = Field(64, ge=1, le=4096, description="decoder: images in a step")
    decoder_lr: float = Field(2e-3, gt=0, le=1.0, description="decoder: learning rate of Adam")
    gan: bool = Field(
        False, description="decoder: the loss of equation 7 instead of the logarithm of the error"
    )
    xi: float = Field(
        10.0, ge=0, le=1e6, description="ξ of equation 7: weight of each of the two L1 errors"
    )

    @model_validator(mode="after")
    def _gan_is_a_decoder(self) -> InversionConfig:
        if self.gan and self.method != "decoder":
            raise ValueError("gan=true is a loss of decoders; add method=decoder")
        return self

    def busiest(self) -> str:
        """A decoder is trained for epochs."""
        return "epochs" if self.method == "decoder" else "steps"

    def uses_public(self) -> bool:
        """Whether public images change anything under these options."""
        learned = self.features == "whitened" or self.start == "ridge" or self.lambda_prior > 0
        return self.method == "decoder" or learned

    def forgoes(self) -> frozenset[Channel]:
        """The public images, where nothing is learned from them."""
        return frozenset() if self.uses_public() else frozenset({Channel.PUBLIC})


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The inversion of representations."""
    return [
        AttackSpec(
            name="inversion",
            version="1",
            summary="searches images whose features are the released ones, or decodes them",
            reference="MixCon: Adjusting the Separability of Data Representations for Harder Data "
            "Recovery, arXiv:2010.11463, equation 3, appendices C.1, C.2 and D.2 (equation 7)",
            factory="harness_plugins.attacks.inversion.attack:Inversion",
            config=InversionConfig,
            needs=(frozenset({Channel.FEATURES, Channel.FEATURE_ENCODER}),),
            optional=frozenset({Channel.PUBLIC}),
            effort="steps",
            controls=(Control("none", "fashion-mini", "ssim", 0.6, options=_CONTROL),),
            presets={
                "quick": _QUICK,
                "standard": _STANDARD,
                "paper": _PAPER,
                "paper-svhn": {**_PAPER, "lambda_tv": 0.01},
                "synthetic": _SYNTHETIC,
                "decoder": {"method": "decoder", "images": 50_000},
                "decoder-gan": _DECODER_GAN,
            },
            formula=(
                "min over s of D(h(s), z) + zeta sum_ij ((s_{i+1,j} - s_ij)^2 + "
                "(s_{i,j+1} - s_ij)^2)^(1/2) + lambda_prior (s - mu)^T C^-1 (s - mu)\n"
                "default: D = (h(s) - z)^T K^-1 (h(s) - z), Adam; mu, C, K of public images and "
                "their features\n"
                "paper: D = ||h(s) - z||_2 / ||z||_2, SGD;  synthetic: D = ||h(s) - z||_1\n"
                "decoder: x^ = mean + share net(z), loss = mean log ||x^ - x||^2;  gan: "
                "-log D(x^) + xi |x^ - x| + xi |h(x^) - z|, means of moduli"
            ),
            weaknesses=(
                "paper: its text gives neither start, nor value domain, nor the scale of the "
                "features. Taken to the letter its rate of 10 overshoots: from zeros, on "
                "standardised MNIST and undefended LeNet-5 features whose norm is near 80, it "
                "reaches an SSIM of .11. In units of ||z|| (the paper keeps ||h|| at 1 in "
                "training) the same descent gives .64 on images of the 6 000 that were trained on, "
                "which is the paper's number; of 22 readings that were tried there it was chosen "
                "for that (from noise .53; squared distance in [0,1] .75). So the preset has "
                "features=relative, start=zeros, domain=standardised. It depends on the victim: "
                "one trained on 50 000 images (99.0 %) gives .45 on images held out, and none of "
                "eight readings gave more than .46.",
                "default: shrinkage and lambda_tv were chosen by SSIM on 30 private images of "
                "MNIST, of some 25 settings; tables of MNIST judge other images",
                "synthetic: starts from noise, because the paper's error of 2.35 for an h that "
                "has collapsed is near that of unit noise (2.5; zeros would have 1.5). With "
                "undefended features it has an error of 2.4 and a cosine of .06, where the paper "
                "has 1.92 and .169; the logistic units are saturated and hardly move it.",
                "paper: ignores that features differ in scale and what images look like: it is no "
                "measure of what the features hold",
                "default and decoder: as good as the public images resemble the targets",
                "a release whose features have few dimensions leaves many images with the same "
                "features: the lowest loss is then not the nearest image",
                "gan: the generator's adversarial term is -log D(x^), not log(1 - D(x^)), whose "
                "gradient vanishes early; features are compared after each number is put to unit "
                "deviation; errors are means over numbers, where the paper writes norms; the "
                "output is the mean public image plus a share of what the network adds, and share "
                "and epoch are the best on held-out public images",
            ),
            example="harness evaluate --dataset fashion-mini --release features --victim lenet5 "
            "--attack 'inversion[preset=paper]'",
        )
    ]
