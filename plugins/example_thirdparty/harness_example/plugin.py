"""What this package declares. Imports no torch: the classes are imported when they run."""

from __future__ import annotations

from pydantic import Field

from harness.api import (
    AttackSpec,
    Channel,
    Config,
    Control,
    DatasetSpec,
    DefenseSpec,
    LearnerSpec,
    MetricSpec,
    SpaceSpec,
    Stage,
    hookimpl,
)

SMALL = {"victim": "mlp", "private_size": 12, "public_size": 40, "test_size": 20}
"""Options of the cells that attacks must break: enough images to tell, few enough for seconds."""

LEARNING = {"private_size": 200, "test_size": 100}
"""And for learners, who need more."""


class BlurConfig(Config):
    """How strongly images are blurred."""

    strength: float = Field(1.0, ge=0, le=10, description="deviation of the Gaussian, in pixels")


class CloudsConfig(Config):
    """How thick the clouds are, and how large."""

    thickness: float = Field(5.0, ge=0, le=1000, description="deviation of the noise")
    size: float = Field(3.0, ge=0, le=10, description="deviation of its blur, in pixels")


class SmallHiddenConfig(Config):
    """How dear large features are."""

    weight: float = Field(0.1, ge=0, description="factor of the penalty")


class ClipConfig(Config):
    """How long a gradient may be."""

    norm: float = Field(1.0, gt=0, description="largest Euclidean norm over all parameters")


class CornersConfig(Config):
    """How large the corner-like patches are."""

    side: int = Field(4, ge=2, le=28, description="pixels a side of each patch")


