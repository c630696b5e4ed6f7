import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from pipelines.artifacts import to_json
from pipelines.errors import ConfigError
from pipelines.rewards.model import RewardTask, Split
from pipelines.rewards.verifiers import verify
from pipelines.rewards.verifiers.tool_call import ARGUMENTS_WEIGHT, FORMAT_WEIGHT, TOOL_WEIGHT, equal_values
from pipelines.traces.model import Message, Role, ToolCall

REFUND: dict[str, JsonValue] = {"order_id": "A-1001", "amount": 5}


def task(arguments: dict[str, JsonValue] | None = None, *, verifier: str = "tool_call") -> RewardTask:
    return RewardTask(
        id="t1",
        kind="tool_call",
        prompt=(Message(Role.USER, "refund it"),),
        tools=(),
        verifier=verifier,
        arguments=arguments or {"name": "refund", "arguments": REFUND},
        split=Split.TRAIN,
        group="",
        cluster="",
        provenance=("tr-1",),
    )


def call(name: str, arguments: dict[str, JsonValue] | None, raw: str | None = None) -> ToolCall:
    return ToolCall(name, arguments, raw if raw is not None else str(arguments))


def answer(*calls: ToolCall, content: str | None = None) -> Message:
    return Message(Role.ASSISTANT, content, calls)


def score(message: Message) -> float:
    result = verify(task(), message).score
    assert result is not None
    return result


def test_the_right_call_passes_with_exactly_one() -> None:
    verdict = verify(task(), answer(call("refund", {"amount": 5.0, "order_id": "  a-1001 "}), content="Sure."))
    assert verdict.passed
    assert verdict.score == 1.0
    assert verdict.components == {"format": 1.0, "tool": 1.0, "arguments": 1.0}


def test_doing_nothing_scores_zero_whatever_it_says() -> None:
    for message in (answer(), answer(content="I refunded A-1001."), answer(content='<tool_call>{"name": "refund"')):
        assert score(message) == 0.0


def test_partial_scores_rise_with_every_part_that_is_right() -> None:
    ladder = [
        score(answer()),
        score(answer(call("lookup", REFUND))),
        score(answer(call("refund", {}))),
        score(answer(call("refund", {"order_id": "A-1001"}))),
        score(answer(call("refund", REFUND))),
    ]
    assert ladder == [
        0.0,
        FORMAT_WEIGHT,
        FORMAT_WEIGHT + TOOL_WEIGHT,
        FORMAT_WEIGHT + TOOL_WEIGHT + ARGUMENTS_WEIGHT / 2,
        1.0,
    ]


def test_extra_arguments_count_against_the_answer() -> None:
    verdict = verify(task(), answer(call("refund", {**REFUND, "note": "x"})))
    assert not verdict.passed
    assert verdict.components["arguments"] == pytest.approx(2 / 3)


def test_guessing_with_many_calls_pays_less_than_one_call() -> None:
    right, wrong = call("refund", REFUND), call("lookup", {"order_id": "A-1001"})
    assert score(answer(right, wrong)) < score(answer(call("refund", {"order_id": "A-1001"})))
    assert not verify(task(), answer(right, right)).passed


def test_arguments_that_are_not_an_object_score_zero() -> None:
    assert score(answer(call("refund", None, '{"order_id": "A-10'))) == 0.0


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        (5, 5.0, True),
        (5, "5", False),
        (1, True, False),
        (0, False, False),
        ("Straße  1", "STRASSE 1", True),
        ("ﬁne", "fine", True),
        (None, None, True),
        (None, "", False),
        ([1, 2], [2, 1], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (1e308, 10**400, False),
        (float("nan"), float("nan"), False),
    ],
)
def test_argument_values_are_equal_by_meaning_and_type(expected: JsonValue, actual: JsonValue, equal: bool) -> None:
    assert equal_values(expected, actual) is equal


def test_case_can_be_made_to_matter() -> None:
    arguments: dict[str, JsonValue] = {"name": "refund", "arguments": REFUND, "case_sensitive": True}
    assert not verify(task(arguments), answer(call("refund", {**REFUND, "order_id": "a-1001"}))).passed


def test_a_very_deep_answer_gets_a_verdict_with_encodable_evidence() -> None:
    deep: JsonValue = "x"
    for _ in range(100_000):
        deep = [deep]
    verdict = verify(task(), answer(call("refund\ud800", {}, "\ud800" * 10_000), call("refund", {"order_id": deep}, "deep")))
    assert verdict.passed is False
    assert len(to_json(verdict)) < 2000
    assert verify(task(), answer(call("refund", {"order_id": deep}, "deep"))).passed is False


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
CALLS = st.builds(
    ToolCall,
    name=st.sampled_from(["refund", "lookup"]) | st.text(),
    arguments=st.none() | st.dictionaries(st.sampled_from(["order_id", "amount"]) | st.text(), JSON, max_size=5),
    raw_arguments=st.text(st.characters(codec=None)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CALLS, max_size=4), st.none() | st.text())
def test_any_answer_gets_a_score_in_range_and_only_a_pass_gets_one(calls: list[ToolCall], content: str | None) -> None:
    verdict = verify(task(), answer(*calls, content=content))
    assert verdict.score is not None
    assert 0.0 <= verdict.score <= 1.0
    assert verdict.passed is (verdict.score == 1.0)
    assert all(0.0 <= part <= 1.0 for part in verdict.components.values())
    orjson.dumps(verdict.evidence)


@given(st.dictionaries(st.text(max_size=8), JSON.filter(lambda v: "nan" not in repr(v)), max_size=5))
def test_an_expected_call_always_passes_itself(arguments: dict[str, JsonValue]) -> None:
    assert verify(task({"name": "t", "arguments": arguments}), answer(call("t", arguments))).passed


@pytest.mark.parametrize("bad", [{"name": "refund"}, {"name": "", "arguments": {}}, {"name": "r", "arguments": {}, "typo": 1}])
def test_arguments_the_verifier_cannot_use_are_a_config_error(bad: dict[str, JsonValue]) -> None:
    with pytest.raises(ConfigError, match="task t1: verifier 'tool_call' cannot use"):
        verify(task(bad), answer())


def test_an_unknown_verifier_is_a_config_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="have tool_call"):
        verify(task(verifier="reward_hack"), answer())
    with pytest.raises(ConfigError, match="has no Options and no verify"):
        verify(task(verifier="math:pi"), answer())
