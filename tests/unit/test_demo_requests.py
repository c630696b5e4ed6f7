"""The demo's traffic: disjoint, deterministic, answerable."""

import re
import sqlite3
from collections import Counter
from itertools import combinations, pairwise

import pytest

from infra.demo.requests import SLOTS, DemoRequest, DemoTraffic, make_requests
from infra.demo.shop import open_shop
from infra.demo.tools import TOOLS, execute
from pipelines.errors import ConfigError

SEEDS = (0, 1, 2)


def _kinds(traffic: DemoTraffic) -> tuple[tuple[DemoRequest, ...], ...]:
    return traffic.training, traffic.holdout, traffic.after


def _values(requests: tuple[DemoRequest, ...]) -> set[str]:
    return {str(value) for request in requests for value in (request.expected.arguments or {}).values()}


def _skeleton(request: DemoRequest) -> str:
    """The wording alone, its values taken out."""
    text = request.text
    for value in sorted((str(v) for v in (request.expected.arguments or {}).values()), key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(value)}\b", "_", text)
    return text


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_kinds_of_traffic_share_a_wording(seed: int) -> None:
    kinds = _kinds(make_requests(seed))
    for one, other in combinations(kinds, 2):
        assert not {r.wording_id for r in one} & {r.wording_id for r in other}
        assert not {_skeleton(r) for r in one} & {_skeleton(r) for r in other}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_kinds_of_traffic_share_a_value_or_a_customer(seed: int) -> None:
    kinds = _kinds(make_requests(seed))
    for one, other in combinations(kinds, 2):
        assert not _values(one) & _values(other)
        assert not {r.user for r in one} & {r.user for r in other}
        assert not {r.user.split(".")[0] for r in one} & {r.user.split(".")[0] for r in other}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_right_call_can_be_copied_from_the_text_and_succeeds_in_the_shop(seed: int) -> None:
    traffic = make_requests(seed)
    shop = open_shop(None, traffic.stock)
    for request in [request for kind in _kinds(traffic) for request in kind]:
        for value in (request.expected.arguments or {}).values():
            assert re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", request.text), request
        result = execute(shop, request.expected)
        assert result.ok, (request, result)


def test_there_are_the_requests_asked_for_with_the_intents_in_equal_parts() -> None:
    traffic = make_requests(7)
    assert [len(kind) for kind in _kinds(traffic)] == [150, 96, 64]
    assert set(Counter(r.intent for r in traffic.training).values()) == {25}
    assert set(Counter(r.intent for r in traffic.holdout).values()) == {16}
    small = make_requests(7, num_training=12, num_holdout=6, num_after=1)
    assert [len(kind) for kind in _kinds(small)] == [12, 6, 1]


def test_every_intent_is_worded_in_dozens_of_ways() -> None:
    traffic = make_requests(3)
    for intent in SLOTS:
        per_kind = [len({r.wording_id for r in kind if r.intent == intent}) for kind in _kinds(traffic)]
        assert sum(per_kind) >= 40
        assert per_kind[0] >= 24


def test_the_same_seed_gives_the_same_traffic_and_another_seed_another_split() -> None:
    assert make_requests(5) == make_requests(5)
    first, second = make_requests(5), make_requests(6)
    assert {r.wording_id for r in first.holdout} != {r.wording_id for r in second.holdout}


def test_ids_are_unique_and_the_intents_are_the_tools() -> None:
    requests = [request for kind in _kinds(make_requests(2)) for request in kind]
    assert len({request.id for request in requests}) == len(requests)
    assert list(SLOTS) == [tool.name for tool in TOOLS]
    assert all(request.expected.name == request.intent for request in requests)


def test_intents_are_mixed_in_time() -> None:
    intents = [request.intent for request in make_requests(4).training]
    assert sum(one != other for one, other in pairwise(intents)) > len(intents) / 2


@pytest.mark.parametrize("counts", [{"num_training": 0}, {"num_training": 9000}])
def test_impossible_counts_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="demo traffic"):
        make_requests(1, **counts)


def test_a_shop_opened_again_at_the_same_place_is_new(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    traffic = make_requests(1)
    shop = open_shop(path, traffic.stock)
    shop.execute("UPDATE orders SET status = 'cancelled'")
    shop.close()
    again = open_shop(path, traffic.stock)
    assert again.execute("SELECT count(*) FROM orders WHERE status = 'cancelled'").fetchone() == (0,)
    with pytest.raises(sqlite3.IntegrityError):
        again.execute("INSERT INTO tickets (email, topic) VALUES ('nobody@mail.example', 'login')")
