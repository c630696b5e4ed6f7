"""Redaction: secrets and personal data in a trace become stable pseudonyms before the trace leaves quarantine.

Owns what a pseudonym looks like and where text stands in a trace. The same value gets the same pseudonym all over a lake (keyed
hash), of the same shape as the value, so that an e-mail in a request, in the call's arguments and in the expectation still match
and the task stays solvable. Names of people in free text are not recognised. `leaks` checks the result by other means.
"""

import re
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, JsonValue

from pipelines.artifacts import to_json
from pipelines.traces.checksums import digits_of
from pipelines.traces.json_text import read_arguments
from pipelines.traces.model import RAW_LIMIT_CHARS, Expectation, Feedback, Message, Rejection, ToolCall, ToolSpec, Trace
from pipelines.traces.personal_data import find_personal_data, is_phone_name
from pipelines.traces.pseudonyms import is_pseudonym, pseudonym
from pipelines.traces.secrets import Kind, Match, find_secrets, is_placeholder, is_secret_name

_ESCAPE = re.compile(
    r"""(?<!\\)\\{1,16}(?:u00(?P<code>[2-7][0-9a-fA-F])|[nrt"'])|(?<==)%(?P<plus>2B)|%(?P<percent>0A|2[02789C]|3[CE])"""
)
_MIN_DISTINCT_CHARS = 20
"""A secret at least this long is no plain word."""
_MIN_NUMBER_DIGITS = 9
"""Fewer are nobody's number."""
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


def find_matches(text: str) -> list[Match]:
    """Everything in the text that must go, in order, without overlaps; the earlier and longer one wins."""
    plain = _without_escapes(text)
    found = sorted((*find_secrets(plain), *find_personal_data(plain)), key=lambda m: (m.start, m.kind is not Kind.SECRET, -m.end))
    kept: list[Match] = []
    for match in found:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
    return kept


class _Redactor:
    """One trace's redaction: remembers the values found, so that a value is replaced where its context is missing too."""

    def __init__(self, policy: RedactionPolicy, key: bytes) -> None:
        self.kinds = policy.kinds | {Kind.SECRET}
        self.key = key
        self.known: dict[str, str] = {}
        self.pattern: re.Pattern[str] | None = None
        self.found: dict[tuple[str, str], list[Match]] = {}

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
                self.learn(key)
                self.learn(item, key)
        elif isinstance(value, list):
            for item in value:
                self.learn(item, name)
        elif isinstance(value, str):
            field = self._field_match(name, value)
            for match in [field] if field else self._matches(value, name):
                self._remember(match, value[match.start : match.end])

    def text(self, text: str, name: str = "") -> str:
        pieces: list[str] = []
        position = 0
        for match in self._matches(text, name):
            pieces += [text[position : match.start], self._stand_in(match, text[match.start : match.end])]
            position = match.end
        return self._replace_known("".join(pieces) + text[position:])

    def optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def value(self, value: JsonValue, name: str = "") -> JsonValue:
        """Redact inside JSON; `name` is the key the value stands under."""
        if isinstance(value, dict):
            return {self.text(key): self.value(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, name) for item in value]
        if not isinstance(value, str):
            return self._number(value, name)
        field = self._field_match(name, value)
        return self._stand_in(field, value) if field else self.text(value, name)

    def _field_match(self, name: str, value: str) -> Match | None:
        """The value as a whole, where the name of its field says what it is."""
        if is_secret_name(name) and value and not is_placeholder(value):
            return Match(Kind.SECRET, 0, len(value), "password")
        return Match(Kind.PHONE, 0, len(value), "phone") if self._is_phone_field(name, value) else None

    def _remember(self, match: Match, value: str) -> None:
        """A secret that is a plain word ("postgres") stands for itself elsewhere and is not looked for there."""
        is_distinct = any(c.isdigit() for c in value) and (match.kind is not Kind.SECRET or any(c.isalpha() for c in value))
        is_distinct = is_distinct or len(value) >= _MIN_DISTINCT_CHARS
        if len(value) >= _MIN_KNOWN_CHARS and (is_distinct or match.kind is Kind.EMAIL):
            self.known.setdefault(value, pseudonym(match, value, key=self.key))
            self.pattern = None

    def _stand_in(self, match: Match, value: str) -> str:
        return self.known.get(value) or pseudonym(match, value, key=self.key)

    def _matches(self, text: str, name: str = "") -> list[Match]:
        """Each text is looked through once, though it is first learned from and then redacted; its field's name is context."""
        if (name, text) not in self.found:
            shift = len(name) + 2 if name else 0
            found = find_matches(f"{name}: {text}" if name else text)
            inside = (replace(m, start=m.start - shift, end=m.end - shift) for m in found if m.start >= shift)
            self.found[name, text] = [m for m in inside if m.kind in self.kinds and not is_pseudonym(m, text[m.start : m.end])]
        return self.found[name, text]

    def _replace_known(self, text: str) -> str:
        if not self.known:
            return text
        if self.pattern is None:
            values = sorted(self.known, key=len, reverse=True)
            self.pattern = re.compile(rf"(?:(?<!\w)|(?<=\\[nrt])|(?<=\\u00\w\w))(?:{'|'.join(map(re.escape, values))})(?!\w)")
        return self.pattern.sub(lambda m: self.known[m[0]], text)

    def _number(self, value: JsonValue, name: str) -> JsonValue:
        """A number stays a number, except a phone, card or national number written as one: it becomes its pseudonym's digits."""
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        text = str(value)
        if self._is_phone_field(name, text):
            return int(digits_of(pseudonym(Match(Kind.PHONE, 0, 0, "phone"), text, key=self.key)))
        if len(text) < _MIN_NUMBER_DIGITS:
            return value
        redacted = self.text(text, name)
        return value if redacted == text else int(digits_of(redacted) or 0)

    def _is_phone_field(self, name: str, value: str) -> bool:
        is_number = 7 <= len(digits_of(value)) <= 15 and re.fullmatch(r"[\d\s.()+-]+", value) is not None
        return Kind.PHONE in self.kinds and is_phone_name(name) and is_number and not digits_of(value).startswith("1555")


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
    if arguments == call.arguments and raw == call.raw_arguments:
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


def _without_escapes(text: str) -> str:
    """The text with the escapes of JSON and of URLs blanked out in place, so that a value after one begins a word."""
    return _ESCAPE.sub(_blank, text) if "\\" in text or "%" in text else text


def _blank(match: re.Match[str]) -> str:
    code = match["code"] or match["plus"] or match["percent"]
    character = chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t"}.get(match[0][-1], match[0][-1])
    return character.rjust(len(match[0]), character if character in "\"'" else " ")
