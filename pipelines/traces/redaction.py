"""Redaction: secrets and personal data in a trace become stable pseudonyms before the trace leaves quarantine.

Owns what a pseudonym looks like and where text stands in a trace. The same value gets the same pseudonym all over a lake (keyed
hash), of the same shape as the value, so that an e-mail in a request, in the call's arguments and in the expectation still match
and the task stays solvable. Names of people in free text are not recognised. `leaks` checks the result by other means.
"""

import hmac
import re
from dataclasses import replace
from hashlib import sha256

from pydantic import BaseModel, ConfigDict, JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.json_text import read_arguments
from pipelines.traces.model import RAW_LIMIT_CHARS, Expectation, Feedback, Message, Rejection, ToolCall, ToolSpec, Trace
from pipelines.traces.secrets import PHONE_KEYS, SENSITIVE_KEYS, Kind, Match, digits_of, find_matches, is_card_number

FAKE_CARD_PREFIX = "40000000"
FAKE_IBAN_BANK = "EVLP"
FAKE_PHONE_PREFIX = "+1555"
_ALREADY = re.compile(r"user-(?:[bdfgklmnprstvz][aeiou]){4}@example\.com|REDACTED_[a-z_]+_[0-9a-f]{8}")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_MIN_KNOWN_CHARS = 6
"""A found value at least this long is replaced wherever it stands in the trace, context or not."""


