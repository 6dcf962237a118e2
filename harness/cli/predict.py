"""`harness predict`."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from harness.cli.options import PATH, epilog, json_option, quiet_option


@click.command(
    "predict",
    epilog=epilog(
        "harness predict model scans/1.png scans/2.png",
        "harness predict model scans > found.csv",
        "harness predict model fashion-mini --json",
    ),
)
@click.argument("model", type=PATH)
@click.argument("images", nargs=-1, required=True)
@quiet_option
@json_option
def command(model: Path, images: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """Say which class each image is of: CSV, or JSON, with a probability.

    IMAGES are files, folders of them, or one dataset by name, whose test images are taken. The
    probability is the softmax of what the learner gives: it ranks, and is not calibrated.
    """
    from harness.cli.progress import Bars
    from harness.packages.model import load_model, predictions
    from harness.results.tables import as_text

    loaded = load_model(model)
    with Bars(quiet=quiet or as_json) as watching:
        found = predictions(loaded, images, watching)
        if as_json:
            click.echo(json.dumps([asdict(each) for each in found]))
            return
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(("image", "class", "probability"))
        for each in found:
            named = map(as_text, (each.image, each.predicted))
            table.writerow((*named, f"{each.probability:.4f}"))
