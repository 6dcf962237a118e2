"""Boards made up for tests: every kind of row and cell that a page has to show."""

from __future__ import annotations

from base64 import b64decode

from harness.results.view import (
    AttackView,
    BoardView,
    CellView,
    ClaimView,
    Identified,
    Leak,
    Learned,
    LearnerView,
    Notice,
    Number,
    RowView,
    TrackView,
)

PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture."""
METRICS = ("snr_db", "ssim", "lpips_vgg")
STRENGTHS = {
    "none": [("none", 0.86, 118.0)],
    "mixup": [("mixup[k=2]", 0.83, 9.4), ("mixup[k=4]", 0.79, 7.2), ("mixup[k=8]", 0.71, 5.1)],
    "instahide": [("instahide[k=2]", 0.78, 4.9), ("instahide[k=4]", 0.7, 2.2)],
    "singmix": [
        ("singmix[tau=1e-4]", 0.82, 8.1),
        ("singmix[tau=1e-2]", 0.8, 3.3),
        ("singmix[tau=1e-1]", 0.74, 1.1),
        ("singmix[tau=1e0]", 0.55, 0.2),
    ],
    "noise": [("noise[sigma=0.5]", 0.77, 6.0), ("noise[sigma=2]", 0.52, 0.7)],
}
ATTACKS = (
    ("linear", "informed", 1.0),
    ("unet", "informed", 0.9),
    ("lmmse", "informed", 0.95),
    ("carlini", "released", 0.6),
    ("luo", "released", -0.4),
    ("similarity", "candidates", 0.0),
)


def leak(metric: str, gain: float, attack: str = "", spread: float = 0.3) -> Leak:
    """A leak whose gain in decibels is given; other metrics follow it."""
    scale = 1.0 if metric == "snr_db" else 0.03
    value, half = gain * scale, spread * scale
    mean = -0.9 - value if metric == "lpips_vgg" else 2.0 * scale + value
    return Leak(
        metric=metric,
        unit="dB" if metric == "snr_db" else "",
        leaks_more="lower" if metric == "lpips_vgg" else "higher",
        mean=Number(value=mean, ci=(mean - half, mean + half)),
        null=2.0 * scale,
        gain=Number(value=value, ci=(value - half, value + half)),
        worst=mean + 3 * half,
        strongest=attack,
    )


def leaks(gain: float, attack: str = "") -> dict[str, Leak]:
    return {metric: leak(metric, gain, attack) for metric in METRICS}


def cell(defense: str, attack: str, model: str, gain: float) -> CellView:
    number = sum(map(ord, defense + attack))
    return CellView(
        attack=attack,
        threat_model=model,
        release_kind="encodings",
        status="ok",
        seeds=(0, 1, 2),
        records=tuple(f"{number + seed:064x}" for seed in range(3)),
        leaks=leaks(gain),
        findings=(f"It tells pairs of one image apart with AUC 0.{number % 100:02d}.",),
        gallery=f"galleries/{number:064x}.png",
        commands=tuple(
            f"harness evaluate --defense '{defense}' --attack {attack} --seed {s}"
            for s in (0, 1, 2)
        ),
        seconds=float(number),
        commit="0123456789abcdef",
    )


def without(attack: str, model: str, status: str, reason: str) -> CellView:
    return CellView(
        attack=attack,
        threat_model=model,
        release_kind="encodings",
        status=status,
        reason=reason,
        commands=(f"harness evaluate --attack {attack}",),
    )


def cells(defense: str, gain: float) -> tuple[CellView, ...]:
    """Numbers, and every reason for which there is none."""
    found = [cell(defense, name, model, part * min(gain, 20)) for name, model, part in ATTACKS]
    if defense.startswith(("none", "noise")):
        reason = "'carlini' needs a mixture, and this defense mixes nothing"
        found[3] = without("carlini", "released", "not_applicable", reason)
    if defense == "mixup[k=8]":
        found[1] = without("unet", "informed", "failed", "the loss became <nan> & stayed so")
        found[4] = without("luo", "released", "timeout", "stopped after 600 s")
    if defense == "singmix[tau=1e0]":
        found[2] = without("lmmse", "informed", "missing", "")
        found[0] = found[0].model_copy(update=FLAGGED)
    found[5] = found[5].model_copy(update={"leaks": {}, "gallery": None})
    return tuple(found)


FLAGGED = {
    "verified": False,
    "flags": (Notice(name="below_null", message="It lies 0.3 dB below a guess: it fails."),),
}


SIZES = (1000, 10_000, 45_000)


def learners(accuracy: float) -> tuple[LearnerView, ...]:
    """The chosen one, one that was luckier where it is reported, and one that was left out."""
    return (
        LearnerView(name="ridge", accuracy=around(accuracy), validation=accuracy, chosen=True),
        LearnerView(name="network", accuracy=around(accuracy + 0.01), validation=accuracy - 0.02),
        LearnerView(name="encoded", reason="this defense has no inference of its own"),
    )


def around(value: float) -> Number:
    return Number(value=value, ci=(value - 0.012, value + 0.012))


def curve(accuracy: float) -> tuple[Learned, ...]:
    """Accuracies that grow with the images, in one round and in twenty; one is still to be run."""
    points = [
        Learned(
            private_size=n,
            rounds=rounds,
            accuracy=around(min(0.86, accuracy + gain + (rounds > 1) * 0.02)),
            reference=around(0.86 + gain / 2),
            chance=0.1,
            learners=learners(accuracy + gain),
            seeds=(0,),
        )
        for rounds in (1, 20)
        for n, gain in zip(SIZES, (0.0, 0.04, 0.06), strict=True)
    ]
    last = Learned(private_size=SIZES[-1], rounds=20, reason="not run yet")
    return (*points[:-1], last)


def identified(defense: str) -> Identified | None:
    """Of singularized mixup an attack names images; of mixup it does not."""
    if not defense.startswith(("singmix", "mixup")):
        return None
    top1 = 0.5 if defense.startswith("singmix") else 0.002
    return Identified(
        attack="sphere",
        threat_model="candidates",
        top1=Number(value=top1, ci=(top1 * 0.8, top1 * 1.2)),
        top1_chance=0.002,
        auc=Number(value=0.5 + top1 / 2, ci=(0.49 + top1 / 2, 0.51 + top1 / 2)),
        auc_chance=0.5,
        candidates=500,
        n=200,
        asked="encodings",
        seeds=(0,),
    )


def row(track: str, defense: str, accuracy: float, gain: float, rank: int) -> RowView:
    flagged = defense == "singmix[tau=1e0]"
    return RowView(
        track=track,
        defense=defense,
        accuracy=Number(value=accuracy, ci=(accuracy - 0.012, accuracy + 0.012)),
        reference=Number(value=0.86, ci=(0.848, 0.872)),
        retained=Number(value=accuracy / 0.86, ci=(accuracy / 0.86 - 0.02, accuracy / 0.86 + 0.02)),
        leaks=leaks(gain, "unet" if defense.startswith("insta") else "linear"),
        chance=0.1,
        seeds=(0, 1, 2),
        rank={} if flagged or defense == "none" else dict.fromkeys(METRICS, rank),
        cells=cells(defense, gain),
        flags=(Notice(name="incomplete", message="The attack 'lmmse' has not run."),) * flagged,
        verified=not flagged,
        protected=defense != "none",
        missing=int(flagged),
        origin="example-thirdparty" if defense.startswith("noise") else "",
        learners=learners(accuracy),
        curve=curve(accuracy) if track == "encodings" else (),
        identified=identified(defense),
        older=("linear",) if defense == "mixup[k=8]" else (),
    )


def rows(track: str) -> tuple[RowView, ...]:
    """Rows ranked by how many others have more accuracy and less gain; but for the reference."""
    flat = [each for strengths in STRENGTHS.values() for each in strengths]
    return tuple(
        row(track, name, accuracy, gain, 1 + sum(a > accuracy and g < gain for _, a, g in flat))
        for name, accuracy, gain in flat
    )


def attack_views() -> tuple[AttackView, ...]:
    controls = ("passed", "passed", "passed", "not run", "failed", "passed")
    return tuple(
        AttackView(
            attack=name,
            threat_model=model,
            gain={m: leak(m, 5 * part).gain for m in METRICS} if part else {},
            rank=dict.fromkeys(METRICS, i) if part else {},
            cells=12,
            strongest_of=1800 if name == "linear" else 0,
            control=control,
        )
        for i, ((name, model, part), control) in enumerate(
            zip(ATTACKS, controls, strict=True), start=1
        )
    )


def track(name: str, title: str) -> TrackView:
    return TrackView(
        name=name,
        title=title,
        about="What leaves the owner are images of five rounds; `linear` knows who is in which.",
        rows=rows(name),
        attacks=attack_views(),
        protocol={"rounds": "5", "private_size": "200", "victim": "cnn"},
    )


def sample_board(name: str = "cifar10-v2", dataset: str = "cifar10") -> BoardView:
    """A board of two tracks."""
    return BoardView(
        name=name,
        title=f"{dataset} at its own resolution",
        about="How much of small colour images comes back from what is released for training.",
        stage="open",
        dataset=dataset,
        metrics=METRICS,
        tracks=(track("encodings", "Encodings"), track("gradients", "Gradients of a batch")),
        claims=(
            ClaimView(
                defense="mixup[k=4]",
                attack="linear",
                metric="snr_db",
                claimed=16.1,
                measured=Number(value=9.2, ci=(8.9, 9.5)),
                source="Singularized mixup, table 2",
                note="224 pixels there, 32 here.",
            ),
            ClaimView(
                defense="singmix[tau=1e0]",
                attack="unet",
                metric="ssim",
                claimed=0.041,
                source="Singularized mixup, table 3",
            ),
        ),
        frozen={"attack linear": "a" * 64, "dataset cifar10": "b" * 64},
        records=320,
        missing=2,
    )


def defined_board() -> BoardView:
    """A board that nobody has run."""
    missing = without("linear", "informed", "missing", "")
    row = RowView(track="encodings", defense="mixup[k=4]", cells=(missing,))
    return BoardView(
        name="paper-v1",
        title="The papers' own settings",
        status="defined",
        dataset="cifar10",
        metrics=METRICS,
        tracks=(TrackView(name="encodings", title="Encodings", rows=(row,)),),
        missing=1,
    )


def galleries(view: BoardView) -> set[str]:
    """Where a board's pictures lie."""
    rows = (row for track in view.tracks for row in track.rows)
    return {cell.gallery for row in rows for cell in row.cells if cell.gallery}