class FeatureMeanConfig(Config):
    """How many neighbours are averaged."""

    neighbours: int = Field(5, ge=1, description="public images averaged for each target")


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """One defense of each stage."""
    return [
        DefenseSpec(
            name="blur",
            version="1",
            summary="releases images blurred by a Gaussian",
            reference="textbook example; no paper calls this private",
            factory="harness_example.defenses:Blur",
            config=BlurConfig,
            stage=Stage.ENCODING,
            formula="x~ = x * N(0, strength²), circular",
            weaknesses=("a convolution can be undone: see the attack 'sharpen'",),
            example="blur[strength=2]",
        ),
        DefenseSpec(
            name="clouds",
            version="1",
            summary="covers images with smooth noise",
            reference="textbook example; no paper calls this private",
            factory="harness_example.defenses:Clouds",
            config=CloudsConfig,
            stage=Stage.ENCODING,
            formula="x~ = x + thickness · e * N(0, size²), circular, e white; the noise to unit "
            "variance",
            weaknesses=("noise without fine detail leaves that of the image in clear",),
            example="clouds[thickness=5]",
        ),
        DefenseSpec(
            name="smallhidden",
            version="1",
            summary="trains with a penalty on the energy of the released features",
            reference="textbook example: weight decay, on activations",
            factory="harness_example.defenses:SmallHidden",
            config=SmallHiddenConfig,
            stage=Stage.TRAINING,
            formula="loss + weight · mean over the batch of ‖h(x)‖²",
            weaknesses=("small features say as much as large ones, up to rounding",),
            example="smallhidden[weight=0.01]",
        ),
        DefenseSpec(
            name="clip",
            version="1",
            summary="shortens each gradient to a given norm",
            reference="Abadi et al. 2016, arXiv:1607.00133, algorithm 1, without its noise",
            factory="harness_example.defenses:Clip",
            config=ClipConfig,
            stage=Stage.GRADIENT,
            formula="g / max(1, ‖g‖ / norm)",
            weaknesses=("keeps the direction, which is what attacks read: see 'inputlayer'",),
            example="clip[norm=0.5]",
        ),
    ]


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """One attack on each kind of release, and one that picks from a list."""
    return [
        AttackSpec(
            name="sharpen",
            version="1",
            summary="learns on public images the filter that undoes the encoding best",
            reference="Wiener 1949, Extrapolation, Interpolation and Smoothing",
            factory="harness_example.attacks:Sharpen",
            needs=(frozenset({Channel.ENCODINGS, Channel.ENCODER, Channel.PUBLIC}),),
            controls=(Control("blur[strength=0.5]", "stripes", "snr_db", 40.0),),
            formula="G(f) = Σ X(f) conj(X~(f)) / Σ |X~(f)|², over public images",
            weaknesses=("one filter for all images: blind to masks and mixtures",),
            example="sharpen",
        ),
        AttackSpec(
            name="featuremean",
            version="1",
            summary="averages the public images whose features are nearest",
            reference="k-nearest-neighbour regression",
            factory="harness_example.attacks:FeatureMean",
            config=FeatureMeanConfig,
            needs=(frozenset({Channel.FEATURES, Channel.FEATURE_ENCODER, Channel.PUBLIC}),),
            controls=(Control("none", "stripes", "snr_db", 3.0, SMALL | {"public_size": 400}),),
            formula="x^ = mean of the public p with the smallest ‖h(p) - h(x)‖",
            weaknesses=("shows nothing that the public pool does not hold",),
            example="featuremean[neighbours=3]",
        ),
        AttackSpec(
            name="inputlayer",
            version="1",
            summary="reads the input of a fully connected first layer off its gradient",
            reference="Phong et al. 2018, IEEE TIFS 13(5), section III",
            factory="harness_example.attacks:FirstLayer",
            needs=(frozenset({Channel.GRADIENTS}),),
            controls=(Control("none", "stripes", "snr_db", 40.0, SMALL),),
            formula="∂L/∂W = δ xᵀ and ∂L/∂b = δ, so x^ = Wgradᵀ δ / ‖δ‖²",
            weaknesses=(
                "needs a first layer that is linear with a bias (victim mlp)",
                "in batches of several images it sees their mixture",
            ),
            example="inputlayer",
        ),
        AttackSpec(
            name="lookup",
            version="1",
            summary="says which image of a list each encoding was made of",
            reference="nearest neighbour",
            factory="harness_example.attacks:Lookup",
            needs=(frozenset({Channel.ENCODINGS, Channel.SOURCES, Channel.CANDIDATES}),),
            controls=(
                Control(
                    "blur",
                    "stripes",
                    "identification.top1",
                    0.8,
                    SMALL | {"threat_model": "candidates"},
                ),
            ),
            formula="score(target, candidate) = -‖x~ - candidate‖",
            weaknesses=("compares pixels: random signs or much noise defeat it",),
            example="--threat-model candidates --attack lookup",
        ),
    ]


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """A dataset that needs no download."""
    return [
        DatasetSpec(
            name="stripes",
            version="1",
            summary="generated stripes, 12 x 12, grey: across, upright and slanting",
            reference="made up here",
            factory="harness_example.dataset:Stripes",
        )
    ]


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """How wrong the worst pixel is."""
    return [
        MetricSpec(
            name="max_error",
            version="1",
            summary="largest absolute error of a pixel, on images in [0,1]",
            reference="Chebyshev distance",
            factory="harness_example.metric:MaxError",
            formula="max |x - x^|",
            leaks_more="lower",
            range=(0.0, 1.0),
        )
    ]


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """What can be learned where only directions count."""
    return [
        LearnerSpec(
            name="spectrum",
            version="1",
            summary="nearest class mean of amplitude spectra, which forget where things are",
            reference="textbook example: the Fourier transform's shift theorem",
            factory="harness_example.learner:Spectrum",
            varies=False,
            controls=(Control("blur[strength=1]", "stripes", "accuracy", 0.8, SMALL | LEARNING),),
            formula="m_c = mean of |F x~| weighted by labels; logit_c(x) = -‖|F x| - m_c‖²",
            weaknesses=("noise has a spectrum too, and adds it to every class",),
            example="--learner spectrum",
        )
    ]


@hookimpl
def harness_spaces() -> list[SpaceSpec]:
    """One space."""
    return [
        SpaceSpec(
            name="corners",
            version="1",
            summary="differences of neighbouring patches' brightness, right and below",
            reference="textbook example: a Haar wavelet without its mean",
            factory="harness_example.space:Corners",
            config=CornersConfig,
            formula="z = (p(i, j) - p(i, j+1), p(i, j) - p(i+1, j)), p: mean of side x side pixels",
            example="--space 'corners[side=7]'",
        )
    ]
