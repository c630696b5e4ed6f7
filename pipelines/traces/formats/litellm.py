"""LiteLLM's logs of single model calls: OpenHands' call files, LiteLLM's StandardLoggingPayload, and rows of its spend log.

Field names as in LiteLLM's logging specification and `litellm/types/utils.py`, and in `openhands/sdk/llm/utils/telemetry.py`.
Request and response are OpenAI's, and read as such. Each call is a run: what ties calls together is a session's id, if any.

Where a model is not given tools, OpenHands writes them into the prompt, and the model its calls into text. The log then has that
text (`messages`, `raw_response`) and its translation (`raw_messages`, `response`); read is the text, which is what the model saw
and wrote, without tools, as none were offered. A raw answer that made calls was no text, and is logged without their contents:
they are then read from `response`. OpenHands' timestamp is taken after the answer. A cost of 0 says that no price was known, and
the token counts of a failed call are 0 whatever was sent: both are unknown. Bodies may be JSON in strings. Embeddings and other
calls without a chat are refused.
"""

from dataclasses import replace
from datetime import timedelta

from pydantic import JsonValue

from pipelines.traces.formats import openai_chat
from pipelines.traces.json_text import unwrap
from pipelines.traces.model import Outcome, Source, Trace, Usage
from pipelines.traces.openai_messages import as_dict, as_list, as_text, is_message_list, read_usage
from pipelines.traces.timestamps import read_time

Fields = dict[str, JsonValue]

_COST_MARKS = ("response_cost", "spend", "model_map_information", "hidden_params", "response_cost_failure_debug_info")
_MAX_DURATION_S = 10 * 365 * 86400.0
_MAX_COUNT = 1 << 40
"""No call has so many tokens; a larger count is damage."""


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    return 2 if _is_openhands(fields) or _is_payload(_payload(fields)) else 0


def parse(record: JsonValue, source: Source) -> Trace:
    fields = as_dict(record)
    try:
        return _openhands_call(fields, source) if _is_openhands(fields) else _logged_call(_payload(fields), source)
    except TypeError as error:  # orjson's: it writes fewer levels than the parser reads
        raise ValueError("nested too deeply") from error


def _is_openhands(fields: Fields) -> bool:
    is_call = "latency_sec" in fields and isinstance(fields.get("messages"), list)
    return is_call and ("context_window" in fields or "cost" in fields or "kwargs" in fields)


def _is_payload(fields: Fields) -> bool:
    is_call = (
        isinstance(fields.get("call_type"), str) and "startTime" in fields and ("messages" in fields or "response" in fields)
    )
    return is_call and any(name in fields for name in _COST_MARKS)


def _payload(fields: Fields) -> Fields:
    """The payload itself, or in the callback's arguments around it."""
    return (
        as_dict(fields.get("standard_logging_object"))
        or as_dict(as_dict(fields.get("kwargs")).get("standard_logging_object"))
        or fields
    )


def _openhands_call(fields: Fields, source: Source) -> Trace:
    kwargs = as_dict(fields.get("kwargs"))
    metadata = as_dict(as_dict(kwargs.get("extra_body")).get("metadata")) or as_dict(kwargs.get("metadata"))
    response, written = as_dict(fields.get("response")), _written(fields)
    chat: Fields = {
        "messages": fields.get("messages"),
        "tools": None if written else fields.get("tools") or kwargs.get("tools"),
        "response": {**response, "choices": [written]} if written else response,
        "error": fields.get("error"),
        "user": metadata.get("trace_user_id") or kwargs.get("user"),
        "session_id": metadata.get("session_id"),
        "model": fields.get("model") or kwargs.get("model"),
    }
    trace = openai_chat.parse(chat, source)
    duration, ended = _seconds(fields.get("latency_sec")), read_time(fields.get("timestamp"))
    found = {"cost_usd": _cost(fields.get("cost")), "tags": _tags(metadata.get("tags")), "error_class": _error_class(fields)}
    return replace(
        trace,
        usage=_bounded(trace.usage),
        started_at=ended - timedelta(seconds=duration or 0.0) if ended else trace.started_at,
        duration_s=duration,
        attributes={**trace.attributes, **{key: value for key, value in found.items() if value}},
    )


def _written(fields: Fields) -> Fields:
    """The raw answer of a model that writes its calls as text; empty for every other."""
    choice = as_dict(next(iter(as_list(as_dict(fields.get("raw_response")).get("choices"))), None))
    message = as_dict(choice.get("message"))
    return choice if as_text(message.get("content")) and not message.get("tool_calls") else {}


def _error_class(fields: Fields) -> str | None:
    return as_text(as_dict(fields.get("error")).get("type"))