class RedactionPolicy(BaseModel):
    """What is replaced."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: frozenset[Kind] = frozenset(Kind)
    """Kinds to replace; secrets are replaced whatever stands here."""


def redact(trace: Trace, policy: RedactionPolicy, *, key: bytes) -> Trace:
    """The trace with every text field, argument, result, judgement and expectation redacted. Redacting twice changes nothing.

    `key` is the lake's pseudonym key.
    """
    redactor = _Redactor(policy, key)
    redactor.learn_from(trace)
    return replace(
        trace,
        messages=tuple(_redact_message(message, redactor) for message in trace.messages),
        tools=tuple(_redact_tool(tool, redactor) for tool in trace.tools),
        error=redactor.optional(trace.error),
        feedback=tuple(_redact_feedback(item, redactor) for item in trace.feedback),
        expectations=tuple(_redact_expectation(item, redactor) for item in trace.expectations),
        conversation_id=redactor.optional(trace.conversation_id),
        user=redactor.optional(trace.user),
        attributes={name: redactor.text(value) for name, value in trace.attributes.items()},
    )


def redact_rejection(rejection: Rejection, policy: RedactionPolicy, *, key: bytes) -> Rejection:
    """The rejection with its raw text redacted, then cut to RAW_LIMIT_CHARS."""
    redactor = _Redactor(policy, key)
    return replace(rejection, detail=redactor.text(rejection.detail), raw=redactor.text(rejection.raw)[:RAW_LIMIT_CHARS])


def redact_text(text: str, policy: RedactionPolicy, *, key: bytes) -> str:
    return _Redactor(policy, key).text(text)


def pseudonym(match: Match, value: str, *, key: bytes) -> str:
    """What stands for a value: same kind and value, same pseudonym, whatever its spacing or case."""
    canonical = value if match.kind is Kind.SECRET else value.replace(" ", "").casefold()
    if match.kind in (Kind.PHONE, Kind.CARD):
        canonical = digits_of(value)
        canonical = (
            canonical[1:] if len(canonical) == 11 and canonical[0] == "1" else canonical
        )  # +1 before a North American number may be left out
    tag = hmac.new(key, f"{match.kind}:{canonical}".encode("utf-8", errors="replace"), sha256).hexdigest()
    number = str(int(tag, 16))
    match match.kind:
        case Kind.EMAIL:
            return f"user-{_syllables(int(tag, 16))}@example.com"
        case Kind.PHONE:
            return f"{FAKE_PHONE_PREFIX}{number[:7]}"
        case Kind.CARD:
            return _in_shape(value, _with_check_digit(FAKE_CARD_PREFIX + number[:7]))
        case Kind.IBAN:
            return _fake_iban(number)
        case Kind.IP:
            low = int(tag[:8], 16)
            if ":" in value:
                return f"2001:db8::{tag[:4]}:{tag[4:8]}"
            return f"198.{18 + low % 2}.{low // 2 % 256}.{low // 512 % 254 + 1}"  # RFC 2544: addresses that are nobody's
        case Kind.SECRET:
            return f"REDACTED_{match.label}_{tag[:8]}"


class _Redactor:
    """One trace's redaction: remembers the values found, so that a value is replaced where its context is missing too."""

    def __init__(self, policy: RedactionPolicy, key: bytes) -> None:
        self.kinds = policy.kinds | {Kind.SECRET}
        self.key = key
        self.known: dict[str, str] = {}
        self.pattern: re.Pattern[str] | None = None

    def learn_from(self, trace: Trace) -> None:
        for text in (trace.error, trace.user, *trace.attributes.values()):
            self.learn(text)
        for message in trace.messages:
            self.learn(message.content)
            for call in message.tool_calls:
                self.learn(call.raw_arguments if call.arguments is None else call.arguments)
        for value in (*(item.value for item in trace.feedback), *(item.value for item in trace.expectations)):
            self.learn(value)

    def learn(self, value: JsonValue, name: str = "") -> None:
        """Remember what must go in a value that stands under the key `name`."""
        if isinstance(value, dict):
            for key, item in value.items():
                self.learn(item, key)
        elif isinstance(value, list):
            for item in value:
                self.learn(item, name)
        elif isinstance(value, str):
            field = self._field_match(name, value)
            for match in [field] if field else self._matches(value):
                self._remember(match, value[match.start : match.end])

    def text(self, text: str) -> str:
        pieces: list[str] = []
        position = 0
        for match in self._matches(text):
            pieces += [text[position : match.start], self._stand_in(match, text[match.start : match.end])]
            position = match.end
        return self._replace_known("".join(pieces) + text[position:])

    def optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def value(self, value: JsonValue, name: str = "") -> JsonValue:
        """Redact inside JSON; `name` is the key the value stands under."""
        if isinstance(value, dict):
            return {key: self.value(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, name) for item in value]
        if not isinstance(value, str):
            return self._number(value, name)
        field = self._field_match(name, value)
        return self._stand_in(field, value) if field else self.text(value)

    def _field_match(self, name: str, value: str) -> Match | None:
        """The value as a whole, where the name of its field says what it is."""
        if name.casefold() in SENSITIVE_KEYS and value and not _ALREADY.fullmatch(value):
            return Match(Kind.SECRET, 0, len(value), "password")
        return Match(Kind.PHONE, 0, len(value), "phone") if self._is_phone_field(name, value) else None

    def _remember(self, match: Match, value: str) -> None:
        """A secret that is a plain word ("postgres") stands for itself elsewhere and is not looked for there."""
        is_distinct = any(c.isdigit() for c in value) and (match.kind is not Kind.SECRET or any(c.isalpha() for c in value))
        if len(value) >= _MIN_KNOWN_CHARS and (is_distinct or match.kind is Kind.EMAIL):
            self.known.setdefault(value, pseudonym(match, value, key=self.key))
            self.pattern = None

    def _stand_in(self, match: Match, value: str) -> str:
        return self.known.get(value) or pseudonym(match, value, key=self.key)

    def _matches(self, text: str) -> list[Match]:
        found = find_matches(text)
        return [m for m in found if m.kind in self.kinds and not _is_pseudonym(m, text[m.start : m.end])]

    def _replace_known(self, text: str) -> str:
        if not self.known:
            return text
        if self.pattern is None:
            values = sorted(self.known, key=len, reverse=True)
            self.pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, values))})(?!\w)")
        return self.pattern.sub(lambda m: self.known[m[0]], text)

    def _number(self, value: JsonValue, name: str) -> JsonValue:
        """A number stays a number, except a phone or card number written as one, which becomes its pseudonym's digits."""
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        text = str(value)
        if self._is_phone_field(name, text):
            return int(digits_of(pseudonym(Match(Kind.PHONE, 0, 0, "phone"), text, key=self.key)))
        if text in self.known:
            return int(digits_of(self.known[text]) or 0)
        return value

    def _is_phone_field(self, name: str, value: str) -> bool:
        is_number = 7 <= len(digits_of(value)) <= 15 and re.fullmatch(r"[\d\s.()+-]+", value) is not None
        return (
            Kind.PHONE in self.kinds and name.casefold() in PHONE_KEYS and is_number and not digits_of(value).startswith("1555")
        )


