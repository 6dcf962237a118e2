"""How private images are dealt out to several parties: `iid`, `dirichlet[alpha=0.1]`, and so on."""

from __future__ import annotations

from pydantic import Field

from harness.api.errors import UsageError, nearest
from harness.api.plugins import Config
from harness.asking.request import parse_one, validated

CURIOUS = "party"
"""The threat model under which the last party attacks the others."""


class Iid(Config):
    """Every party draws from all images alike, as many as any other but for one."""


class Dirichlet(Config):
    """The images of each class are shared out by a draw of Dir(alpha) over the parties.

    Hsu, Qi and Brown 2019, arXiv:1909.06335, draw a mix of classes for each party; here, as in Li
    et al. 2022, arXiv:2102.02079, it is a mix of parties for each class, which uses every image.
    """

    alpha: float = Field(default=0.1, gt=0, le=1e6)


class Shards(Config):
    """Images sorted by label are cut into shards of one size, and each party gets so many.

    McMahan et al. 2017, arXiv:1602.05629, section 3: with two shards most parties have two classes.
    """

    classes: int = Field(default=2, ge=1, le=1000)


class ByFile(Config):
    """The files of one subject go to one party; for datasets that know subjects."""


Partition = Iid | Dirichlet | Shards | ByFile
PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "by-file": ByFile,
}


def parse_partition(text: str) -> Partition:
    """A partition as written; UsageError with the nearest name or option where there is none."""
    selection = parse_one(text)
    if selection.name not in PARTITIONS:
        hint = nearest(selection.name, PARTITIONS)
        raise UsageError(f"There is no partition '{selection.name}'.{hint}")
    return validated(PARTITIONS[selection.name], selection.options, f"partition '{text}'")
