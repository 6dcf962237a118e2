"""The threat models against the table they were designed from."""

import pytest

from harness.api import Channel
from harness_plugins.threat_models import harness_threat_models


@pytest.mark.core
def test_threat_models_are_the_table():
    models = {model.name: model for model in harness_threat_models()}
    assert set(models) == {
        "released", "informed", "candidates", "party", "fl-strong", "fl-realistic", "oracle"
    }  # fmt: skip
    assert [name for name, model in models.items() if not model.ranked] == ["oracle"]
    assert models["released"].grants < models["informed"].grants < models["candidates"].grants
    assert models["candidates"].grants - models["informed"].grants == {Channel.CANDIDATES}
    assert models["fl-strong"].grants - models["fl-realistic"].grants == {
        Channel.BATCH_LABELS, Channel.BN_STATISTICS
    }  # fmt: skip
    assert models["released"].grants - models["party"].grants == {
        Channel.FEATURES, Channel.FEATURE_ENCODER
    }  # fmt: skip
    assert models["party"].grants < models["released"].grants
    assert models["oracle"].grants == frozenset(Channel)
    assert not models["released"].grants & {Channel.WEIGHTS, Channel.SOURCES, Channel.GRADIENTS}
    assert not models["fl-realistic"].grants & {Channel.ENCODINGS, Channel.FEATURES}
