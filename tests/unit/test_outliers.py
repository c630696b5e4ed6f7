import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.clusters import find_edge_cases
from pipelines.traces.model import Message, Role, SignalKind, Source, Trace, Usage
from pipelines.traces.outliers import MIN_TRACES, find_outliers

RUN = Trace("t", (Message(Role.USER, "refund order 7"),), Source("file", "f", "openai_chat"), model="qwen")


def batch(num_traces: int = MIN_TRACES) -> list[Trace]:
    """Ordinary runs: 10 to 20 s, 1000 to 2000 tokens, 1 to 2 cents."""
    shares = [1 + i / num_traces for i in range(num_traces)]
    return [
        replace(RUN, id=f"{i}", duration_s=10 * share, usage=Usage(int(1000 * share)), attributes={"cost_usd": f"{share / 100}"})
        for i, share in enumerate(shares)
    ]


def found(traces: list[Trace]) -> list[tuple[int, SignalKind]]:
    return [(i, signal.kind) for i, signals in enumerate(find_outliers(traces)) for signal in signals]


def test_a_run_far_slower_or_dearer_than_the_others_of_its_model_is_an_outlier_and_the_detail_says_by_how_much() -> None:
    slow = replace(RUN, duration_s=900.0)
    dear = replace(RUN, attributes={"cost_usd": "1.5"})
    wordy = replace(RUN, usage=Usage(10, 90_000))
    assert found([*batch(), slow, dear, wordy]) == [
        (20, SignalKind.LATENCY_OUTLIER),
        (21, SignalKind.COST_OUTLIER),
        (22, SignalKind.COST_OUTLIER),
    ]
    assert find_outliers([*batch(), slow])[-1][0].detail == "900.0 s, 60.0 times the median of 21 runs of qwen"


def test_ordinary_spread_and_what_is_unusually_quick_or_cheap_are_no_outliers() -> None:
    assert found([*batch(), replace(RUN, duration_s=0.01, usage=Usage(1)), replace(RUN, duration_s=30.0)]) == []


def test_in_a_batch_of_equal_runs_only_twice_the_time_is_worth_a_look() -> None:
    equal = [replace(RUN, id=f"{i}", duration_s=10.0) for i in range(30)]
    assert found([*equal, replace(RUN, duration_s=19.0), replace(RUN, duration_s=21.0)]) == [(31, SignalKind.LATENCY_OUTLIER)]


def test_a_run_is_compared_only_with_enough_runs_of_the_same_known_model_and_format() -> None:
    slow = replace(RUN, duration_s=900.0)
    assert found([*batch(MIN_TRACES - 2), slow]) == []
    assert found([*batch(), replace(slow, model="other"), replace(slow, source=Source("file", "f", "codex"))]) == []
    assert found([replace(trace, model=None) for trace in [*batch(), slow]]) == []


def test_outliers_do_not_hide_each_other() -> None:
    assert len(found([*batch(), *[replace(RUN, duration_s=900.0 + i) for i in range(8)]])) == 8


def test_a_batch_gives_edge_cases_for_runs_that_only_stand_out_among_the_others() -> None:
    (case,) = find_edge_cases([*batch(), replace(RUN, id="slow", duration_s=900.0)])
    assert (case.trace.id, case.cluster, case.severity) == ("slow", "latency_outlier/-/-", 0.1)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda seconds, tokens, cost: replace(RUN, duration_s=seconds, usage=Usage(tokens), attributes={"cost_usd": cost}),
            st.none() | st.floats() | st.just(math.ulp(0.0)),
            st.none() | st.integers(),
            st.text(max_size=5) | st.floats().map(str),
        ),
        min_size=20,
        max_size=30,
    )
)
def test_whatever_the_numbers_there_is_one_entry_per_trace_and_at_most_one_signal_per_kind(traces: list[Trace]) -> None:
    signals = find_outliers(traces)
    assert len(signals) == len(traces)
    assert all(len({s.kind for s in each}) == len(each) for each in signals)
