"""Cycles in a real lake: opened once, resumed, finished, and left alone while nothing is new."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.cycles import (
    CycleStatus,
    claim_batch,
    current_cycle,
    cycle_lock,
    digests_of_finished_cycles,
    finish_cycle,
    latest_cycle,
    open_cycle,
)
from infra.lake import Lake, open_lake
from infra.settings import Settings
from pipelines.errors import InfrastructureError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(Settings(home=tmp_path))


def test_an_open_cycle_is_resumed_even_when_the_sources_moved_on(lake: Lake) -> None:
    first = open_cycle(lake, config_digest="c", inputs_digest="i", now=NOW)

    assert open_cycle(lake, config_digest="c", inputs_digest="newer", now=LATER) == first


def test_a_finished_cycle_is_returned_until_something_is_new(lake: Lake) -> None:
    first = open_cycle(lake, config_digest="c", inputs_digest="i", now=NOW)
    finish_cycle(lake, first, {"cycle": first.id}, inputs_digest="i")

    again = open_cycle(lake, config_digest="c", inputs_digest="i", now=LATER)
    assert (again.id, again.status) == (first.id, CycleStatus.FINISHED)
    assert latest_cycle(lake) == {"cycle": first.id}
    assert open_cycle(lake, config_digest="c", inputs_digest="newer", now=LATER).id != first.id


def test_another_config_abandons_the_open_cycle(lake: Lake) -> None:
    first = open_cycle(lake, config_digest="c", inputs_digest="i", now=NOW)
    second = open_cycle(lake, config_digest="other", inputs_digest="i", now=LATER)

    assert second.id != first.id
    assert current_cycle(lake) == second


def test_the_first_claim_of_a_batch_stands_and_counts_as_taken_only_when_its_cycle_finished(lake: Lake) -> None:
    cycle = open_cycle(lake, config_digest="c", inputs_digest="i", now=NOW)

    assert claim_batch(lake, cycle.id, ("a", "b")) == ("a", "b")
    assert claim_batch(lake, cycle.id, ("a", "b", "late")) == ("a", "b")
    assert digests_of_finished_cycles(lake) == set()
    finish_cycle(lake, cycle, {"cycle": cycle.id}, inputs_digest="i")
    assert digests_of_finished_cycles(lake) == {"a", "b"}


def test_two_commands_cannot_run_a_cycle_at_once(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    with cycle_lock(settings), pytest.raises(InfrastructureError, match="another cycle runs"), cycle_lock(settings):
        pass
