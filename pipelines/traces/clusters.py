"""Clusters: failures of the same kind share a signature, so that people see kinds and splits can hold out kinds.

A signature is readable: `<first signal>/<tool or ->/<how>`. It depends on what failed, never on wording or values.
Also owns putting an edge case together: signals, cluster, severity.
"""

from pipelines.traces.corrections import calls_made, expected_calls, find_correction
from pipelines.traces.model import EdgeCase, Signal, SignalKind, ToolSpec, Trace
from pipelines.traces.signals import call_problem, find_signals, is_failed_check, severity

_ORDER = (
    SignalKind.HUMAN_CORRECTION,
    SignalKind.MISSING_CALL,
    SignalKind.INVALID_CALL,
    SignalKind.FAILED_TESTS,
    SignalKind.BUDGET_EXHAUSTED,
    SignalKind.RUN_ERROR,
    SignalKind.LOOP,
    SignalKind.TRUNCATION,
    SignalKind.TOOL_ERROR,
    SignalKind.NEGATIVE_FEEDBACK,
)
"""Which signal names the cluster: the one that says most about what went wrong."""


def find_edge_case(trace: Trace) -> EdgeCase | None:
    """The trace as an edge case; None when nothing speaks for one."""
    signals = find_signals(trace)
    return EdgeCase(trace, signals, signature(trace, signals), severity(signals)) if signals else None


def signature(trace: Trace, signals: tuple[Signal, ...]) -> str:
    """The cluster of an edge case; `none` when there is no signal."""
    kinds = {signal.kind for signal in signals}
    first = next((kind for kind in _ORDER if kind in kinds), None)
    if first is None:
        return "none"
    return f"{first.value}/{_tool(trace) or '-'}/{_mode(trace, first)}"


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
            return correction.mode if correction else "-"
        case SignalKind.INVALID_CALL:
            return _invalid_mode(trace, tools)
        case SignalKind.TOOL_ERROR:
            return _tool_error_mode(trace)
        case SignalKind.RUN_ERROR | SignalKind.BUDGET_EXHAUSTED:
            return trace.attributes.get("exit_status", "-")
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
