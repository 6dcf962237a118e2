"""Time and memory of finding which encodings hold the same image, and Luo's network beside it.

    python benchmarks/clustering.py [--encodings 1000 2000 5000 10000 20000] [--threads 2] [--json]

InstaHide, two images in each encoding, Fashion-MNIST, 50 encodings of each private image. The
networks are trained once on public images. Then each size runs in a process of its own: encodings
are embedded, all pairs are scored (the 20 nearest of each are kept), and clusters are made and
filled. Memory is the most that the process held until then, `empty` of it for Python and torch.

Beside it the network of Luo et al., which looks at two encodings at a time: it is asked about a
few hundred pairs, and its time is scaled to all pairs. (Its score is bilinear, and `luo` here
evaluates it once for each encoding; that is not what is timed.) AUC is how often an encoding that
shares an image is nearer than one that shares none: among all, and `within` those whose labels name
the same classes, which labels do not tell apart.

Needs `harness assets fetch fashion`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from harness.api import Budget, Channel, Encoder, Samples, View
from harness.asking.registry import registry
from harness.assets.lookup import folder
from harness.rng import KeyedStream, board_key
from harness.scoring.clusters import ClusterFacts, cluster_findings
from harness.scoring.findings import Finding
from harness.store import cache_root
from harness_plugins.attacks.carlini.prototypes import ASSIGN, settled, starts
from harness_plugins.attacks.luo.comparative import Comparer
from harness_plugins.attacks.luo.comparative import learn as learn_comparative
from harness_plugins.attacks.luo.lessons import Law
from harness_plugins.attacks.luo.members import Members
from harness_plugins.clusters.embedding import Embedder, nearest
from harness_plugins.clusters.published import Published
from harness_plugins.clusters.training import learn as learn_pairs
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide

SIZES = (1000, 2000, 5000, 10_000, 20_000)
ROUNDS, PUBLIC, NEIGHBOURS, PAIRS, TURNS = 50, 20_000, 20, 200, 12
BUDGET = Budget(seconds=3600, megabytes=8000, threads=1)
LEARNED = {"pairs": learn_pairs, "comparative": learn_comparative}


def quiet(done: int, total: int, note: str = "") -> None:
    """Progress that nobody watches."""


def stream(**axes: str | int) -> KeyedStream:
    """Where everything that is random here comes from."""
    return KeyedStream(board_key(0)).stream(benchmark="clustering", **axes)


def view_of(n: int, learned: Path | None) -> tuple[View, Samples]:
    """`n` private images in 50 rounds, and these; the networks are given if they are `learned`."""
    known = registry()
    spec = known.spec("datasets", "fashion")
    dataset = known.build("datasets", "fashion", spec.config())
    collection = dataset.load(folder(spec.assets, cache_root()))
    order = stream(use="images").permutation(len(collection.train))

    def some(start: int, count: int) -> Samples:
        return collection.train[order[start : start + count]].standardised(collection.scale)

    private, public = some(PUBLIC, n), some(0, PUBLIC)
    defense = InstaHide(InstaHideConfig(k=2))
    rounds = [defense.encode(private, public, stream(round=t)) for t in range(ROUNDS)]
    shared = {} if learned is None else load_file(learned)
    channels = {
        Channel.ENCODINGS: torch.stack([each.images for each in rounds]),
        Channel.LABELS: torch.stack([each.labels for each in rounds]),
        Channel.SOURCES: torch.stack([each.secrets.sources for each in rounds]),
        Channel.WEIGHTS: torch.stack([each.secrets.weights for each in rounds]),
        Channel.PUBLIC: public,
        Channel.ENCODER: Encoder("instahide", defense.config, defense.encode),
        Channel.N_PRIVATE: n,
    }
    view = View(
        channels=channels,
        granted=frozenset(channels),
        threat_model="released",
        scale=collection.scale,
        shape=tuple(private.images.shape[1:]),
        classes=len(collection.classes),
        device=torch.device("cpu"),
        rng=stream(use="attack"),
        shared=shared,
    )
    return view, private


def learn(path: Path) -> dict[str, float]:
    """Both networks, in one file; the seconds that each took."""
    (view, _), kept, seconds = view_of(20, None), {}, {}
    for name, teach in LEARNED.items():
        torch.manual_seed(0)
        start = time.perf_counter()
        made = teach(view, BUDGET, quiet)
        seconds[f"learning {name}"] = time.perf_counter() - start
        prefix = {"pairs": "pair-embedding", "comparative": "comparative"}[name]
        kept |= {f"{prefix}.{key}": torch.as_tensor(v).contiguous() for key, v in made.items()}
    save_file(kept, path)
    return seconds


def measured(encodings: int, learned: Path) -> dict[str, float]:
    """One size, in this process."""
    empty = peak()
    view, private = view_of(encodings // ROUNDS, learned)
    published = Published.of(view)
    facts = ClusterFacts(
        sources=view.sources.flatten(0, 1),
        weights=view.weights.flatten(0, 1),
        labels=published.labels,
        classes=private.labels,
        n=published.n,
        stream=stream(use="judge"),
    )
    found: dict[str, float] = {"encodings": float(encodings), "empty MB": empty}
    with_clock = Clock(found)
    places = with_clock("embed", lambda: Embedder.of(view).places(published.seen))
    with_clock("all pairs", lambda: list(nearest(places, NEIGHBOURS)))
    begun = with_clock("cliques", lambda: starts(places, published, stream(use="seeds")))
    told, _ = with_clock(
        "assign", lambda: settled(places, published, begun, ASSIGN["flow"], TURNS, lambda _: None)
    )
    found["peak MB"] = peak()
    judged = cluster_findings({"places": places, "clusters": told.clusters}, facts)
    found |= aucs("", judged) | {"assigned": judged["encodings_assigned"].value}
    return found | beside(view, published, facts)


def aucs(whose: str, judged: Mapping[str, Finding]) -> dict[str, float]:
    """Among all pairs, and among those whose labels name the same classes."""
    return {
        f"{whose}AUC": judged["pair_auc"].value,
        f"{whose}within": judged["pair_auc_within"].value,
    }


def beside(view: View, published: Published, facts: ClusterFacts) -> dict[str, float]:
    """Luo's network on a few pairs, one by one, and its AUC."""
    comparer = Comparer.of(view)
    members = Members.of(published.seen, published.labels, Law.of(view, bare=False).largest)
    rows = stream(use="pairs").permutation(len(members))[: 2 * PAIRS].view(PAIRS, 2)
    start = time.perf_counter()
    for side in (0, 1):
        comparer.places(members[rows[:, side]])
    seconds = time.perf_counter() - start
    all_pairs = len(members) * (len(members) - 1) / 2
    judged = cluster_findings({"places": comparer.places(members)}, facts)
    return {"Luo's pairs": seconds / PAIRS * all_pairs} | aucs("Luo's ", judged)


