# ruff: noqa: RUF001 (the words of other languages)

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.errors import ConfigError
from pipelines.plugins import available
from pipelines.traces import outliers
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


POLL = call(raw='{"order_id": 1}')


@pytest.mark.parametrize(
    ("kind", "trace"),
    [
        (SignalKind.TOOL_ERROR, trace_of(call(), result("httpx.ConnectError: all attempts failed"))),
        (SignalKind.TOOL_ERROR, trace_of(call(), result('{"isError": true, "content": []}'))),
        (SignalKind.INVALID_CALL, trace_of("", attributes={"finish_reason": "MALFORMED_FUNCTION_CALL"})),
        (SignalKind.HUMAN_CORRECTION, trace_of("Done.", attributes={"num_edits_changed_by_user": "2"})),
        (SignalKind.NEGATIVE_FEEDBACK, trace_of("Hm.", feedback=(Feedback("hallucination", 1.0, "llm_judge"),))),
        (SignalKind.LOOP, trace_of(call(), result("pending"), call(), result("pending"), call(), result("pending"))),
        (SignalKind.LOOP, trace_of(*[call(), POLL] * 3)),
        (SignalKind.LOOP, trace_of("The total is " + "the sum of " * 30)),
        (SignalKind.BUDGET_EXHAUSTED, trace_of("x", error="Max turns (10) exceeded")),
        (SignalKind.BUDGET_EXHAUSTED, trace_of("x", error="Recursion limit of 25 reached without hitting a stop condition.")),
        (SignalKind.BUDGET_EXHAUSTED, trace_of("Agent stopped due to iteration limit or time limit.")),
        (SignalKind.BUDGET_EXHAUSTED, trace_of("x", outcome=Outcome.FAILURE, attributes={"exit_status": "exit_cost"})),
        (SignalKind.RUN_ERROR, trace_of("x", error="Error code: 429 - Rate limit exceeded: 10 requests per minute")),
        (SignalKind.TRUNCATION, trace_of("cut", attributes={"finish_reason": "MAX_TOKENS"})),
        (SignalKind.TAKEOVER, trace_of(call(), attributes={"interrupted": "true"})),
        (SignalKind.TAKEOVER, trace_of(call(), attributes={"num_refused_calls": "1"})),
        (SignalKind.TAKEOVER, trace_of(call(), outcome=Outcome.FAILURE, attributes={"exit_status": "KeyboardInterrupt"})),
        (SignalKind.TAKEOVER, trace_of(call("transfer_to_human_agents", "{}"))),
        (SignalKind.TAKEOVER, trace_of(call("mcp__desk__escalateToHuman", "{}"))),
        (SignalKind.TAKEOVER, trace_of("Hm.", feedback=(Feedback("resolution", "transferred to agent", "code"),))),
        (SignalKind.TAKEOVER, trace_of("Hm.", feedback=(Feedback("note", 4, "human", "The chat was handed over to a human."),))),
        (SignalKind.TAKEOVER, trace_of("Hm.", feedback=(Feedback("escalated", True, "code"),))),
        (SignalKind.GUARDRAIL, trace_of("", attributes={"finish_reason": "content_filter"})),
        (SignalKind.GUARDRAIL, trace_of("", attributes={"finish_reason": "SAFETY"})),
        (SignalKind.GUARDRAIL, trace_of("x", attributes={"guardrail.pii.action": "BLOCKED"})),
        (SignalKind.GUARDRAIL, trace_of("x", attributes={"moderation_flagged": "true"})),
        (SignalKind.GUARDRAIL, trace_of("x", error="Guardrail InputGuardrail triggered tripwire")),
        (SignalKind.GUARDRAIL, trace_of("x", error="invalid_prompt: flagged as potentially violating our usage policy")),
        (SignalKind.GUARDRAIL, trace_of("x", error="Output blocked by content filtering policy")),
        (SignalKind.GUARDRAIL, trace_of("x", error="Error code: 400 - {'error': {'code': 'content_filter'}}")),
        (
            SignalKind.GUARDRAIL,
            trace_of(
                "x", error="The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
            ),
        ),
        (SignalKind.GUARDRAIL, trace_of(call(), result("Error: this transfer was blocked by company policy"))),
        (SignalKind.REFUSAL, trace_of("x", attributes={"finish_reason": "refusal"})),
    ],
)
def test_evidence_in_the_words_of_frameworks_and_providers_is_seen(kind: SignalKind, trace: Trace) -> None:
    assert kind in kinds(trace)


