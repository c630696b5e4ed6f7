import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import LeakError
from pipelines.traces.checksums import digits_of, is_card_number, is_cpf, is_dni, is_iban
from pipelines.traces.json_text import read_arguments
from pipelines.traces.leaks import find_secrets, require_clean, scan
from pipelines.traces.model import (
    RAW_LIMIT_CHARS,
    Expectation,
    Feedback,
    Message,
    Rejection,
    RejectionReason,
    Role,
    Source,
    ToolCall,
    ToolSpec,
    Trace,
)
from pipelines.traces.redaction import RedactionPolicy, redact, redact_rejection, redact_text
from pipelines.traces.secrets import Kind

POLICY = RedactionPolicy()
KEY = b"k" * 32
SOURCE = Source("file", "f", "openai_chat")

# Keys are put together here so that no scanner takes this file for a leak.
SECRETS = {
    "openai": "sk-" + "proj-" + "aB3dE5gH7jK9mN1pQ3sT5vX7",
    "anthropic": "sk-" + "ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vX7",
    "aws": "AKIA" + "IOSFODNN7EXAMPL3",
    "github": "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9bC2dE4fG6",
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "huggingface": "hf_" + "aBcDeFgHiJ1kLmNoPqRsTuVwXyZ2aBcDeF",
    "slack": "xoxb-" + "123456789012-abcdefGHIJKL",
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N",
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\n-----END RSA " + "PRIVATE KEY-----",
}


def clean(text: str) -> str:
    return redact_text(text, POLICY, key=KEY)


BOB = clean("bob@acme.io")


def trace_of(request: str, arguments: dict[str, object], expected: dict[str, object]) -> Trace:
    raw = json.dumps(arguments)
    call = ToolCall("create_ticket", read_arguments(raw), raw, "c1")
    return Trace(
        id="t",
        messages=(
            Message(Role.USER, request),
            Message(Role.ASSISTANT, None, (call,)),
            Message(Role.TOOL, raw, tool_call_id="c1"),
        ),
        source=SOURCE,
        tools=(ToolSpec("create_ticket", "Write to bob@acme.io.", {"properties": {"password": {"type": "string"}}}),),
        feedback=(Feedback("thumbs", False, "human", f"about: {request}"),),
        expectations=(Expectation("expected_tool_call", {"name": "create_ticket", "arguments": expected}),),  # type: ignore[dict-item]
        user="ann@acme.io",
    )


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_replaced_and_the_second_scan_would_have_caught_it(name: str) -> None:
    secret = SECRETS[name]
    for text in (secret, f"use {secret} please", f"key={secret}\n", f'{{"k": "{secret}"}}'):
        assert secret not in clean(text)
        assert [f.is_secret for f in scan(text)] == [True]
        assert scan(clean(text)) == []


def test_a_secret_that_stays_stops_the_stage_without_being_printed() -> None:
    with pytest.raises(LeakError, match="row 1: a key") as caught:
        require_clean(["fine", f"oops {SECRETS['openai']}"], where="tasks.parquet")
    assert SECRETS["openai"] not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgres://app:s3cr3tpw@db.internal/shop", ["postgres://app:", "@db.internal/shop"]),
        ("Authorization: Bearer aB3dE5gH7jK9mN1pQ3sT", ["Authorization: Bearer "]),
        ("DB_PASSWORD=hunter2x9 make", ["DB_PASSWORD=", " make"]),
        ("'api_key': 'a1b2c3d4e5f6'", ["'api_key': '"]),
    ],
)
def test_only_the_secret_part_goes(text: str, kept: list[str]) -> None:
    assert clean(text) != text
    assert "REDACTED_" in clean(text)
    for part in kept:
        assert part in clean(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_output_tokens=4096, max_tokens: 256, completion_tokens=1234567890",
        "token = get_token(request1)",
        "password: str | None = None  # the user's password",
        "secret_key = os.environ['SECRET_KEY_2']",
        "tokenizer = AutoTokenizer.from_pretrained(path)",
        "commit 5f4dcc3b5aa765d61d8327deb882cf99aabbccdd and 7ee9ceb",
        "order 1234567890123, order #4111111111111111, ticket 555-123-4567, ORD-2024-000123",
        "total $1,234.56, refund 120.00 EUR, 1.000.000,00",
        "2026-11-30T21:00:24.404Z 12:34:56 1796072424404858908 20240102",
        "/usr/lib/python3.11/site-packages/foo/bar.py:123: in test_x2",
        "pip install foo==1.2.3.4 bar>=10.20.30.40, version 4.3.2.1, Chrome/120.0.6099.109",
        "127.0.0.1:8000 10.0.0.7 192.168.1.1 ::1",
        "git@github.com:acme/shop.git and user@host",
        "@@ -190,6 +190,9 @@ class A\n+12345678901\n+        if not name:",
        "123e4567-e89b-12d3-a456-426614174000",
        "sk-learn-is-a-long-package-name, ghp_short, https://user:${PASSWORD}@host/x",
        "00:1a:2b:3c:4d:5e std::vector<int> a::b",
        "diff --git a/token.py b/token.py\nindex eb50585..1aa8256 100644",
    ],
)
def test_code_ids_amounts_and_hashes_are_left_alone(text: str) -> None:
    assert clean(text) == text
    assert not any(finding.is_secret for finding in scan(text))


