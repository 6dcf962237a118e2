"""Why nothing is proven of an encoding: said alike by every ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.api import Law, OwnersView

_GIVE = {
    "radius": "radius=… or calibrate=public",
    "scale": "scale=…",
}


def refusal(view: OwnersView) -> str:
    """Why the law of a release allows no ceiling of any kind; empty where it may."""
    law = view.law
    if law is None:
        return f"'{view.defense}' states no law, and without one nothing is proven"
    found = _noiseless(law) or _measured(view, law)
    if found or not law.altered:
        return found
    return f"the encodings are of {law.altered}, and what is proven is of the images themselves"


def _noiseless(law: Law) -> str:
    if law.signs:
        return (
            "random signs are the only thing that covers the mixture: absolute values leave as "
            "they are, and no noise hides which images they are of"
        )
    if law.noise == "none":
        return "no noise is added: whoever is told the partners has the image itself"
    if law.noise == "sphere":
        return (
            "noise of an exact norm: given the weights, the laws of two images have no outcome in "
            "common (they are mutually singular), so that candidates can be told apart with "
            "certainty; noise=gaussian has a ceiling"
        )
    return ""


def _measured(view: OwnersView, law: Law) -> str:
    if law.calibrated:
        name = law.calibrated[0]
        instead = _GIVE.get(name, f"{name}=…")
        return (
            f"{name} was measured on the private images and so depends on the target: whoever "
            f"knows the others reads the target's share off it; give {instead}"
        )
    if view.scale_measured:
        return (
            "the dataset's scale is measured on its own images, the targets among them, and so "
            "depends on the target"
        )
    return ""
