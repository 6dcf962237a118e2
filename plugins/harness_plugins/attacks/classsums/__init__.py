"""`classsums`: what noisy class sums tell of each image of the class."""

from __future__ import annotations

from harness.api import AttackSpec, Channel, Config, Control, hookimpl

_FEW = {"private_size": 10, "public_size": 1000}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The posterior mean of an image, given its class's sum."""
    return [
        AttackSpec(
            name="classsums",
            version="1",
            summary="the class mean that noisy sums leave most likely, as each image of the class",
            reference="linear minimum-mean-square-error estimation, e.g. Kay, Fundamentals of "
            "Statistical Signal Processing: Estimation Theory, section 12.3",
            factory="harness_plugins.attacks.classsums.attack:ClassSums",
            config=Config,
            needs=(frozenset({Channel.STATISTICS, Channel.PUBLIC, Channel.N_PRIVATE}),),
            optional=frozenset({Channel.BATCH_LABELS}),
            controls=(Control("dpmeans[epsilon=1000]", "fashion-mini", "snr_db", 6.0, _FEW),),
            formula=(
                "x^ = m_c + B g (S_c / n_c - E m_c),  g = (v / n_c) / (v / n_c + v / p_c + "
                "noise^2 / n_c^2)\n"
                "m_c: public class mean, of p_c images; E, B: regressions of what is summed on "
                "images and back, on public images; v: variance of what is summed, by component"
            ),
            weaknesses=(
                "all images of a class get one answer: it finds images only where a class has few",
                "without the images' labels its answers name no target",
            ),
            example="harness evaluate --defense 'dpmeans[epsilon=2]' --attack classsums",
        )
    ]