def test_personal_data_keeps_its_shape() -> None:
    assert re.fullmatch(r"mail [a-z]{4}\.[a-z]{6}@[a-z]{4}\.example", clean("mail bob.smith@acme.io"))
    card = clean("4111 1111 1111 1111")
    assert is_card_number(digits_of(card))
    assert [len(group) for group in card.split()] == [4, 4, 4, 4]
    assert is_iban(clean("DE89 3704 0044 0532 0130 00"))
    assert clean("IBAN DE89 3704 0044 0532 0130 00 OK NOW").endswith(" OK NOW")
    assert clean("+1 (212) 555-1234").startswith("+1555")
    assert clean("from 81.8.8.8").startswith("from 198.")


def test_one_value_has_one_pseudonym_however_it_is_written() -> None:
    assert clean("Bob@Acme.io") == clean("bob@acme.io") != clean("rob@acme.io")
    assert digits_of(clean("4111-1111-1111-1111")) == digits_of(clean("4111 1111 1111 1111"))
    assert clean("+1 212 555 1234") == clean("(212) 555-1234")
    assert redact_text("bob@acme.io", POLICY, key=b"other") != clean("bob@acme.io")


def test_request_call_result_and_expectation_still_agree_after_redaction() -> None:
    arguments: dict[str, object] = {"email": "bob@acme.io", "phone": "2125551234", "card": "4111111111111111", "order_id": 6471}
    request = "I am bob@acme.io, phone 212-555-1234, card 4111 1111 1111 1111, order 6471"
    trace = redact(trace_of(request, arguments, arguments), POLICY, key=KEY)
    call = trace.messages[1].tool_calls[0]
    expectation = trace.expectations[0].value
    assert isinstance(expectation, dict)
    assert call.arguments is not None
    assert call.arguments == expectation["arguments"] == read_arguments(call.raw_arguments)
    content = trace.messages[0].content or ""
    assert str(call.arguments["email"]) in content
    assert str(call.arguments["phone"]) in content
    assert digits_of(str(call.arguments["card"])) in content.replace(" ", "")
    assert call.arguments["order_id"] == 6471
    assert "acme.io" not in repr(trace)
    assert "4111" not in repr(trace)


def test_a_value_known_from_a_named_field_goes_everywhere_in_the_trace() -> None:
    trace = redact(trace_of("my pass phrase is hunter2secret", {"password": "hunter2secret"}, {}), POLICY, key=KEY)
    assert "hunter2secret" not in repr(trace)


def test_numbers_that_are_phone_numbers_stay_numbers() -> None:
    trace = redact(trace_of("x", {"phone": 2125551234, "amount": 2125551235}, {"phone": 2125551234}), POLICY, key=KEY)
    call = trace.messages[1].tool_calls[0]
    assert call.arguments is not None
    assert str(call.arguments["phone"]).startswith("1555")
    assert call.arguments["amount"] == 2125551235


def test_a_tool_schema_that_names_secrets_is_not_touched() -> None:
    trace = redact(trace_of("x", {}, {}), POLICY, key=KEY)
    assert trace.tools[0].parameters == {"properties": {"password": {"type": "string"}}}
    assert "acme" not in trace.tools[0].description


def test_redacting_twice_changes_nothing() -> None:
    text = "bob@acme.io +1 212 555 1234 4111111111111111 DE89370400440532013000 81.8.8.8 2607:f8b0:4005:805::200e " + " ".join(
        SECRETS.values()
    )
    assert clean(clean(text)) == clean(text)
    trace = redact(
        trace_of(text, {"note": text, "phone": "2125551234", "password": "hunter2secret"}, {"note": text}), POLICY, key=KEY
    )
    assert redact(trace, POLICY, key=KEY) == trace


