"""The product's promise about redaction, on the labelled corpus: both sets of wordings, two seeds."""

import json
from functools import cache

import pytest

from infra.benchmarks._privacy_values import Group
from infra.benchmarks.bench_privacy import Measurement, as_table, as_trace, measure, redacted
from infra.benchmarks.privacy_corpus import DEVELOPMENT, HELD_OUT, Corpus, build_corpus
from pipelines.traces.model import Message, Role, Source, ToolCall, Trace
from pipelines.traces.redaction import RedactionPolicy, redact, redact_text

KEY = b"k" * 32
SAMPLES = [(seed, wordings) for seed in (0, 1) for wordings in (DEVELOPMENT, HELD_OUT)]


@cache
def corpus(seed: int, wordings: int) -> Corpus:
    return build_corpus(seed, wordings)


@cache
def measured(seed: int, wordings: int) -> Measurement:
    return measure(corpus(seed, wordings))


@pytest.mark.parametrize(("seed", "wordings"), SAMPLES)
def test_the_corpus_is_large_and_the_same_for_the_same_seed(seed: int, wordings: int) -> None:
    assert len(corpus(seed, wordings).planted) >= 300
    assert len(corpus(seed, wordings).look_alikes) >= 300
    assert build_corpus(seed, wordings) == corpus(seed, wordings)
    assert build_corpus(seed + 1, wordings) != corpus(seed, wordings)


@pytest.mark.parametrize(("seed", "wordings"), SAMPLES)
def test_secrets_and_personal_data_are_found_and_look_alikes_stay(seed: int, wordings: int) -> None:
    result = measured(seed, wordings)
    assert result.recall(Group.SECRET) >= 0.99, [item.text for item in result.missed]
    assert result.recall(Group.PERSONAL) >= 0.95, [item.text for item in result.missed]
    assert result.changed_share <= 0.01, [item.text for item in result.changed]
    assert len(result.damaged) <= 0.01 * result.planted.total(), [item.text for item in result.damaged]


@pytest.mark.parametrize(("seed", "wordings"), SAMPLES)
def test_the_second_scan_does_not_stop_at_what_redaction_leaves(seed: int, wordings: int) -> None:
    missed = {item.text for item in measured(seed, wordings).missed}
    assert set(measured(seed, wordings).stopped) <= missed


@pytest.mark.parametrize(("seed", "wordings"), SAMPLES)
def test_redacting_the_corpus_twice_changes_nothing(seed: int, wordings: int) -> None:
    policy = RedactionPolicy()
    for item in corpus(seed, wordings).planted:
        once = redact(as_trace(item), policy, key=KEY)
        assert redact(once, policy, key=KEY) == once, item.text
        text = redact_text(item.text, policy, key=KEY)
        assert redact_text(text, policy, key=KEY) == text, item.text


def test_a_value_has_one_pseudonym_in_prose_in_arguments_and_in_a_result() -> None:
    for item in corpus(0, DEVELOPMENT).planted:
        if "\\" in item.value or "%" in item.value or item.place != "content":
            continue
        raw = json.dumps({"note": item.text})
        call = ToolCall("save", {"note": item.text}, raw, "c1")
        messages = (
            Message(Role.USER, item.text),
            Message(Role.ASSISTANT, None, (call,)),
            Message(Role.TOOL, item.text, tool_call_id="c1"),
        )
        trace = redact(Trace("t", messages, Source("file", "f", "openai_chat")), RedactionPolicy(), key=KEY)
        assert trace.messages[0].content == trace.messages[2].content
        assert trace.messages[1].tool_calls[0].arguments == {"note": trace.messages[0].content}, item.text


def test_the_table_names_every_kind_and_shows_no_planted_value() -> None:
    result = measured(0, DEVELOPMENT)
    table = as_table(result)
    assert all(f"| {kind} |" in table for kind in result.planted)
    assert not any(item.value in table for item in corpus(0, DEVELOPMENT).planted)
    assert redacted(corpus(0, DEVELOPMENT).look_alikes[0]) == corpus(0, DEVELOPMENT).look_alikes[0].text
