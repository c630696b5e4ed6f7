"""The recipe's defaults and limits, and what its health check says of a finished run."""

import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from pipelines.training.health import RolloutStep, TrainingFacts, check_training
from pipelines.training.recipe import GrpoRecipe, HealthLimits, Recipe, SftRecipe

RECIPE = Recipe(sft=SftRecipe(steps=2), grpo=GrpoRecipe(steps=2), health=HealthLimits(max_masked_share=0.1))
STEP = RolloutStep(
    step=1,
    mean_reward=0.5,
    num_rollouts=32,
    num_masked=0,
    num_truncated=0,
    num_groups=4,
    num_zero_variance=1,
    output_tokens=1000,
    input_tokens=500,
    logprob_gap=0.01,
    version="w-1",
)
SOUND = TrainingFacts(2, (1.0, 0.5), 2, (STEP, replace(STEP, step=2)), (0.1, -0.2))


def checks(facts: TrainingFacts) -> list[str]:
    return [finding.check for finding in check_training(facts, RECIPE)]


def test_a_sound_run_has_no_findings() -> None:
    assert checks(SOUND) == []


def test_steps_that_were_asked_for_and_not_done_are_found_in_each_phase() -> None:
    assert checks(replace(SOUND, sft_steps=1, grpo_steps=0)) == ["sft_steps", "grpo_steps"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_found_in_each_phase_with_its_step(bad: float) -> None:
    findings = check_training(replace(SOUND, sft_losses=(1.0, bad), grpo_losses=(bad,)), RECIPE)

    assert [f.check for f in findings] == ["sft_loss", "grpo_loss"]
    assert "at step 2" in findings[0].detail


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"num_masked": 8}, "masked_share"),
        ({"num_truncated": 32}, "truncated_share"),
        ({"num_zero_variance": 4}, "zero_variance_share"),
        ({"logprob_gap": 0.3}, "logprob_gap"),
        ({"logprob_gap": math.nan}, "logprob_gap"),
    ],
)
def test_a_number_beyond_its_limit_is_found_and_one_at_the_limit_is_not(change: dict[str, Any], check: str) -> None:
    worse = tuple(replace(step, **change) for step in SOUND.rollouts)

    assert checks(replace(SOUND, rollouts=worse)) == [check]
    lenient = HealthLimits(
        max_masked_share=0.25, max_truncated_share=1.0, max_zero_variance_share=1.0, max_logprob_gap=RECIPE.health.max_logprob_gap
    )
    if "logprob_gap" not in change:
        assert check_training(replace(SOUND, rollouts=worse), RECIPE.model_copy(update={"health": lenient})) == []


def test_the_logprob_gap_of_a_run_is_that_of_its_worst_step() -> None:
    facts = replace(SOUND, rollouts=(STEP, replace(STEP, logprob_gap=0.15), replace(STEP, logprob_gap=None)))

    assert facts.logprob_gap == 0.15


def test_a_recipe_refuses_unknown_names_and_impossible_numbers() -> None:
    for bad in ({"epochs": 3}, {"grpo": {"group_size": 1}}, {"sft": {"learning_rate": 0}}, {"trainable_layers": 0}):
        with pytest.raises(ValidationError):
            Recipe.model_validate(bad)


def test_a_recipe_survives_json() -> None:
    assert Recipe.model_validate_json(RECIPE.model_dump_json()) == RECIPE