@pytest.mark.parametrize(
    ("kind", "trace"),
    [
        (SignalKind.TOOL_ERROR, trace_of(call(), result('{"error": "none", "state": "paid"}'))),
        (SignalKind.TOOL_ERROR, trace_of(call(), result("src/app.py:9: raise ValueError: bad"))),
        (SignalKind.TOOL_ERROR, trace_of("Hm.", feedback=(Feedback("latency_s", 0.2, "code"),))),
        (SignalKind.INVALID_CALL, trace_of(call(raw='{"order_id": 7, "note": "more than asked"}'))),
        (SignalKind.MISSING_CALL, trace_of(call("ticket", "{}"), expected=EXPECTED)),
        (SignalKind.FAILED_TESTS, trace_of(call(), result("FAIL: the payment failed, 1 failed login before"))),
        (SignalKind.NEGATIVE_FEEDBACK, trace_of("Hm.", feedback=(Feedback("toxicity", 0.0, "llm_judge"),))),
        (SignalKind.NEGATIVE_FEEDBACK, trace_of("Hm.", feedback=(Feedback("sentiment", 0.9, "llm_judge"),))),
        (SignalKind.HUMAN_CORRECTION, trace_of("The order shipped.", expected="be polite")),
        (SignalKind.LOOP, trace_of(call(), result("pending"), call(), result("packed"), call(), result("shipped"))),
        (SignalKind.LOOP, trace_of(call(), POLL, call(), POLL)),
        (
            SignalKind.LOOP,
            trace_of("".join(f"    if x == {i}:\n        return x * {i}\n        return None\n" for i in range(9))),
        ),
        (SignalKind.LOOP, trace_of("| a | b |\n" + "-" * 80)),
        (SignalKind.BUDGET_EXHAUSTED, trace_of("x", error="Rate limit exceeded: max requests reached")),
        (SignalKind.BUDGET_EXHAUSTED, trace_of("x", error="RecursionError: maximum recursion depth exceeded")),
        (SignalKind.BUDGET_EXHAUSTED, trace_of("I raised your card's limit; the old budget was exceeded.")),
        (SignalKind.RUN_ERROR, trace_of("x", error="Max turns (10) exceeded")),
        (SignalKind.TRUNCATION, trace_of("and then the", attributes={"finish_reason": "stop", "num_truncated_turns": "0"})),
        (SignalKind.TAKEOVER, trace_of(call("transfer_to_billing_agent", "{}"))),
        (SignalKind.TAKEOVER, trace_of(call("transfer_back_to_supervisor", "{}"))),
        (SignalKind.TAKEOVER, trace_of(call("ask_human", "{}"))),
        (
            SignalKind.TAKEOVER,
            trace_of(call("transfer_to_human", "{}"), expected={"name": "transfer_to_human", "arguments": {}}),
        ),
        (SignalKind.TAKEOVER, trace_of(call(), attributes={"interrupted": "false", "num_refused_calls": "0"})),
        (SignalKind.TAKEOVER, trace_of("Hm.", feedback=(Feedback("note", 1, "human", "I was never transferred to an agent."),))),
        (SignalKind.TAKEOVER, trace_of("Hm.", feedback=(Feedback("note", 1, "human", "I want to be transferred to a human!"),))),
        (SignalKind.TAKEOVER, trace_of("Hm.", feedback=(Feedback("escalated", False, "code"),))),
        (
            SignalKind.GUARDRAIL,
            trace_of("x", attributes={"guardrails": "true", "guardrail_version": "2", "finish_reason": "stop"}),
        ),
        (SignalKind.GUARDRAIL, trace_of("x", attributes={"guardrail_name": "blocklist-de", "moderation.mode": "deny_list"})),
        (SignalKind.GUARDRAIL, trace_of("x", attributes={"content_filter.result": "passed", "moderation_flagged": "false"})),
        (SignalKind.GUARDRAIL, trace_of(call(), result("Error: fetch was blocked by CORS policy: no header is present"))),
        (
            SignalKind.GUARDRAIL,
            trace_of(call(), result("Our content policy and the guardrail docs: filters are triggered by rules.")),
        ),
        (SignalKind.GUARDRAIL, trace_of("I must tell you that our safety system and content policy changed.")),
    ],
)
def test_what_only_resembles_the_evidence_is_not_taken_for_it(kind: SignalKind, trace: Trace) -> None:
    assert kind not in kinds(trace)


