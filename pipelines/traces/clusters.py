"""Clusters: failures of the same kind share a signature, so that people see kinds and splits can hold out kinds.

A signature is readable: `<first signal>/<tool or ->/<how>`. It depends on what failed, never on wording or values.
Also owns putting edge cases together (signals, cluster, severity), capping how many of a cluster are kept, and comparing the
clusters of two batches.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipelines.artifacts import digest
from pipelines.traces.corrections import calls_made, expected_calls, find_correction
from pipelines.traces.deduplication import normalise, user_text
from pipelines.traces.model import EdgeCase, Signal, SignalKind, ToolSpec, Trace, trace_digest
from pipelines.traces.outliers import find_outliers
from pipelines.traces.signals import custom_name, find_signals, severity
from pipelines.traces.signals.invalid_call import call_problem
from pipelines.traces.signals.tool_error import is_failed_check

GROWTH_RATIO = 1.5
MIN_GROWTH = 2
"""A cluster grows when it has both this ratio and this many cases more than before; less may be chance."""
_ORDER = (
    SignalKind.HUMAN_CORRECTION,
    SignalKind.MISSING_CALL,
    SignalKind.INVALID_CALL,
    SignalKind.FAILED_TESTS,
    SignalKind.BUDGET_EXHAUSTED,
    SignalKind.GUARDRAIL,
    SignalKind.REFUSAL,
    SignalKind.RUN_ERROR,
    SignalKind.LOOP,
    SignalKind.TRUNCATION,
    SignalKind.TOOL_ERROR,
    SignalKind.TAKEOVER,
    SignalKind.NEGATIVE_FEEDBACK,
    SignalKind.CUSTOM,
    SignalKind.COST_OUTLIER,
    SignalKind.LATENCY_OUTLIER,
)
"""Which signal names the cluster: the one that says most about what went wrong."""


class ClusterState(StrEnum):
    NEW = "new"
    GROWING = "growing"
    STEADY = "steady"
    """About as many as before, or fewer."""
    FIXED = "fixed"
    """Had cases and has none now."""


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """A row of the table that compares two batches; counts are edge cases."""

    cluster: str
    state: ClusterState
    previous: int
    current: int


def find_edge_cases(traces: Sequence[Trace], own: Sequence[str] = ()) -> list[EdgeCase]:
    """The edge cases of a batch, in order, with the signals that show only against the other runs. `own`: the user's signals."""
    pairs = zip(traces, find_outliers(traces), strict=True)
    return [case for trace, extra in pairs if (case := find_edge_case(trace, extra=extra, own=own)) is not None]


def find_edge_case(trace: Trace, *, extra: tuple[Signal, ...] = (), own: Sequence[str] = ()) -> EdgeCase | None:
    """The trace as an edge case; None when nothing speaks for one."""
    signals = (*find_signals(trace, own), *extra)
    return EdgeCase(trace, signals, signature(trace, signals), severity(signals, own)) if signals else None


def signature(trace: Trace, signals: tuple[Signal, ...]) -> str:
    """The cluster of an edge case; `none` when there is no signal."""
    kinds = {signal.kind for signal in signals}
    first = next((kind for kind in _ORDER if kind in kinds), None)
    if first is None:
        return "none"
    custom = next(filter(None, map(custom_name, signals)), "-")
    mode = custom if first is SignalKind.CUSTOM else _mode(trace, first)
    return f"{first.value}/{_tool(trace) or '-'}/{mode}"


def _tool(trace: Trace) -> str:
    """The tool the failure is about: the expected one, else the last called."""
    correction = find_correction(trace)
    if correction is not None and correction.tool:
        return correction.tool
    calls = expected_calls(trace) or calls_made(trace)
    return calls[-1].name if calls else ""


def _mode(trace: Trace, kind: SignalKind) -> str:
    tools = {tool.name: tool for tool in trace.tools}
    match kind:
        case SignalKind.HUMAN_CORRECTION:
            correction = find_correction(trace)
            return correction.mode if correction else "changed_edit"
        case SignalKind.INVALID_CALL:
            return _invalid_mode(trace, tools)
        case SignalKind.TOOL_ERROR:
            return _tool_error_mode(trace)
        case SignalKind.RUN_ERROR | SignalKind.BUDGET_EXHAUSTED:
            return trace.attributes.get("exit_status", "-")
        case SignalKind.GUARDRAIL:
            return trace.attributes.get("finish_reason", "-")
        case _:
            return "-"


def _invalid_mode(trace: Trace, tools: dict[str, ToolSpec]) -> str:
    for message in trace.messages:
        for call in message.tool_calls:
            if call.arguments is None:
                return "unparsable"
            if tools and call.name not in tools:
                return "unknown_tool"
            if call_problem(call, tools):
                return "schema"
    return "as_text"


def _tool_error_mode(trace: Trace) -> str:
    """The code a check gave (no_call, unknown_tool), when it gave one."""
    codes = (str(item.value) for item in trace.feedback if is_failed_check(item) and isinstance(item.value, str))
    return next((code for code in codes if code.isidentifier()), "-")


def cap_clusters(cases: Sequence[EdgeCase], max_per_cluster: int, seed: int) -> list[EdgeCase]:
    """At most so many cases of each cluster, in their order: first one of each request, the severe ones before others.

    Requests that differ only in numbers and addresses are the same. Ties are decided by the seed, whatever the order of the cases.
    Raises ValueError for a negative cap; 0 keeps none.
    """
    if max_per_cluster < 0:
        raise ValueError(f"max_per_cluster is {max_per_cluster}; expected 0 or more")
    ranked = sorted(range(len(cases)), key=lambda i: (-cases[i].severity, digest([seed, trace_digest(cases[i].trace)])))
    num_asked: Counter[tuple[str, str]] = Counter()
    rounds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    """Of each cluster, for each case by rank: how many cases of the same request come before it."""
    for rank, index in enumerate(ranked):
        cluster, request = cases[index].cluster, normalise(user_text(cases[index].trace))
        rounds[cluster].append((num_asked[cluster, request], rank))
        num_asked[cluster, request] += 1
    kept = {ranked[rank] for members in rounds.values() for _, rank in sorted(members)[:max_per_cluster]}
    return [case for index, case in enumerate(cases) if index in kept]


def compare_clusters(previous: Mapping[str, int], current: Mapping[str, int]) -> list[ClusterChange]:
    """A row for each cluster that has or had cases: new ones first, then growing, steady and fixed, the largest first in each."""
    counts = ((cluster, previous.get(cluster, 0), current.get(cluster, 0)) for cluster in {*previous, *current})
    rows = [ClusterChange(cluster, _state(before, now), before, now) for cluster, before, now in counts if before > 0 or now > 0]
    states = list(ClusterState)
    return sorted(rows, key=lambda row: (states.index(row.state), -row.current, -row.previous, row.cluster))


def _state(previous: int, current: int) -> ClusterState:
    if previous <= 0:
        return ClusterState.NEW
    if current <= 0:
        return ClusterState.FIXED
    grows = current >= GROWTH_RATIO * previous and current - previous >= MIN_GROWTH
    return ClusterState.GROWING if grows else ClusterState.STEADY