def _redact_message(message: Message, redactor: _Redactor) -> Message:
    calls = tuple(_redact_call(call, redactor) for call in message.tool_calls)
    return replace(message, content=redactor.optional(message.content), tool_calls=calls)


def _redact_call(call: ToolCall, redactor: _Redactor) -> ToolCall:
    """The raw string keeps its spelling when redacting it as text gives the same arguments, else it is written anew."""
    raw = redactor.text(call.raw_arguments)
    if call.arguments is None:
        return replace(call, raw_arguments=raw)
    arguments = redactor.value(call.arguments)
    assert isinstance(arguments, dict)
    if arguments == call.arguments:
        return call
    return replace(
        call, arguments=arguments, raw_arguments=raw if read_arguments(raw) == arguments else to_json(arguments).decode()
    )


def _redact_tool(tool: ToolSpec, redactor: _Redactor) -> ToolSpec:
    parameters = _redact_schema(tool.parameters, redactor)
    assert isinstance(parameters, dict)
    return replace(tool, description=redactor.text(tool.description), parameters=parameters)


def _redact_schema(value: JsonValue, redactor: _Redactor) -> JsonValue:
    """A JSON Schema's keys name things: {"password": {"type": "string"}} holds no password."""
    if isinstance(value, dict):
        return {key: _redact_schema(item, redactor) for key, item in value.items()}
    if isinstance(value, list):
        return [_redact_schema(item, redactor) for item in value]
    return redactor.text(value) if isinstance(value, str) else value


def _redact_feedback(item: Feedback, redactor: _Redactor) -> Feedback:
    return replace(item, value=redactor.value(item.value), rationale=redactor.optional(item.rationale))


def _redact_expectation(item: Expectation, redactor: _Redactor) -> Expectation:
    return replace(item, value=redactor.value(item.value), author=redactor.optional(item.author))


def _is_pseudonym(match: Match, value: str) -> bool:
    digits = digits_of(value)
    match match.kind:
        case Kind.PHONE:
            return digits.startswith("1555") and len(digits) == 11
        case Kind.CARD:
            return digits.startswith(FAKE_CARD_PREFIX)
        case Kind.IBAN:
            return FAKE_IBAN_BANK in value
        case _:
            return _ALREADY.fullmatch(value) is not None or value.startswith(("198.18.", "198.19."))


def _syllables(number: int) -> str:
    """Four syllables, 24 million names: a small model copies them in a few tokens, where it trips over hex digits."""
    text = ""
    for _ in range(4):
        number, consonant = divmod(number, len(_CONSONANTS))
        number, vowel = divmod(number, len(_VOWELS))
        text += _CONSONANTS[consonant] + _VOWELS[vowel]
    return text


def _with_check_digit(digits: str) -> str:
    return next(digits + str(last) for last in range(10) if is_card_number(digits + str(last)))


def _in_shape(value: str, digits: str) -> str:
    """The digits with the separators of the original when it has sixteen digits too."""
    if len(digits_of(value)) != len(digits):
        return digits
    fresh = iter(digits)
    return "".join(next(fresh) if c.isdecimal() else c for c in value)


def _fake_iban(number: str) -> str:
    account = FAKE_IBAN_BANK + number[:14]
    remainder = int("".join(str(int(c, 36)) for c in account + "GB00")) % 97
    return f"GB{98 - remainder:02d}{account}"
