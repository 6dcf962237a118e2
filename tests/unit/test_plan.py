"""From a request to a cell: names, options, channels, and reasons why not. Nothing is loaded."""

import pytest

from harness.api import Channel, ReleaseKind, ThreatModel, UsageError
from harness.api.specs import AttackSpec, DefenseSpec, Stage
from harness.asking.plan import plan
from harness.asking.registry import Origin, Registry, registry
from harness.asking.request import make_request

pytestmark = pytest.mark.core
HERE = Origin("here", "1", "here", "here")


def spec(kind, name, **fields):
    return kind(name=name, version="1", summary="s", reference="r", factory="a:B", **fields)


@pytest.fixture(scope="module")
def known():
    """The built-ins, and a few declarations that no built-in makes."""
    grown = Registry({kind: dict(found) for kind, found in registry().entries.items()})
    for stage in Stage:
        grown.add("defenses", spec(DefenseSpec, f"guard-{stage}", stage=stage), HERE)
    alternatives = (
        frozenset({Channel.ENCODINGS, Channel.SOURCES}),
        frozenset({Channel.FEATURES}),
        frozenset({Channel.GRADIENTS}),
    )
    offered = spec(AttackSpec, "flexible", needs=alternatives, optional=frozenset({Channel.PUBLIC}))
    grown.add("attacks", offered, HERE)
    for channel in (Channel.ENCODINGS, Channel.GRADIENTS):
        beside = spec(
            AttackSpec, f"beside-{channel}", needs=(frozenset({channel}),), companion=True
        )
        grown.add("attacks", beside, HERE)
    for name, grants in {
        "everything": set(Channel),
        "features-only": {Channel.FEATURES},
        "gradients-only": {Channel.GRADIENTS, Channel.PUBLIC},
        "nothing": set(),
    }.items():
        grown.add("threat_models", ThreatModel(name, "s", frozenset(grants)), HERE)
    assert grown.problems == []
    return grown


@pytest.fixture(scope="module")
def planned(known):
    return lambda **options: plan(make_request(**options), known)


def refusal(known, **options):
    with pytest.raises(UsageError) as caught:
        plan(make_request(**options), known)
    return str(caught.value)


@pytest.mark.parametrize(
    ("threat_model", "kind", "channels"),
    [
        ("everything", ReleaseKind.ENCODINGS, {"encodings", "sources", "public"}),
        ("features-only", ReleaseKind.FEATURES, {"features"}),
        ("gradients-only", ReleaseKind.GRADIENTS, {"gradients", "public"}),
    ],
)
def test_the_first_granted_alternative_wins_with_what_is_optional(
    planned, threat_model, kind, channels
):
    cell = planned(attack="flexible", threat_model=threat_model)
    assert cell.kind is kind
    assert cell.main.channels == channels
    assert cell.reason is None


def test_needs_beyond_the_threat_model_are_a_reason_and_no_error(planned):
    cell = planned(attack="flexible", threat_model="nothing")
    assert cell.main is None
    assert cell.companions == ()
    assert cell.reason == (
        "ChannelNotGranted: 'flexible' needs encodings, sources, which the threat model 'nothing' "
        "does not grant (it grants nothing); ask for a stronger one with --threat-model"
    )


@pytest.mark.parametrize(
    ("threat_model", "companions"),
    [
        ("everything", {"identity", "nearest", "beside-encodings"}),
        ("gradients-only", {"beside-gradients"}),
        ("features-only", set()),
    ],
)
def test_companions_join_where_they_can_read_the_release(planned, threat_model, companions):
    cell = planned(attack="flexible", threat_model=threat_model)
    assert {plan.attack.name for plan in cell.companions} == companions


def test_held_out_images_have_features_alone(planned):
    assert planned(attack="linear").kind is ReleaseKind.ENCODINGS
    cell = planned(attack="linear", targets_from="heldout", defense="guard-gradient")
    assert (cell.kind, cell.reason) == (ReleaseKind.FEATURES, None)
    suite = planned(attack="suite", targets_from="heldout")
    assert {member.kind for member in suite.members.values()} == {ReleaseKind.FEATURES}
    assert "of held-out images" in suite.excluded["lmmse"]


