"""The built-in threat models: what each kind of attacker is taken to know."""

from __future__ import annotations

from harness.api import Channel, ThreatModel, hookimpl

_RELEASED = frozenset(
    {
        Channel.ENCODINGS,
        Channel.LABELS,
        Channel.PUBLIC,
        Channel.N_PRIVATE,
        Channel.ENCODER,
        Channel.FEATURES,
        Channel.FEATURE_ENCODER,
        Channel.STATISTICS,
    }
)
_MIXTURE = frozenset({Channel.WEIGHTS, Channel.SOURCES})
_FEDERATED = frozenset(
    {
        Channel.GRADIENTS,
        Channel.UPDATES,
        Channel.MODEL,
        Channel.PUBLIC,
        Channel.N_PRIVATE,
        Channel.ENCODER,
    }
)
_BATCH = frozenset({Channel.BATCH_LABELS, Channel.BN_STATISTICS})
_INFORMED = _RELEASED | _MIXTURE | _FEDERATED | _BATCH


@hookimpl
def harness_threat_models() -> list[ThreatModel]:
    """From the least knowledge to all of it."""
    return [
        ThreatModel(
            name="released",
            summary="holds what was published, a public pool, and how the defense works",
            grants=_RELEASED,
        ),
        ThreatModel(
            name="informed",
            summary="also knows which images were mixed in which encoding, and with what weights",
            grants=_INFORMED,
        ),
        ThreatModel(
            name="candidates",
            summary="informed, and owns a list that holds the private images among decoys",
            grants=_INFORMED | {Channel.CANDIDATES},
        ),
        ThreatModel(
            name="party",
            summary="one of several parties: holds its own images beside what all of them "
            "published, and is judged on the others'",
            grants=_RELEASED - {Channel.FEATURES, Channel.FEATURE_ENCODER},
        ),
        ThreatModel(
            name="fl-strong",
            summary="a federated server that also knows batch labels and BatchNorm statistics",
            grants=_FEDERATED | _MIXTURE | _BATCH,
        ),
        ThreatModel(
            name="fl-realistic",
            summary="a federated server: gradients or updates, the model, and the mixture of each "
            "batch; "
            "neither labels nor BatchNorm statistics",
            grants=_FEDERATED | _MIXTURE,
        ),
        ThreatModel(
            name="oracle",
            summary="is handed every channel; for finding out what limits an attack, never ranked",
            grants=frozenset(Channel),
            ranked=False,
        ),
    ]
