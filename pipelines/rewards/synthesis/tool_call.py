"""Task kind `tool_call`: a person said which call the agent should have made; the task is to make it.

The failing turn is where the prompt ends. It is, among the assistant turns after the last user message, the first that calls the
expected tool, else the first of all; an expectation may name another one by `turn`, counting the assistant messages of the
trace from 0. It refuses to guess a call nobody gave.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from pipelines.rewards.synthesis import EMPTY_ANSWER, Draft, Skip, SkipReason
from pipelines.traces.model import EdgeCase, Message, Role, ToolCall, ToolSpec, Trace


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    expectation: str = "expected_tool_call"
    """Name of the expectation that holds the call: {name, arguments}, optionally with `turn`; or a list of one."""
    case_sensitive: bool = False
    """Whether string arguments that differ only in case are different."""


class ExpectedCall(BaseModel):
    """The call as a person wrote it down; other people's extra keys are tolerated."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str = Field(min_length=1)
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    turn: int | None = Field(None, ge=0)
    """Which assistant message of the trace should have been this call; None: found by the rule above."""


def synthesize(case: EdgeCase, options: Options) -> Draft | Skip:
    """Make a draft of an edge case whose expectation is a valid call of an offered tool."""
    trace = case.trace
    values = [e.value for e in trace.expectations if e.name == options.expectation]
    if not values:
        return Skip(SkipReason.NO_EXPECTATION, f"no expectation named {options.expectation}", trace.id)
    # Expectations are kept in the order given: the last is the one that stands.
    expected = _read_expectation(values[-1], trace.id)
    if isinstance(expected, Skip):
        return expected
    problem = _check_against_tools(expected, trace.tools)
    if problem is not None:
        return Skip(problem[0], problem[1], trace.id)
    prompt, failed = _split_at_failing_turn(trace, expected)
    if not any(m.role is Role.USER for m in prompt):
        return Skip(SkipReason.NO_PROMPT, "no user message before the failing turn", trace.id)
    try:
        raw = orjson.dumps(expected.arguments).decode()
    except TypeError as error:
        return Skip(SkipReason.NOT_SERIALISABLE, str(error), trace.id)
    arguments: dict[str, JsonValue] = {"name": expected.name, "arguments": expected.arguments}
    if options.case_sensitive:
        arguments["case_sensitive"] = True
    return Draft(
        prompt=prompt,
        tools=trace.tools,
        verifier="tool_call",
        arguments=arguments,
        reference=Message(Role.ASSISTANT, None, (ToolCall(expected.name, expected.arguments, raw),)),
        reference_source="correction",
        failed=failed,
    )


def _read_expectation(value: JsonValue, trace_id: str) -> ExpectedCall | Skip:
    """Accept an object, a list of one, an OpenAI-style {function: {...}}, and any of these as a JSON string."""
    try:
        unpacked = _unpack(value)
        if isinstance(unpacked, list):
            if len(unpacked) != 1:
                return Skip(SkipReason.SEVERAL_CALLS, f"{len(unpacked)} calls expected; this kind checks exactly one", trace_id)
            unpacked = _unpack(unpacked[0])
        if isinstance(unpacked, dict) and isinstance(unpacked.get("function"), dict):
            unpacked = unpacked["function"]
        if isinstance(unpacked, dict) and isinstance(unpacked.get("arguments"), str):
            unpacked = {**unpacked, "arguments": _unpack(unpacked["arguments"])}
        return ExpectedCall.model_validate(unpacked)
    except orjson.JSONDecodeError as error:
        return Skip(SkipReason.UNREADABLE_EXPECTATION, f"not JSON: {error}", trace_id)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "value"
        return Skip(SkipReason.UNREADABLE_EXPECTATION, f"{where}: {first['msg']}", trace_id)


def _unpack(value: Any) -> Any:
    return orjson.loads(value) if isinstance(value, str) else value


def _check_against_tools(expected: ExpectedCall, tools: tuple[ToolSpec, ...]) -> tuple[SkipReason, str] | None:
    tool = next((t for t in tools if t.name == expected.name), None)
    if tool is None:
        return SkipReason.UNKNOWN_TOOL, f"{expected.name!r}; offered {', '.join(t.name for t in tools) or 'none'}"
    schema: Mapping[str, Any] = tool.parameters
    try:
        validator = _validator(orjson.dumps(schema))
        problems = sorted(validator.iter_errors(expected.arguments), key=lambda e: list(map(str, e.path)))
    except SchemaError as error:
        return SkipReason.UNUSABLE_SCHEMA, f"tool {tool.name}: {error.message}"
    except (Unresolvable, TypeError) as error:
        return SkipReason.UNUSABLE_SCHEMA, f"tool {tool.name}: {error}"
    if problems:
        where = ".".join(map(str, problems[0].path)) or "arguments"
        return SkipReason.INVALID_EXPECTATION, f"tool {tool.name}, {where}: {problems[0].message}"
    undeclared = _undeclared_arguments(schema, expected.arguments)
    if undeclared:
        return SkipReason.INVALID_EXPECTATION, f"tool {tool.name} has no argument {', '.join(undeclared)}"
    return None


@lru_cache(maxsize=256)
def _validator(schema_json: bytes) -> Draft202012Validator:
    """Checking a schema takes milliseconds and traces repeat the same few."""
    schema = orjson.loads(schema_json)
    Draft202012Validator.check_schema(schema)
    # An empty registry: a reference to another document is an error, never a download.
    return Draft202012Validator(schema, registry=Registry())


def _undeclared_arguments(schema: Mapping[str, Any], arguments: Mapping[str, JsonValue]) -> list[str]:
    """Names the schema does not list. JSON Schema allows them by default; in a correction they are slips of the pen."""
    if "properties" not in schema or schema.get("additionalProperties") or "patternProperties" in schema:
        return []
    return sorted(arguments.keys() - schema["properties"].keys())


def _split_at_failing_turn(trace: Trace, expected: ExpectedCall) -> tuple[tuple[Message, ...], Message]:
    messages = trace.messages
    turns = [i for i, m in enumerate(messages) if m.role is Role.ASSISTANT]
    if expected.turn is not None and expected.turn < len(turns):
        at = turns[expected.turn]
        return messages[:at], messages[at]
    last_user = max((i for i, m in enumerate(messages) if m.role is Role.USER), default=-1)
    after = [i for i in turns if i > last_user]
    if not after:
        return messages, EMPTY_ANSWER
    at = next((i for i in after if any(c.name == expected.name for c in messages[i].tool_calls)), after[0])
    return messages[:at], messages[at]