@pytest.mark.parametrize("kind", ["encodings", "gradients"])
@pytest.mark.parametrize("attack", ["linear", "flexible", "suite"])
def test_held_out_images_leave_in_no_other_release(planned, attack, kind):
    cell = planned(attack=attack, targets_from="heldout", release=kind)
    assert cell.main is None
    assert cell.reason == (
        f"held-out images are not trained on, so the owner has no {kind} of them, only features; "
        "leave --release at features, or --targets-from at private"
    )


def test_only_encodings_have_a_resolution_to_judge_at(planned):
    assert planned(attack="linear", judge_at="release").kind is ReleaseKind.ENCODINGS
    for other in ({"release": "features"}, {"targets_from": "heldout"}):
        cell = planned(attack="linear", judge_at="release", **other)
        assert cell.main is None
        assert cell.reason == (
            "only encodings have a resolution to judge at, and what is released here is features; "
            "leave --judge-at at image"
        )


def test_a_companion_does_not_accompany_itself(planned):
    cell = planned(attack="identity")
    assert "identity" not in {plan.attack.name for plan in cell.companions}


def test_gradients_are_of_a_young_model_whose_accuracy_comes_from_encodings(planned):
    assert planned(attack="beside-gradients").trained_kind is ReleaseKind.ENCODINGS
    features = planned(attack="flexible", threat_model="features-only")
    assert features.trained_kind is ReleaseKind.FEATURES


def test_a_stack_keeps_its_order_and_knows_its_encoder(planned):
    cell = planned(defense="guard-gradient+guard-training+singmix[tau=1e+0]")
    assert [d.name for d in cell.defenses] == ["guard-gradient", "guard-training", "singmix"]
    assert cell.encoding.name == "singmix"
    assert cell.encoding.config.tau == 1
    assert planned(defense="guard-gradient").encoding is None


def test_two_encoders_cannot_share_a_stack(known):
    assert refusal(known, defense="none+guard-gradient+singmix") == (
        "A stack has at most one encoding defense; this one has none and singmix."
    )


def test_a_defense_stands_once(known):
    twice = "guard-gradient+none+guard-gradient"
    assert refusal(known, defense=twice) == "'guard-gradient' stands twice in the stack."


@pytest.mark.parametrize(
    ("option", "typed", "meant"),
    [
        ("defense", "singmx", "Unknown defense 'singmx'. Did you mean 'singmix'?"),
        ("attack", "flexble", "Unknown attack 'flexble'. Did you mean 'flexible'?"),
        ("dataset", "fashion-mni", "Unknown dataset 'fashion-mni'. Did you mean 'fashion-mini'?"),
        ("public", "mnst", "Unknown dataset 'mnst'. Did you mean 'mnist'?"),
        ("victim", "resnet", "Unknown victim 'resnet'. Did you mean 'resnet18'?"),
        ("space", "pixel", "Unknown space 'pixel'. Did you mean 'pixels' or 'pixels-imagenet'?"),
        ("threat_model", "inform", "Unknown threat model 'inform'. Did you mean 'informed'?"),
        ("metrics", "snr", "Unknown metric 'snr'."),
    ],
)
def test_a_wrong_name_offers_the_nearest(known, option, typed, meant):
    assert refusal(known, **{option: typed}).startswith(meant)


def test_the_requests_preset_reaches_every_plugin_that_has_it(planned):
    quick, paper = planned(victim="mlp"), planned(victim="mlp", preset="paper")
    assert (quick.victim.config.epochs, paper.victim.config.epochs) == (10, 100)
    assert planned(victim="mlp[epochs=3]", preset="paper").victim.config.epochs == 3


def test_metrics_left_out_say_why(planned, known):
    def left_out(**options):
        cell = planned(**options)
        names = [spec.name for spec in cell.metrics]
        reasons = {spec.name: reason for spec, reason in cell.left_out}
        assert sorted([*names, *reasons]) == [spec.name for spec in known.specs("metrics")]
        return reasons

    only_snr = left_out(metrics="snr_db")
    assert set(only_snr.values()) == {"not asked for"}
    assert "snr_db" not in only_snr
    assert left_out(metrics="all") == {}
    assert "quick preset" in left_out()["lpips_vgg"]
    assert left_out(preset="standard") == {}


