from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.clusters import ClusterState, cap_clusters, compare_clusters, find_edge_case
from pipelines.traces.deduplication import normalise, user_text
from pipelines.traces.model import EdgeCase, Message, Outcome, Role, Signal, SignalKind, Source, Trace

TRACE = Trace("t", (), Source("file", "f", "openai_chat"))
SIGNALS = (Signal(SignalKind.LOOP, ""),)


def case(number: int, *, text: str = "refund", cluster: str = "loop/-/-", severity: float = 0.3) -> EdgeCase:
    return EdgeCase(replace(TRACE, id=f"{number}", messages=(Message(Role.USER, text),)), SIGNALS, cluster, severity)


CASES = st.lists(
    st.builds(
        lambda text, cluster, severity: (text, cluster, severity),
        st.sampled_from(["refund order 1", "refund order 2", "where is it", "cancel it", ""]),
        st.sampled_from(["loop/-/-", "refusal/-/-"]),
        st.sampled_from([0.1, 0.3, 0.9]),
    ),
    max_size=30,
).map(lambda rows: [case(i, text=text, cluster=cluster, severity=severity) for i, (text, cluster, severity) in enumerate(rows)])


def requests(cases: list[EdgeCase]) -> set[str]:
    return {normalise(user_text(c.trace)) for c in cases}


@settings(max_examples=100, deadline=None)
@given(CASES, st.integers(0, 6), st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_cap_keeps_as_many_as_it_may_with_the_most_requests_and_the_most_severe_whatever_the_order(
    cases: list[EdgeCase], cap: int, seed: int, random: Random
) -> None:
    kept = cap_clusters(cases, cap, seed)
    assert kept == [c for c in cases if c in kept]
    assert Counter(c.cluster for c in kept) == {k: min(n, cap) for k, n in Counter(c.cluster for c in cases).items() if cap}
    for cluster in {c.cluster for c in cases}:
        had, has = ([c for c in group if c.cluster == cluster] for group in (cases, kept))
        assert len(requests(has)) == min(cap, len(requests(had)))
        assert not has or max(c.severity for c in has) == max(c.severity for c in had)
    shuffled = random.sample(cases, len(cases))
    assert {c.trace.id for c in cap_clusters(shuffled, cap, seed)} == {c.trace.id for c in kept}


def test_of_one_request_the_severe_are_kept_and_ties_are_drawn_by_the_seed() -> None:
    cases = [case(i, severity=0.9 if i == 7 else 0.3) for i in range(20)]
    drawn = {tuple(c.trace.id for c in cap_clusters(cases, 3, seed)) for seed in range(8)}
    assert all("7" in ids and len(ids) == 3 for ids in drawn)
    assert len(drawn) > 1


def test_requests_that_differ_only_in_their_numbers_do_not_crowd_out_another_one() -> None:
    cases = [*(case(i, text=f"refund order {i}", severity=0.9) for i in range(9)), case(9, text="where is my parcel?")]
    assert [c.trace.id for c in cap_clusters(cases, 2, 0)][-1] == "9"


def test_a_negative_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="max_per_cluster is -1"):
        cap_clusters([], -1, 0)


def test_clusters_of_two_batches_are_compared_for_people_to_read() -> None:
    previous = {"gone": 4, "up": 4, "noise": 1, "same": 40, "large": 100, "down": 9, "never": 0}
    current = {"fresh": 1, "up": 6, "noise": 2, "same": 41, "large": 149, "down": 2, "never": 0, "burst": 3}
    assert [(row.cluster, row.state.value, row.previous, row.current) for row in compare_clusters(previous, current)] == [
        ("burst", "new", 0, 3),
        ("fresh", "new", 0, 1),
        ("up", "growing", 4, 6),
        ("large", "steady", 100, 149),
        ("same", "steady", 40, 41),
        ("down", "steady", 9, 2),
        ("noise", "steady", 1, 2),
        ("gone", "fixed", 4, 0),
    ]


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 99)), st.dictionaries(st.text(max_size=2), st.integers(0, 99)))
def test_every_cluster_with_cases_has_one_row(previous: dict[str, int], current: dict[str, int]) -> None:
    rows = compare_clusters(previous, current)
    assert sorted(row.cluster for row in rows) == sorted({k for d in (previous, current) for k, n in d.items() if n})
    assert all((row.state is ClusterState.FIXED) == (row.current == 0) for row in rows)
    assert all((row.state is ClusterState.NEW) == (row.previous == 0) for row in rows)


def test_a_cluster_of_a_guardrail_says_what_stopped_the_answer_and_one_of_a_refused_run_comes_before_its_error() -> None:
    filtered = replace(TRACE, messages=(Message(Role.USER, "x"),), attributes={"finish_reason": "content_filter"})
    stopped = replace(filtered, attributes={}, outcome=Outcome.FAILURE, error="Guardrail PII triggered tripwire")
    cases = [find_edge_case(trace) for trace in (filtered, stopped)]
    assert [c.cluster for c in cases if c] == ["guardrail/-/content_filter", "guardrail/-/-"]