def test_a_schema_with_a_type_that_json_schema_does_not_know_says_nothing_about_the_call() -> None:
    tool = ToolSpec("refund", "", {"properties": {"order_id": {"type": "float"}}})
    assert SignalKind.INVALID_CALL not in kinds(replace(trace_of(call()), tools=(tool,)))


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that request.",
        "I\u2019m sorry, but I can\u2019t help with that.",
        "I cannot help you reset another person's password. Is there anything else?",
        "Unfortunately, I am unable to help with refunds above 500 USD.",
        "As an AI language model, I cannot participate in this.",
        "I must decline. This would delete production data.",
        "Sorry, that's not something I can help with.",
        "Es tut mir leid, aber ich kann Ihnen dabei nicht helfen.",
        "Leider kann ich dieser Bitte nicht nachkommen.",
        "Je suis désolé, mais je ne peux pas vous aider avec cette demande.",
        "Lo siento, pero no puedo ayudarte con eso.",
        "Desculpe, mas não posso ajudar com isso.",
        "Mi dispiace, ma non posso aiutarti con questa richiesta.",
        "Sorry, maar ik kan je daar niet mee helpen.",
        "Przepraszam, ale nie mogę w tym pomóc.",
        "Üzgünüm, ama bu konuda yardımcı olamam.",
        "Извините, но я не могу помочь с этим.",
        "很抱歉，我无法协助完成这个请求。",
        "申し訳ありませんが、そのご依頼にはお手伝いできません。",
        "죄송하지만 그 요청은 도와드릴 수 없습니다.",
        "عذرا، لا أستطيع مساعدتك في ذلك.",
    ],
)
def test_a_clear_refusal_is_seen_in_many_languages(text: str) -> None:
    assert kinds(trace_of(text)) == {SignalKind.REFUSAL}


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry for the delay! Your refund of 12 USD is on its way.",
        "I'm sorry, but I can't find order 7. Could you check the number?",
        "Unfortunately, the parcel was lost. I have sent a new one.",
        "I can't help but notice that order 7 was paid twice.",
        "I can't help you without your order number. What is it?",
        "That's something I can help with! Which order is it?",
        "I cannot reproduce the bug, so I added a test.",
        "I won't change the public API; the fix is in parser.py.",
        "Done. If anything else comes up that I can't help with, call us.",
        "The policy says: I'm sorry, but I can't assist with that.",
        "Es tut mir leid, dass Sie warten mussten. Ihre Bestellung ist unterwegs.",
        "Ich kann Ihnen ohne Bestellnummer nicht helfen. Wie lautet sie?",
        "Je suis désolé pour l'attente, votre colis arrive demain.",
        "Lo siento, no encuentro el pedido 7.",
        "Desculpe a demora, o pedido foi enviado.",
        "Извините за ожидание, заказ отправлен.",
        "很抱歉让您久等了，您的订单已发货。",
        "抱歉，没有订单号我无法帮助您。",
        "申し訳ありません。注文番号がないと対応できません。",
    ],
)
def test_politeness_and_what_is_merely_missing_are_no_refusal(text: str) -> None:
    assert kinds(trace_of(text)) == set()


def test_a_refusal_beside_a_call_is_none() -> None:
    assert kinds(trace_of(Message(Role.ASSISTANT, "I can't help with that myself, one moment.", (call(),)))) == set()


class Shouting:
    """A user's own signal."""

    WEIGHT = 0.25

    @staticmethod
    def find(trace: Trace) -> Iterator[Signal]:
        for message in trace.messages:
            if message.role is Role.USER and (message.content or "").isupper():
                yield Signal(SignalKind.CUSTOM, f"shouted:  {message.content}")


class Broken:
    WEIGHT = 1.0


OWN = f"{__name__}:Shouting"


def test_a_users_own_signal_is_found_by_name_counted_by_its_weight_and_named_in_the_cluster() -> None:
    trace = trace_of("Fine.", Message(Role.USER, "WHERE IS IT"))
    case = find_edge_case(trace, own=[OWN])
    assert case is not None
    assert case.signals == (Signal(SignalKind.CUSTOM, f"{OWN}: shouted: WHERE IS IT"),)
    assert (case.severity, case.cluster) == (0.25, f"custom/-/{OWN}")
    assert find_edge_case(trace) is None
    assert find_edge_case(trace_of("Fine."), own=[OWN]) is None