def _logged_call(fields: Fields, source: Source) -> Trace:
    metadata, response = as_dict(unwrap(fields.get("metadata"))), _response(fields)
    error = _error(fields, metadata)
    is_failed = fields.get("status") == "failure" or error is not None
    messages = _messages(fields)
    if not messages and not response.get("choices"):
        raise ValueError(f"a call of type {fields.get('call_type')} without messages and choices; expected a chat")
    chat: Fields = {
        "id": as_text(fields.get("id")) or as_text(fields.get("request_id")),
        "messages": messages,
        "tools": as_dict(unwrap(fields.get("model_parameters"))).get("tools"),
        "response": response,
        "model": fields.get("model"),
    }
    trace = openai_chat.parse(chat, source)
    started, ended = read_time(fields.get("startTime")), read_time(fields.get("endTime"))
    duration = _seconds((ended - started).total_seconds()) if started and ended else None
    return replace(
        trace,
        outcome=Outcome.FAILURE if is_failed else Outcome.UNKNOWN,
        error=error if is_failed else None,
        usage=_usage(fields, trace.usage),
        conversation_id=_session(fields, metadata),
        user=_first_text([fields], "end_user")
        or _first_text([metadata], "user_api_key_end_user_id", "user_id")
        or _first_text([fields], "user"),
        started_at=started,
        duration_s=duration,
        attributes={**trace.attributes, **_attributes(fields, metadata)},
    )


def _messages(fields: Fields) -> list[JsonValue]:
    """What was asked: chat messages, bare or in an object, or one text (completions, or logging that was switched off)."""
    asked = unwrap(fields.get("messages"))
    asked = as_dict(asked).get("messages", asked)
    if isinstance(asked, str) and asked:
        return [{"role": "user", "content": asked}]
    return as_list(asked) if is_message_list(asked) else []


def _response(fields: Fields) -> Fields:
    """The answer in OpenAI's shape. Raises ValueError for one in another shape, whose text would be lost."""
    answer = unwrap(fields.get("response"))
    if isinstance(answer, str) and answer:
        return {"choices": [{"message": {"role": "assistant", "content": answer}}]}
    response = as_dict(answer)
    choices = as_list(response.get("choices"))
    if response and not choices and fields.get("status") != "failure" and "error" not in response:
        raise ValueError(f"the response has no choices (call type {fields.get('call_type')}); expected a chat completion")
    texts = [as_dict(choice) for choice in choices[:1] if "message" not in as_dict(choice) and "text" in as_dict(choice)]
    if texts:
        return {**response, "choices": [{**choice, "message": {"content": choice.get("text")}} for choice in texts]}
    return response


def _error(fields: Fields, metadata: Fields) -> str | None:
    told = as_dict(unwrap(fields.get("error_information"))) or as_dict(unwrap(metadata.get("error_information")))
    return as_text(fields.get("error_str")) or _first_text([told], "error_message", "error_class")


def _usage(fields: Fields, answered: Usage) -> Usage:
    if answered.input_tokens is None and answered.output_tokens is None and fields.get("total_tokens"):
        answered = replace(read_usage(fields), cached_input_tokens=answered.cached_input_tokens)
    return _bounded(answered)


def _bounded(usage: Usage) -> Usage:
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens)
    return Usage(*(count if count is not None and 0 <= count < _MAX_COUNT else None for count in counts))


def _session(fields: Fields, metadata: Fields) -> str | None:
    places = [as_dict(metadata.get(name)) for name in ("requester_metadata", "spend_logs_metadata")]
    return _first_text([fields, metadata, *places], "session_id", "litellm_session_id", "conversation_id", "thread_id")


def _attributes(fields: Fields, metadata: Fields) -> dict[str, str]:
    told = as_dict(unwrap(fields.get("error_information"))) or as_dict(unwrap(metadata.get("error_information")))
    found = {
        "cost_usd": _cost(fields.get("response_cost")) or _cost(fields.get("spend")),
        "trace_id": as_text(fields.get("trace_id")),
        "call_type": as_text(fields.get("call_type")),
        "provider": as_text(fields.get("custom_llm_provider")),
        "model_group": as_text(fields.get("model_group")),
        "team": as_text(metadata.get("user_api_key_team_alias")),
        "tags": _tags(unwrap(fields.get("request_tags"))),
        "error_class": as_text(told.get("error_class")),
        "error_code": as_text(told.get("error_code")),
        "cache_hit": "true" if str(fields.get("cache_hit")).lower() == "true" else None,
    }
    return {key: value for key, value in found.items() if value}


def _tags(tags: JsonValue) -> str | None:
    return ", ".join(tag for tag in as_list(tags) if isinstance(tag, str)) or None


def _cost(value: JsonValue) -> str | None:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _seconds(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < _MAX_DURATION_S else None


def _first_text(places: list[Fields], *names: str) -> str | None:
    return next((text for place in places for name in names if (text := as_text(place.get(name)))), None)
