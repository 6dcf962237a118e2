"""Images of users in the shape, the space and the scale that a package names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api import Samples, UsageError
from harness.asking.plan import plan
from harness.asking.registry import Registry, registry
from harness.asking.request import Selection, make_request, validated
from harness.packages.statement import Preprocessing, Used
from harness.running.load import adapted
from harness.running.run import Observer, Run, check_machine, equip
from harness.running.samples import features_key, standardised
from harness.running.stage import plugin_boundary
from harness.store import Store, cache_root
from harness.store.features import FeatureStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
SHIPPED = "fashion-mini"
"""Named where a run needs a dataset and none is asked for: it comes with the package."""
PLAIN = {"preset": "standard", "only": "privacy", "metrics": "mse", "attack": "identity"}
"""What a run is asked that evaluates nothing."""


def written(used: Used) -> str:
    """A plugin with its options, as they are written on the command line."""
    options = {key: "none" if v is None else str(v) for key, v in used.config.items()}
    return Selection(used.name, options).written


def require_known(law: Used, known: Registry) -> None:
    """UsageError unless a defense that is installed has a package's law."""
    spec = known.spec("defenses", law.name)
    fault = f"The package's law is none of '{spec.name}' {spec.version}"
    validated(spec.config, law.config, fault)
    if spec.version != law.version:
        raise UsageError(f"{fault}: it is of version {law.version}.")


def opened(observer: Observer, *, secret: bytes | None = None, **options: Any) -> Run:
    """A run that lends datasets, spaces and the store, and evaluates nothing."""
    asked = {key: value for key, value in options.items() if value is not None}
    root, known = cache_root(), registry()
    cell = equip(plan(make_request(**{**PLAIN, **asked}), known), root, secret)
    check_machine(cell.device)
    return Run(cell, Store(root), known, observer=observer, secret=secret)


@dataclass(frozen=True)
class Way:
    """How images become what a classifier is asked about; `run` has the space."""

    run: Run
    steps: Preprocessing

    @classmethod
    def of(cls, steps: Preprocessing, observer: Observer, **options: Any) -> Way:
        """With a run of its own, of these datasets."""
        used = {"dataset": SHIPPED, **{k: v for k, v in options.items() if v is not None}}
        run = opened(observer, space=written(steps.space), **used)
        if not run.cell.space.spec.extracts and steps.image != steps.shape:
            raise UsageError(
                f"Images of shape {steps.image} do not become {steps.shape} in the space "
                f"'{steps.space.name}', which extracts nothing."
            )
        return cls(run, steps)

    def standardised(self, samples: Samples) -> Samples:
        """Samples of any image size, float32 [n, *shape]."""
        return standardised(self.embedded(samples), self.steps.scale)

    def embedded(self, samples: Samples) -> Samples:
        """The same before they are standardised."""
        space = self.run.cell.space
        image = self.steps.image if space.spec.extracts else self.steps.shape
        if len(image) != 3:
            raise UsageError(f"Images are asked about; this is of vectors of shape {image}.")
        there = adapted(samples, samples.images.new_empty(0, *image))
        return there.map(self._features) if space.spec.extracts else there

    def _features(self, images: Tensor) -> Tensor:
        run, space = self.run, self.run.cell.space
        extractor = run.build("spaces", space.spec, space.config)

        def extract(batch: Tensor) -> Tensor:
            unit = Samples(batch, batch.new_empty(0)).unit().images.to(run.device)
            found: Tensor = extractor.embed(unit, run.assets)
            return found

        features = FeatureStore(run.store, features_key(run.cell), tuple(images.shape[1:]))
        with plugin_boundary(space.name), run.watched("features") as progress:
            return features.obtain(images, extract, progress)


def pictures(path: Path) -> list[Path]:
    """An image file, or all of a folder and below it by name; UsageError where there are none."""
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
        if not found:
            raise UsageError(
                f"There are no images in {path}; looked for {' '.join(sorted(SUFFIXES))}"
            )
        return found
    if not path.is_file():
        raise UsageError(f"There is no image {path}.")
    return [path]


def read_picture(path: Path, image: tuple[int, int, int]) -> NDArray[np.uint8]:
    """uint8 [c, h, w]: upright and cut to its centre, as the dataset `folder` does it."""
    import numpy as np
    from PIL import Image, ImageOps

    channels, height, width = image
    try:
        with Image.open(path) as opened_:
            if opened_.mode in {"F", "I", "I;16", "I;16B", "I;16L"}:
                raise ValueError("it has more than 8 bits per channel; convert it to 8 bits first")
            upright = ImageOps.exif_transpose(opened_).convert("L" if channels == 1 else "RGB")
            fitted = ImageOps.fit(upright, (width, height), Image.Resampling.BICUBIC)
    except (OSError, EOFError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path} cannot be read as an image: {error}") from None
    values = np.asarray(fitted)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))
