"""`noisymeans`: a linear discriminant from noisy class sums."""

from __future__ import annotations

from harness.api import Config, Control, LearnerSpec, ReleaseKind, hookimpl


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the learner."""
    return [
        LearnerSpec(
            name="noisymeans",
            version="1",
            summary="linear discriminant from noisy class sums, whitened by public images",
            reference="linear discriminant analysis (Fisher, 1936) with empirical-Bayes shrinkage "
            "of the class means",
            factory="harness_plugins.learners.noisymeans.learner:NoisyMeans",
            config=Config,
            varies=False,
            reads=ReleaseKind.STATISTICS,
            controls=(
                Control("dpmeans[epsilon=1000]", "fashion-mini", "accuracy", 0.7),
                Control("dpmeans[epsilon=8]", "fashion-mini", "accuracy", 0.6),
            ),
            formula="m_c = S_c / n_c, shrunk along each principal component of public rows z by "
            "b / (b + e); e = noise^2 / n_c^2 + v / n_c; b: variance between classes there\n"
            "logit_c(x) = (z - mu)'V^-1 m_c - m_c'V^-1 m_c / 2, V: what b leaves of the variance v",
            weaknesses=(
                "it is linear in what was summed",
                "classes with fewer images than the noise on their number are hardly told",
            ),
            example="harness evaluate --defense 'dpmeans[epsilon=2]' --attack classsums "
            "--learner noisymeans",
        )
    ]
