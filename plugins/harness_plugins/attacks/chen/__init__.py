"""`chen`: who shares images with whom, from correlations of absolute values alone."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import AttackSpec, Control, hookimpl
from harness_plugins.clusters import PUBLISHED, ClusterConfig


class ChenConfig(ClusterConfig):
    """How the Gram matrix is had and factored, and images are solved for."""

    whiten: bool | Literal["auto"] = Field(
        default="auto",
        description="true: on encodings of public images, as real images' values depend on each "
        "other and the attack takes them for independent; auto: where public encodings show "
        "that they do",
    )
    encodings: int = Field(
        default=20_000,
        ge=20,
        le=1_000_000,
        description="public encodings to learn whitening from, at the most",
    )
    factor: Literal["auto", "rotation", "line-graph", "floral"] = Field(
        default="auto",
        description="line-graph: the root of the graph of encodings that share an image, of two "
        "private images; floral: blocks of all k-subsets of k+2 images, of more; rotation: "
        "eigenvectors turned until they are sparse; auto: rotation, of any number",
    )
    starts: int = Field(
        default=6,
        ge=0,
        le=1000,
        description="random starts for values that the regression leaves unsolved",
    )
    sweeps: int = Field(
        default=3,
        ge=0,
        le=1000,
        description="turns of reading memberships and weights off the images and solving again; "
        "0 is the paper's way, which has exact weights",
    )


_OWN_SETTING = {"private_size": 40, "rounds": 30, "public_size": 200, "test_size": 40}
_REAL = {"private_size": 40, "rounds": 30}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Chen et al."""
    return [
        AttackSpec(
            name="chen",
            version="2",
            summary="mixing weights by the covariance of absolute values, then phase retrieval",
            reference="Chen, Li, Song & Zhuo 2020, On InstaHide, Phase Retrieval, and Sparse "
            "Matrix Factorization, arXiv:2011.11181; whitening, the rotation, labels, rereading, "
            "the few public images that are looked at together, and the signs of values are this "
            "benchmark's own",
            factory="harness_plugins.attacks.chen.attack:Chen",
            config=ChenConfig,
            needs=(PUBLISHED,),
            fewest_rounds=2,
            effort="sweeps",
            controls=(
                Control(
                    "instahide[k=2]",
                    "synthetic-gaussian[d=5000,n=300,n_test=60]",
                    "snr_db_abs",
                    20.0,
                    options=_OWN_SETTING,
                ),
                Control("instahide[k=2]", "fashion-mini", "snr_db", 10.0, options=_REAL),
            ),
            presets={"quick": {"encodings": 5000, "starts": 2}},
            formula=(
                "public images p, where they are mixed whole and their values are independent: "
                "(1/d) sum_j x~_j^2 (p_j p_j' - I) -> 2 w w', the top eigenvector, among the "
                "images of its largest diagonal; their part of G is subtracted, and what they add "
                "to a mixture gives the signs\n"
                "corr(|u|,|v|) = (2/pi)(sqrt(1-r^2) + r asin r - 1)/(1 - 2/pi), rising in r >= 0; "
                "inverted, 0 below 2.5 deviations of chance: G = W W'\n"
                "line-graph: G > 0 is the line graph of the images' graph; floral: C(k+2,k) rows "
                "with the intersections of all k-subsets; rotation: R = polar(U' (U R)_+^3), U "
                "the leading eigenvectors of G\n"
                "values: |W x_p| = y_p, from the leading eigenvector of the products that y_p^2 "
                "= sum w_a w_b x_a x_b tells; x_p = W^+ (y_p sign(W x_p))\n"
                "signs of values: leading eigenvector of (found moments) o (public moments)"
            ),
            weaknesses=(
                "its theory is for independent Gaussian values: without whitening, real images' "
                "correlations are mostly of what all images have in common",
                "needs many encodings of each image, and more values than chance hides sharing "
                "in: two encodings that share weight r correlate by about .88 r^2",
                "images that are moved before mixing, and noise, weaken every correlation",
                "patches, which a cross mixture of images is made of, are in no list of images: "
                "public images are looked for where they are mixed whole, as other data are, and "
                "patches are noise",
                "floral blocks of k > 2 hardly exist among a few thousand encodings of a hundred "
                "images, and read the number of shared images off a cosine as if all weights "
                "were equal",
                "images without correlated values, as Gaussian ones, are found up to a sign of "
                "each value, the same in all of them, unless public ones are mixed in",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --rounds 50 --private-size 100 "
            "--attack chen",
        )
    ]