def test_planning_is_pure(planned):
    asked = {"defense": "singmix[tau=1e-3]", "attack": "flexible", "seed": 3}
    assert planned(**asked) == planned(**asked)


@pytest.mark.parametrize(
    ("stack", "attack", "kind"),
    [
        ("singmix", "linear", ReleaseKind.ENCODINGS),
        ("guard-training", "linear", ReleaseKind.FEATURES),
        ("guard-training+singmix", "unet", ReleaseKind.FEATURES),
        ("guard-gradient", "flexible", ReleaseKind.GRADIENTS),
        ("guard-gradient", "nearest", ReleaseKind.FEATURES),
    ],
)
def test_what_is_attacked_is_a_release_in_which_every_defense_has_a_part(
    planned, stack, attack, kind
):
    cell = planned(defense=stack, attack=attack, threat_model="everything")
    assert (cell.reason, cell.kind) == (None, kind)


def test_an_attack_on_encodings_says_nothing_of_a_gradient_defense(planned):
    cell = planned(defense="guard-gradient", attack="identity")
    assert cell.main is None
    assert cell.reason == (
        "'identity' reads encodings; what is released under 'guard-gradient' here is "
        "gradients or features"
    )


def test_the_kind_can_be_asked_for(planned):
    assert planned(defense="none", attack="linear", release="features").kind is ReleaseKind.FEATURES
    cell = planned(defense="guard-training", attack="linear", release="encodings")
    assert cell.reason == (
        "'guard-training' has no part in encodings: they leave before anything is trained"
    )


def test_companions_read_the_same_kind_by_another_alternative(planned):
    cell = planned(defense="guard-training", attack="linear")
    assert "nearest" in {plan.attack.name for plan in cell.companions}
    assert {plan.kind for plan in cell.companions} == {ReleaseKind.FEATURES}


def test_channels_that_a_kind_does_not_have_are_not_promised(planned):
    cell = planned(defense="none", attack="unet", release="features", threat_model="everything")
    assert Channel.LABELS not in cell.main.channels
    assert cell.main.channels >= {Channel.FEATURES, Channel.FEATURE_ENCODER, Channel.PUBLIC}


def test_without_its_sources_an_attack_does_not_turn_to_another_release(planned):
    cell = planned(defense="singmix", attack="linear", threat_model="released")
    assert cell.main is None
    assert cell.reason.startswith("ChannelNotGranted: 'linear' needs sources, weights, which")
    asked = planned(attack="linear", threat_model="released", release="features")
    assert asked.kind is ReleaseKind.FEATURES


@pytest.mark.parametrize(
    ("attack", "held"),
    [
        ("gradmatch", True),
        ("gradmatch[preset=realistic]", True),
        ("gradmatch[preset=scripts]", False),
        ("gradmatch[labels=joint]", False),
    ],
)
def test_what_is_reconstructed_is_not_asked_for(attack, held):
    cell = plan(make_request(attack=attack, defense="gradprune", victim="strided"), registry())
    assert (Channel.BATCH_LABELS in cell.main.channels) == held


@pytest.mark.parametrize(("preset", "held"), [("strongest", True), ("realistic", False)])
def test_statistics_are_what_the_papers_realistic_attacker_lacks(preset, held):
    attack = f"gradmatch[preset={preset}]"
    cell = plan(make_request(attack=attack, defense="none", victim="cnn"), registry())
    assert Channel.BATCH_LABELS in cell.main.channels
    assert (Channel.BN_STATISTICS in cell.main.channels) == held


def test_the_suite_runs_the_scripts_attack_beside_the_informed_one():
    cell = plan(make_request(attack="suite", defense="gradprune", victim="strided"), registry())
    informed, told = cell.members["gradmatch"], cell.members["gradmatch[preset=scripts]"]
    assert told.channels < informed.channels
