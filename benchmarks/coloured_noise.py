"""The best linear attack for white noise, and the best learned one, on noise that is not white.

    python -m pip install plugins/example_thirdparty    # a stranger's defense, `clouds`
    python benchmarks/coloured_noise.py                 # CIFAR-10; --dataset fashion for the other

Pooled SNR in dB, 10 log10 of the images' energy over that of the errors, of 1000 images that are
told, by what the clouds are like. Answers are judged as everywhere, held to the range of images,
which spares `lmmse` the worst of its errors. Needs `harness assets fetch cifar10 fashion`.
"""

from __future__ import annotations

import argparse
import math

from harness import evaluate

CLOUDS = ("thickness=2", "thickness=5", "thickness=10", "size=8")
"""By default clouds have a thickness of 5 and a size of 3 pixels."""


def main() -> None:
    """One line for each kind of cloud."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("cifar10", "fashion"), default="cifar10")
    parser.add_argument("--only", default="", help="clouds whose options hold this")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    print(f"{asked.dataset}, dB   {'lmmse':>8}{'regression':>12}{'more by':>9}   flags of lmmse")
    for clouds in (each for each in CLOUDS if asked.only in each):
        records = [
            evaluate(
                defense=f"clouds[{clouds}]",
                attack=attack,
                dataset=asked.dataset,
                public_size=20_000,
                preset="standard",
                metrics="snr_db",
                only="privacy",
                threads=asked.threads,
            )
            for attack in ("lmmse", "regression")
        ]
        errors = [record.findings["squared_error"].value for record in records]
        # Standardised values have unit energy but for the sample's own; both share it.
        stated, learned = (-10 * math.log10(error) for error in errors)
        told = ", ".join(flag.name for flag in records[0].flags)
        print(f"{clouds:>12}   {stated:>8.2f}{learned:>12.2f}{learned - stated:>9.2f}   {told}")


if __name__ == "__main__":
    main()
