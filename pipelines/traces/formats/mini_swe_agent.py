"""mini-swe-agent trajectories (`.traj.json`): with tool calls (2.x), or with commands in code blocks (bare message lists, 1.x).

The last message of role "exit" is the run's result, not a message: it becomes attributes. What a submission is worth is not in
the file, so `Submitted` is no success; every other exit status is a failure.
"""

from datetime import datetime

from pydantic import JsonValue

from pipelines.artifacts import digest
from pipelines.traces.model import Message, Outcome, Source, Trace, Usage
from pipelines.traces.openai_messages import add_usage, as_dict, as_list, as_text, is_message_list, read_message, read_usage
from pipelines.traces.timestamps import read_time

_BLOCK = "```mswea_bash_command"
_SUBMITTED = "Submitted"


def match(record: JsonValue) -> int:
    if is_message_list(record):
        return 2 if any(_BLOCK in str(as_dict(item).get("content")) for item in as_list(record)) else 0
    fields = as_dict(record)
    info = as_dict(fields.get("info"))
    marked = str(fields.get("trajectory_format", "")).startswith("mini-swe-agent") or "mini_version" in info
    return 2 if marked and isinstance(fields.get("messages"), list) else 0


def parse(record: JsonValue, source: Source) -> Trace:
    fields: dict[str, JsonValue] = {"messages": record} if isinstance(record, list) else as_dict(record)
    info = as_dict(fields.get("info"))
    items = [as_dict(item) for item in as_list(fields.get("messages"))]
    status = as_text(info.get("exit_status")) or _exit_status(items)
    times = [time for item in items if (time := read_time(as_dict(item.get("extra")).get("timestamp"))) is not None]
    instance = as_text(fields.get("instance_id"))
    content_key = digest(record)[:16]
    return Trace(
        id=f"{instance}-{content_key}" if instance else content_key,
        messages=_messages(items),
        source=source,
        outcome=Outcome.UNKNOWN if status in (None, _SUBMITTED) else Outcome.FAILURE,
        error=_exception(items),
        usage=_usage(items),
        model=as_text(as_dict(as_dict(info.get("config")).get("model")).get("model_name")),
        started_at=min(times, default=None),
        duration_s=_duration_s(times),
        attributes=_attributes(fields, info, status),
    )


def _messages(items: list[dict[str, JsonValue]]) -> tuple[Message, ...]:
    return tuple(read_message(item) for item in items if item.get("role") != "exit")


def _exit_status(items: list[dict[str, JsonValue]]) -> str | None:
    return next(
        (as_text(as_dict(item.get("extra")).get("exit_status")) for item in reversed(items) if item.get("role") == "exit"), None
    )


def _exception(items: list[dict[str, JsonValue]]) -> str | None:
    """The traceback that ended the run, when one did."""
    exits = [as_dict(item.get("extra")) for item in items if item.get("role") == "exit"]
    return next((text for extra in exits if (text := as_text(extra.get("traceback")) or as_text(extra.get("exception")))), None)


def _usage(items: list[dict[str, JsonValue]]) -> Usage:
    """Sum over responses, each counted once: a retried turn is logged again under the same response id."""
    responses: dict[str, Usage] = {}
    for index, item in enumerate(items):
        response = as_dict(as_dict(item.get("extra")).get("response"))
        if response:
            responses[as_text(response.get("id")) or str(index)] = read_usage(response.get("usage"))
    return add_usage(list(responses.values()))


def _duration_s(times: list[datetime]) -> float | None:
    return (max(times) - min(times)).total_seconds() if times else None


def _attributes(fields: dict[str, JsonValue], info: dict[str, JsonValue], status: str | None) -> dict[str, str]:
    found = {
        "exit_status": status,
        "instance_id": as_text(fields.get("instance_id")),
        "submission": as_text(info.get("submission")),
        "mini_version": as_text(info.get("mini_version")),
        "cwd": as_text(as_dict(as_dict(info.get("config")).get("environment")).get("cwd")),
    }
    cost = as_dict(info.get("model_stats")).get("instance_cost")
    if isinstance(cost, int | float):
        found["cost_usd"] = str(cost)
    return {key: value for key, value in found.items() if value is not None}