def test_a_plugin_that_is_no_signal_is_refused_with_what_was_expected() -> None:
    with pytest.raises(ConfigError, match="expected find"):
        find_signals(trace_of("x"), [f"{__name__}:Broken"])
    with pytest.raises(ConfigError, match="no module in pipelines/traces/signals; have budget_exhausted"):
        find_signals(trace_of("x"), ["nonsense"])


def test_every_module_is_named_like_its_kind_and_every_kind_has_a_weight() -> None:
    modules = set(available("traces.signals"))
    assert modules | {kind.value for kind in outliers.WEIGHTS} | {SignalKind.CUSTOM.value} == {kind.value for kind in SignalKind}
    assert all(severity((Signal(kind, ""),)) > 0 for kind in SignalKind if kind is not SignalKind.CUSTOM)


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
        ("\x1b[31m===== \x1b[1m2 failed\x1b[0m, 3 passed in 1.20s =====\x1b[0m", True),
        (" Test Files  1 failed (1)\n      Tests  1 failed | 3 passed (4)", True),
        ("  2 passing (5ms)\n  1 failing", True),
        ("5 examples, 1 failure", True),
        ("FAILURES!\nTests: 3, Assertions: 4, Failures: 1.", True),
        ("50% tests passed, 1 tests failed out of 2", True),
        ("Failed!  - Failed:     1, Passed:     3, Skipped:     0, Total:     4", True),
        ("12 tests completed, 1 failed", True),
        ("1..2\nok 1 - a\nnot ok 2 - b", True),
        ("1..1\nnot ok 1 - a # TODO later", None),
        ("1..1\nok 1 - a", False),
        ("      Tests  4 passed (4)", False),
        ("  2 passing (5ms)", False),
        ("5 examples, 0 failures", False),
        ("OK (3 tests, 4 assertions)", False),
        ("100% tests passed, 0 tests failed out of 2", False),
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


TEXT = st.text(max_size=60) | st.sampled_from(
    ["I can't help", "true", "x" * 5000, "\n" * 5000, "_" * 5000, "0 failed " * 99, "{", '{"error": [[]]}', "blocked by policy"]
)
NAMES = st.sampled_from(["finish_reason", "exit_status", "interrupted", "guardrail_action", "failed_tools", "cost_usd"]) | TEXT


@settings(max_examples=100, deadline=None)
@given(
    content=TEXT,
    raw=TEXT | st.sampled_from(['{"a": 1}', '{"a": "x"}']),
    name=TEXT,
    attributes=st.dictionaries(NAMES, TEXT, max_size=4),
    value=st.none() | st.booleans() | st.floats() | st.integers() | TEXT | st.lists(TEXT, max_size=2),
    schema=st.dictionaries(
        st.sampled_from(["type", "properties", "$ref", "pattern", "multipleOf", "required", "enum", "allOf"]),
        st.text() | st.integers(),
    ),
    error=st.none() | TEXT,
)
def test_any_trace_gives_signals_one_per_kind_and_short_and_never_raises(
    content: str,
    raw: str,
    name: str,
    attributes: dict[str, str],
    value: JsonValue,
    schema: dict[str, JsonValue],
    error: str | None,
) -> None:
    called = (ToolCall("f", read_arguments(raw), raw), ToolCall(name, None, raw))
    trace = Trace(
        "t",
        (
            Message(Role.USER, content),
            Message(Role.ASSISTANT, content, called),
            result(content),
            Message(Role.ASSISTANT, content),
        ),
        SOURCE,
        (ToolSpec("f", "", {"properties": {"a": dict(schema)}, **schema}),),
        error=error,
        feedback=(Feedback(name, value, "human", content), Feedback(name, value, "code")),
        expectations=(Expectation("answer", value),),
        attributes=attributes,
    )
    case = find_edge_case(trace)
    assert case is not None
    assert len({signal.kind for signal in case.signals}) == len(case.signals)
    assert all(len(signal.detail) <= 200 for signal in case.signals)
    assert 0.0 < case.severity < 1.0