class Clock:
    """Seconds of pieces of work, by name."""

    def __init__(self, found: dict[str, float]) -> None:
        self.found = found

    def __call__(self, name: str, work: Any) -> Any:
        """Do it."""
        start = time.perf_counter()
        done = work()
        self.found[name] = time.perf_counter() - start
        return done


def peak() -> float:
    """Megabytes that this process held at the most, by Linux' own count since its start."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


COLUMNS = (
    *("embed", "all pairs", "cliques", "assign", "peak MB", "AUC", "within", "assigned"),
    *("Luo's pairs", "Luo's AUC", "Luo's within"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encodings", type=int, nargs="+", default=SIZES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line of JSON a size")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--learned", type=Path, help="networks of an earlier run; written if new")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.one:
        print(json.dumps(measured(asked.one, asked.learned)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        learned = asked.learned or Path(scratch) / "networks.safetensors"
        if not learned.exists():
            seconds = learn(learned)
            for name, taken in seconds.items():
                print(f"{name}: {taken:.0f} s", file=sys.stderr)
        if not asked.json:
            print("seconds" + "".join(f"{name:>{width(name)}}" for name in COLUMNS))
        for size in asked.encodings:
            report(size, learned, asked)


def report(size: int, learned: Path, asked: argparse.Namespace) -> None:
    """One size in a process of its own."""
    command = [sys.executable, __file__, "--one", str(size), "--learned", str(learned)]
    done = subprocess.run(
        [*command, "--threads", str(asked.threads)], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(done.stdout)
    if asked.json:
        print(json.dumps(found), flush=True)
        return
    cells = (f"{found[name]:>{width(name)}.{0 if found[name] > 99 else 3}f}" for name in COLUMNS)
    print(f"{size:>7}{''.join(cells)}", flush=True)


def width(name: str) -> int:
    """Of a column."""
    return max(9, len(name) + 2)


if __name__ == "__main__":
    main()
