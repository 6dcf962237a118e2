"""`recognition`: whether a classifier that knows public images alone can read a reconstruction."""

from harness.api import MetricSpec, hookimpl


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """One metric."""
    return [
        MetricSpec(
            name="recognition",
            version="1",
            summary="share of reconstructions that a small network trained on public images reads "
            "as their target's class",
            reference="in place of the eye that finds digits recognizable in Huang et al. 2021, "
            "Evaluating Gradient Inversion Attacks and Defenses in Federated Learning, figure 8",
            factory="harness_plugins.metrics.recognition.reader:Recognition",
            formula="1 where the network's answer to x̂ is the class of x, else 0; unavailable "
            "where it reads public images it was not trained on no better than a guess",
            weaknesses=(
                "who knows the label can show the mean of its class, which on digits and clothes "
                "is read as well as the images themselves: the gain over that null is hardly ever "
                "positive there, and the metric says whether a picture can be read, not what the "
                "attack learned",
                "one picture of each class would score as well as the images themselves",
                "the network has seen clean images only, and few: of CIFAR-10 itself it reads "
                "half, and people may read what it does not",
            ),
            leaks_more="higher",
            range=(0.0, 1.0),
            unit="proportion",
            slow=True,
        )
    ]
