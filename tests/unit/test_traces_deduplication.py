from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.deduplication import drop_exact_duplicates, near_duplicate_groups, normalise, similarity, user_text
from pipelines.traces.model import Message, Role, Source, Trace

SOURCE = Source("file", "a", "openai_chat")
TRACE = Trace("1", (Message(Role.USER, "hello"), Message(Role.ASSISTANT, "hi")), SOURCE)


def test_the_same_run_read_from_two_places_is_kept_once() -> None:
    again = replace(TRACE, source=replace(SOURCE, location="b", position=7))
    other = replace(TRACE, id="2")
    assert drop_exact_duplicates([TRACE, again, other]) == ([TRACE, other], 1)


def test_values_are_no_wording() -> None:
    assert normalise("Refund order #6471, mail bob@acme.io!") == normalise("refund ORDER 12, mail ann@shop.org")
    assert near_duplicate_groups(["Refund order 6471 now", "refund order 99 now.", "Where is my parcel?"]) == [0, 0, 1]


def test_close_wordings_are_grouped_and_different_ones_are_not() -> None:
    texts = [
        "Could you please refund my order 17 as soon as possible",
        "Could you please refund my order 18 as soon as possible?",
        "I want my money back for order 17",
        "Could you please cancel my subscription to the newsletter",
    ]
    assert near_duplicate_groups(texts, 0.8) == [0, 0, 1, 2]


def test_groups_are_numbered_in_order_and_the_same_on_every_run() -> None:
    texts = [
        f"{verb} the {noun} for me today please"
        for verb in ("refund", "cancel", "send")
        for noun in ("order", "parcel", "invoice")
    ]
    groups = near_duplicate_groups(texts, 0.7)
    assert groups == near_duplicate_groups(texts, 0.7)
    assert sorted(set(groups)) == list(range(max(groups) + 1))
    assert near_duplicate_groups([]) == []
    assert near_duplicate_groups(["", ""]) == [0, 0]


WORDS = st.sampled_from(["refund", "cancel", "order", "parcel", "my", "the", "please", "now", "where", "is"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=8), max_size=25))
def test_every_pair_at_the_threshold_is_grouped(words: list[list[str]]) -> None:
    texts = [" ".join(line) for line in words]
    groups = near_duplicate_groups(texts, 0.8)
    for one, other in combinations(range(len(texts)), 2):
        if similarity(texts[one], texts[other]) >= 0.8:
            assert groups[one] == groups[other]


def test_the_request_of_a_trace_is_its_last_user_message() -> None:
    messages = (
        Message(Role.USER, "first"),
        Message(Role.ASSISTANT, "a"),
        Message(Role.USER, "second"),
        Message(Role.ASSISTANT, "b"),
    )
    assert user_text(replace(TRACE, messages=messages)) == "second"
