import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.traces.clusters import find_edge_case, signature
from pipelines.traces.corrections import expected_calls, find_correction
from pipelines.traces.formats import parse_file
from pipelines.traces.json_text import read_arguments
from pipelines.traces.model import (
    EdgeCase,
    Expectation,
    Feedback,
    Message,
    Outcome,
    Role,
    Signal,
    SignalKind,
    Source,
    ToolCall,
    ToolSpec,
    Trace,
)
from pipelines.traces.signals import find_signals, severity
from pipelines.traces.table import edge_case_from_row, edge_case_to_row
from pipelines.traces.test_summaries import failed_tests
from tests.unit.samples import sample_files

SOURCE = Source("file", "f", "openai_chat")
SCHEMA: dict[str, JsonValue] = {"type": "object", "properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]}
REFUND = ToolSpec("refund", "Pay back.", SCHEMA)
EXPECTED: JsonValue = {"name": "refund", "arguments": {"order_id": 7}}


def call(name: str = "refund", raw: str = '{"order_id": 7}') -> ToolCall:
    return ToolCall(name, read_arguments(raw), raw, "c")


def trace_of(
    *answers: Message | str | ToolCall,
    expected: JsonValue = None,
    feedback: tuple[Feedback, ...] = (),
    outcome: Outcome = Outcome.UNKNOWN,
    error: str | None = None,
    attributes: dict[str, str] | None = None,
) -> Trace:
    messages = [Message(Role.USER, "please refund order 7")]
    for answer in answers:
        match answer:
            case Message():
                messages.append(answer)
            case str():
                messages.append(Message(Role.ASSISTANT, answer))
            case ToolCall():
                messages.append(Message(Role.ASSISTANT, None, (answer,)))
    expectations = () if expected is None else (Expectation("expected_tool_call", expected),)
    return Trace("t", tuple(messages), SOURCE, (REFUND,), outcome, error, feedback, expectations, attributes=attributes or {})


def kinds(trace: Trace) -> set[SignalKind]:
    return {signal.kind for signal in find_signals(trace)}


def result(content: str) -> Message:
    return Message(Role.TOOL, content, tool_call_id="c")


def test_a_run_that_did_what_was_expected_has_no_signal() -> None:
    trace = trace_of(
        call(), result('{"ok": true, "error": null}'), "Done.", expected=EXPECTED, feedback=(Feedback("thumbs", True, "human"),)
    )
    assert find_signals(trace) == ()
    assert find_edge_case(trace) is None
    assert signature(trace, ()) == "none"


@pytest.mark.parametrize(
    ("trace", "kind"),
    [
        (trace_of(call(), result("Error: no such order")), SignalKind.TOOL_ERROR),
        (trace_of(call(), result('{"error": "no such order"}')), SignalKind.TOOL_ERROR),
        (trace_of(call(), result('{"success": false}')), SignalKind.TOOL_ERROR),
        (trace_of(call(), feedback=(Feedback("tool_result", "unknown_order", "code"),)), SignalKind.TOOL_ERROR),
        (trace_of(call(), attributes={"failed_tools": "refund: boom"}), SignalKind.TOOL_ERROR),
        (trace_of(call(raw='{"order_id": 7')), SignalKind.INVALID_CALL),
        (trace_of(call(raw='{"order_id": "7"}')), SignalKind.INVALID_CALL),
        (trace_of(call(raw="{}")), SignalKind.INVALID_CALL),
        (trace_of(call(name="explode")), SignalKind.INVALID_CALL),
        (trace_of('<tool_call>{"name": "refund", "arguments"'), SignalKind.INVALID_CALL),
        (trace_of("Sure!", expected=EXPECTED), SignalKind.MISSING_CALL),
        (trace_of(call(raw='{"order_id": 8}'), expected=EXPECTED), SignalKind.HUMAN_CORRECTION),
        (trace_of("Hm.", feedback=(Feedback("thumbs", False, "human"),)), SignalKind.NEGATIVE_FEEDBACK),
        (trace_of("Hm.", feedback=(Feedback("score", 0.1, "llm_judge"),)), SignalKind.NEGATIVE_FEEDBACK),
        (trace_of(call(), result("== 1 failed, 3 passed in 0.2s ==")), SignalKind.FAILED_TESTS),
        (trace_of(call(), call(), call()), SignalKind.LOOP),
        (trace_of("I will wait now.\n" * 9), SignalKind.LOOP),
        (trace_of("cut", attributes={"finish_reason": "length"}), SignalKind.TRUNCATION),
        (trace_of("x", outcome=Outcome.FAILURE, attributes={"exit_status": "LimitsExceeded"}), SignalKind.BUDGET_EXHAUSTED),
        (trace_of("x", outcome=Outcome.FAILURE, error="429"), SignalKind.RUN_ERROR),
    ],
)
def test_each_kind_of_evidence_is_seen(trace: Trace, kind: SignalKind) -> None:
    assert kind in kinds(trace)


@pytest.mark.parametrize(
    "trace",
    [
        trace_of(call(), result("No errors found in order 7.")),
        trace_of(call(), result("2 passed in 0.1s")),
        trace_of(call(), result("1 failed, 1 passed"), call(), result("2 passed in 0.1s")),
        trace_of(
            call(), Message(Role.USER, "<returncode>1</returncode>"), call(), Message(Role.USER, "<returncode>0</returncode>")
        ),
        trace_of("Hm.", feedback=(Feedback("stars", 4, "human"), Feedback("language", "en", "code"))),
        trace_of(call(), call()),
        trace_of('Use JSON like {"name": 1} here.'),
        trace_of("ok", attributes={"exit_status": "Submitted"}),
    ],
)
def test_ordinary_work_is_no_edge_case(trace: Trace) -> None:
    assert find_signals(trace) == ()


def test_a_call_made_in_vain_as_text_is_not_also_a_missing_call() -> None:
    assert SignalKind.MISSING_CALL not in kinds(trace_of("<tool_call>{broken", expected=EXPECTED))


@pytest.mark.parametrize(
    "value",
    [EXPECTED, [EXPECTED], json.dumps(EXPECTED), {"tool_calls": [{"function": EXPECTED}]}, {"function": EXPECTED}],
)
def test_an_expected_call_is_read_in_every_usual_shape(value: JsonValue) -> None:
    assert [(c.name, c.arguments) for c in expected_calls(trace_of("x", expected=value))] == [("refund", {"order_id": 7})]


@pytest.mark.parametrize("raw", ['{"order_id": 7}', '{"order_id": "7"}', '{"order_id": 7.0}'])
def test_a_correction_is_compared_loosely(raw: str) -> None:
    assert find_correction(trace_of(call(raw=raw), expected=EXPECTED)) is None


def test_clusters_name_what_failed_and_do_not_depend_on_values() -> None:
    one = find_edge_case(trace_of(call(raw='{"order_id": 8}'), expected=EXPECTED))
    other = find_edge_case(trace_of(call(raw='{"order_id": 99}'), expected=EXPECTED))
    wrong_tool = find_edge_case(trace_of(call(name="ticket"), expected=EXPECTED))
    no_call = find_edge_case(trace_of("Sure!", expected=EXPECTED))
    assert [case.cluster for case in (one, other, wrong_tool, no_call) if case] == [
        "human_correction/refund/wrong_arguments",
        "human_correction/refund/wrong_arguments",
        "human_correction/refund/wrong_tool",
        "human_correction/refund/no_call",
    ]


def test_more_evidence_only_raises_severity() -> None:
    signals = tuple(Signal(kind, "") for kind in SignalKind)
    values = [severity(signals[:n]) for n in range(len(signals) + 1)]
    assert values == sorted(values)
    assert (values[0], values[-1] < 1.0) == (0.0, True)


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        ("===== 2 failed, 3 passed in 1.20s =====", True),
        ("1 failed", True),
        ("FAILED tests/test_a.py::test_b - AssertionError", True),
        ("Ran 3 tests in 0.1s\n\nFAILED (failures=1)", True),
        ("--- FAIL: TestX (0.00s)", True),
        ("test result: FAILED. 1 passed; 1 failed", True),
        ("Ran 3 tests in 0.1s\n\nOK", False),
        ("===== 3 passed in 1.20s =====", False),
        ("0 failed, 3 passed", False),
        ("the payment failed", None),
        ("grep: 3 failed logins were found yesterday", None),
    ],
)
def test_test_summaries_are_told_from_other_output(output: str, verdict: bool | None) -> None:
    found = failed_tests(output)
    assert (None if found is None else bool(found)) is verdict


def test_samples_show_the_signals_a_reader_sees_in_them() -> None:
    (trace,) = parse_file(sample_files("mlflow")[0].read_bytes(), location="x")
    assert isinstance(trace, Trace)
    assert {SignalKind.INVALID_CALL, SignalKind.TRUNCATION, SignalKind.TOOL_ERROR} <= kinds(trace)


def test_an_edge_case_survives_its_table_row() -> None:
    case = find_edge_case(trace_of("Sure!", expected=EXPECTED))
    assert isinstance(case, EdgeCase)
    row = edge_case_to_row(case)
    assert row["signals"] == ["human_correction", "missing_call"]
    assert edge_case_from_row(row) == case


@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=80),
    st.text(max_size=40),
    st.dictionaries(st.sampled_from(["type", "properties", "$ref", "pattern"]), st.text()),
)
def test_no_text_and_no_schema_makes_detection_raise(content: str, raw: str, schema: dict[str, str]) -> None:
    tools = (ToolSpec("f", "", dict(schema)),)
    messages = (
        Message(Role.USER, content),
        Message(Role.ASSISTANT, content, (ToolCall("f", read_arguments(raw), raw),)),
        result(content),
    )
    find_edge_case(Trace("t", messages, SOURCE, tools))
