"""SWE-agent trajectories (`.traj`), by function calls or by thought and action, from 0.6 to 1.x.

Field names as in SWE-agent's `sweagent/types.py` and its manual's page on output files. The messages are the `history`, which
holds each turn once (a step's `query` sends them again). Left out are demonstrations (`is_demo`) and the turns of sub-agents: an
agent's name stands on its messages, and the first is the main agent's. A thought/action run keeps its commands as text in the
answers. A run with `attempts` is as many runs as it has attempts; the one it chose stands among them.

`submitted` says nothing about what the patch is worth, so it is no success; every other exit status is a failure, also `submitted
(exit_cost)`, where the agent was stopped and its work so far handed in. Token counts and costs of 0 are what runs without a meter
report (replays, models without a price): they are unknown. No times are in the file.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from pipelines.artifacts import digest
from pipelines.traces.json_text import as_int, unwrap
from pipelines.traces.model import Message, Outcome, Role, Source, Trace, Usage
from pipelines.traces.openai_messages import as_dict, as_list, as_text, read_content, read_message

_SUBMITTED = "submitted"
_MAX_COUNT = 1 << 40
"""No run has so many tokens; a larger count is damage."""

Fields = dict[str, JsonValue]


def match(record: JsonValue) -> int:
    fields = as_dict(record)
    attempts = as_list(fields.get("attempts"))
    return 2 if _is_run(fields) or (attempts and _is_run(as_dict(attempts[0]))) else 0


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """The attempts of a run that had several; every other record is one run."""
    attempts = [as_dict(attempt) for attempt in as_list(as_dict(record).get("attempts"))]
    try:
        return [(f"{index}-{_id(attempt)}", attempt) for index, attempt in enumerate(attempts) if _is_run(attempt)]
    except TypeError as error:  # orjson's: it writes fewer levels than the parser reads
        raise ValueError("nested too deeply") from error


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    """An attempt is one part; the same attempt from a record that is repeated in the file is the same run."""
    return parse(parts[0], source)


def parse(record: JsonValue, source: Source) -> Trace:
    try:
        return _parse(as_dict(record), source)
    except TypeError as error:  # orjson's: it writes fewer levels than the parser reads
        raise ValueError("nested too deeply") from error


def _parse(fields: Fields, source: Source) -> Trace:
    info = as_dict(fields.get("info"))
    config = as_dict(unwrap(fields.get("replay_config")))
    status = info.get("exit_status")
    return Trace(
        id=_id(fields),
        messages=_messages(fields),
        source=source,
        outcome=Outcome.UNKNOWN if status in (None, "", _SUBMITTED) else Outcome.FAILURE,
        usage=_usage(as_dict(info.get("model_stats"))),
        model=_model(config),
        attributes=_attributes(fields, info, config),
    )


def _is_run(fields: Fields) -> bool:
    steps, history = as_list(fields.get("trajectory")), as_list(fields.get("history"))
    step, message = as_dict(next(iter(steps), None)), as_dict(next(iter(history), None))
    is_step = isinstance(step.get("action"), str) and "observation" in step and ("response" in step or "thought" in step)
    return isinstance(fields.get("info"), dict) and isinstance(fields.get("trajectory"), list) and (is_step or "role" in message)


def _messages(fields: Fields) -> tuple[Message, ...]:
    history = [as_dict(item) for item in as_list(fields.get("history"))]
    if not history:
        return tuple(_steps(fields))
    told = [item for item in history if item.get("is_demo") is not True]
    main = next((name for item in told if (name := as_text(item.get("agent")))), None)
    return tuple(read_message(_with_call_id(item)) for item in told if item.get("agent") in (None, "", main))


def _with_call_id(item: Fields) -> Fields:
    """SWE-agent keeps the ids in a list, which has one entry: it makes one call per turn."""
    call_id = next(iter(as_list(item.get("tool_call_ids"))), None)
    return {"tool_call_id": call_id, **item}


def _steps(fields: Fields) -> list[Message]:
    """Answers and observations of the steps, for files whose history was stripped."""
    found: list[Message] = []
    for step in map(as_dict, as_list(fields.get("trajectory"))):
        pairs = ((Role.ASSISTANT, step.get("response")), (Role.USER, step.get("observation")))
        found.extend(Message(role, read_content(text)) for role, text in pairs if text)
    return found


def _usage(stats: Fields) -> Usage:
    sent, received = (as_int(stats.get(name)) for name in ("tokens_sent", "tokens_received"))
    if not sent and not received:
        return Usage()
    return Usage(*(count if count is not None and 0 <= count < _MAX_COUNT else None for count in (sent, received)))


def _id(fields: Fields) -> str:
    """SWE-agent names the instance, not the run: the content tells runs of one instance apart."""
    instance, key = _instance(as_dict(unwrap(fields.get("replay_config")))), digest(fields)[:16]
    return f"{instance}-{key}" if instance else key


def _instance(config: Fields) -> str | None:
    return as_text(as_dict(config.get("problem_statement")).get("id"))


def _model(config: Fields) -> str | None:
    model = as_dict(as_dict(config.get("agent")).get("model"))
    return as_text(model.get("name")) or as_text(model.get("model_name"))


def _attributes(fields: Fields, info: Fields, config: Fields) -> dict[str, str]:
    environment = as_dict(config.get("env")) or as_dict(config.get("environment"))
    repository = as_dict(environment.get("repo")) or environment
    stats = as_dict(info.get("model_stats"))
    state = as_dict(unwrap(as_dict(next(iter(as_list(fields.get("trajectory"))), None)).get("state")))
    status, cost, calls = info.get("exit_status"), stats.get("instance_cost"), as_int(stats.get("api_calls"))
    found = {
        "exit_status": str(status) if isinstance(status, str | int) and status != "" else None,
        "submission": as_text(info.get("submission")),
        "instance_id": _instance(config),
        "repository": _first_text(repository, "github_url", "repo_name", "path", "repo_path"),
        "base_commit": as_text(repository.get("base_commit")),
        "image": as_text(as_dict(environment.get("deployment")).get("image")),
        "cwd": as_text(state.get("working_dir")),
        "environment": as_text(fields.get("environment")),
        "swe_agent_version": as_text(info.get("swe_agent_version")),
        "cost_usd": str(cost) if isinstance(cost, int | float) and cost > 0 else None,
        "num_model_calls": str(calls) if calls else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _first_text(fields: Fields, *names: str) -> str | None:
    return next((text for name in names if (text := as_text(fields.get(name)))), None)
