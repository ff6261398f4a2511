"""The line network of section 5.1.1, against values that can be worked out by hand."""

import json

import numpy as np
import pytest

from haystream_service.experiments import line

pytest.importorskip("matplotlib", reason="needs the extra bench")


@pytest.fixture(scope="module")
def result():
    return json.loads(json.dumps(line.run()))


def row(result, observations, model):
    (found,) = [r for r in result["results"] if (r["observations"], r["model"]) == (observations, model)]
    return found


def test_the_prior_is_the_fields():
    """φ = 1.5 on equal ends: Cov(Z₀, Z₁) = ¼ (1.5 − 1)/(1.5 + 1) = 1/20, and a fifth of that two steps away."""
    prior = line.bayes_linear_prior()
    assert dict(prior.participants) == pytest.approx(dict.fromkeys(line.PEOPLE, 0.5))
    assert prior.covariance is not None
    np.testing.assert_allclose(
        prior.covariance.rows, [[0.25, 0.05, 0.01], [0.05, 0.25, 0.05], [0.01, 0.05, 0.25]], atol=1e-12
    )


@pytest.mark.parametrize("model", line.MODELS)
def test_before_any_observation_all_agree(result, model):
    """P(z_u, z_v) = 0.3, 0.2, 0.2, 0.3, so E[P] = 0.03 + 0.04 + 0.04 + 0.15 = 0.26."""
    first = row(result, "mixed", model)
    assert [series[0] for series in first["z_mean"]] == pytest.approx([0.5] * 3)
    assert [series[0] for series in first["p_mean"]] == pytest.approx([0.26] * 2)


def test_the_field_after_one_relevant_item_by_hand(result):
    """Pair 01's weights 0.15, 0.2, 0.2, 0.75 of 1.3; Z₂ follows Z₁: 0.6 P(Z₁ = 1) + 0.4 P(Z₁ = 0)."""
    exact = row(result, "all-relevant", "mrf")
    one = 0.95 / 1.3
    assert [series[1] for series in exact["z_mean"]] == pytest.approx([one, one, 0.4 + 0.2 * one])


def test_bayes_linear_after_one_relevant_item_by_hand(result):
    """E[Z] + Cov(Z, P)/Var(Y) (1 − E[P]), with Cov(Z₀, P) = 0.19 − ½ 0.26 and Var(Y) = 0.26 × 0.74."""
    linear = row(result, "all-relevant", "constrained")
    gain = (0.04 + 0.15 - 0.13) / (0.26 * 0.74) * 0.74
    assert linear["z_mean"][0][1] == pytest.approx(0.5 + gain)
    assert linear["z_mean"][1][1] == pytest.approx(0.5 + gain)


def test_the_constraint_binds_only_where_all_are_relevant(result):
    for observations, binds in (("mixed", False), ("all-relevant", True)):
        free = np.array(row(result, observations, "unconstrained")["z_mean"])
        held = np.array(row(result, observations, "constrained")["z_mean"])
        np.testing.assert_allclose(held, np.clip(free, 0, 1), atol=1e-12)
        assert (free > 1).any() == binds


def test_the_constraint_brings_p_nearer_to_the_field(result):
    gap = {r["model"]: r for r in result["differences"] if r["observations"] == "all-relevant"}
    for quantity in ("p_mean", "p_variance"):
        assert gap["constrained"][quantity]["max"] < gap["unconstrained"][quantity]["max"] / 3


def test_on_a_chain_the_linear_form_is_the_reference(result):
    for observations in line.SETS:
        local, reference = (row(result, observations, model) for model in ("local", "constrained"))
        for quantity in line.QUANTITIES:
            np.testing.assert_allclose(local[quantity], reference[quantity], atol=1e-8)


def test_the_figures_are_drawn(result, tmp_path):
    paths = line.draw(result, tmp_path)
    assert [path.name for path in paths] == ["line-mixed.png", "line-all-relevant.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
