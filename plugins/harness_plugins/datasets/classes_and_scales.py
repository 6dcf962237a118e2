"""Names of classes, and means and deviations by channel, of what comes in more than one form."""

from __future__ import annotations

from harness.api import Scale

CIFAR10_SCALE = Scale(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

FASHION_SCALE = Scale(mean=(0.2860,), std=(0.3530,))
FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