def test_a_broken_argument_string_is_redacted_as_text() -> None:
    call = ToolCall("f", None, '{"email": "bob@acme.io', None)
    trace = Trace("t", (Message(Role.ASSISTANT, None, (call,)),), SOURCE)
    assert "acme" not in redact(trace, POLICY, key=KEY).messages[0].tool_calls[0].raw_arguments


def test_a_rejection_is_redacted_before_it_is_cut() -> None:
    raw = "x" * (RAW_LIMIT_CHARS - 20) + " " + SECRETS["openai"] + "y" * 4000
    kept = redact_rejection(Rejection(RejectionReason.UNREADABLE, "d", SOURCE, raw), POLICY, key=KEY).raw
    assert len(kept) <= RAW_LIMIT_CHARS
    assert "sk-" not in kept


def test_secrets_go_even_when_the_policy_names_no_kind() -> None:
    policy = RedactionPolicy(kinds=frozenset())
    text = redact_text(f"bob@acme.io {SECRETS['aws']}", policy, key=KEY)
    assert text.startswith("bob@acme.io REDACTED_")
    assert Kind.SECRET not in policy.kinds


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_can_be_redacted_and_scanned(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    scan(text)


@settings(max_examples=100, deadline=None)
@given(
    st.from_regex(r"[a-z]{3,8}\.[a-z]{3,8}@[a-z]{3,8}\.(com|org|io)", fullmatch=True),
    st.sampled_from(["{}", "<{}>", "({}),", "mailto:{}"]),
)
def test_no_email_survives_in_common_surroundings(email: str, around: str) -> None:
    assert email not in clean(around.format(email))


def test_a_secret_that_is_found_is_named_without_being_shown() -> None:
    secret = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5"

    found = find_secrets(["clean", f"see {secret} there"], where="sft.jsonl")

    assert len(found) == 1
    assert found[0].startswith("sft.jsonl, row 1: ")
    assert secret not in found[0]
    assert find_secrets(["clean"], where="sft.jsonl") == ()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (r'{"body": "{\"client_secret\": \"' + "0f" * 16 + r'\"}"}', r"\"client_secret\": \"REDACTED_"),
        (r"log: first line\nbob@acme.io\tok", r"log: first line\n" + BOB + r"\tok"),
        (r"\u003cbob@acme.io\u003e", r"\u003c" + BOB + r"\u003e"),
        ("GET /find?email=bob%40acme.io&page=2", f"email={BOB.replace('@', '%40')}&page=2"),
        ("GET /find?api_key=a1b2c3d4e5f6&page=2", "&page=2"),
        ("  - name: DB_PASSWORD\n    value: hunter2x9\n", "name: DB_PASSWORD\n    value: REDACTED_"),
    ],
)
def test_a_value_is_found_behind_escapes_and_what_is_around_it_stays(text: str, kept: str) -> None:
    assert kept in clean(text)
    assert clean(clean(text)) == clean(text)


def test_a_key_of_an_object_is_redacted_like_any_text() -> None:
    trace = redact(trace_of("x", {"seats": {"bob@acme.io": 3}}, {}), POLICY, key=KEY)
    assert "acme.io:" not in repr(trace)
    assert "bob@" not in repr(trace)


def test_a_card_written_as_a_number_becomes_another_card_number() -> None:
    arguments = redact(trace_of("x", {"card": 4111111111111111, "order_id": 4012888888881881}, {}), POLICY, key=KEY)
    call = arguments.messages[1].tool_calls[0]
    assert call.arguments is not None
    assert is_card_number(str(call.arguments["card"]))
    assert "1111111" not in str(call.arguments["card"])
    assert call.arguments["order_id"] == 4012888888881881
    assert read_arguments(call.raw_arguments) == call.arguments


def test_a_national_number_keeps_its_shape_and_is_nobodys() -> None:
    assert re.fullmatch(r"ssn 000-\d\d-\d{4}", clean("ssn 219-09-9999"))
    assert clean("CPF 529.982.247-25") != "CPF 529.982.247-25"
    assert not is_cpf(digits_of(clean("CPF 529.982.247-25")))
    assert not is_dni(clean("DNI 12345678Z").removeprefix("DNI "))
    assert clean("CPF 529.982.247-26") == "CPF 529.982.247-26"


@pytest.mark.parametrize(
    "text", ["\\" * 100_000, "@" * 100_000, "password " * 5000, "1 " * 50_000, "://a:" * 20_000, "a@a." * 25_000]
)
def test_a_hostile_text_takes_no_more_than_linear_time(text: str) -> None:
    started = time.process_time()
    clean(text)
    assert time.process_time() - started < 10
