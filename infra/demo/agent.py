"""The demo's production agent: one chat completion per request through the AI Gateway, its tool call carried out on the shop.

Owns the traffic and the feedback that a program can give (did the call work); the traces are MLflow's own. Refuses to know the
right call while it answers: `expected` is only compared afterwards, for the report.
"""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from infra.demo.requests import DemoRequest
from infra.demo.tools import SYSTEM_PROMPT, TOOLS, ToolCode, ToolResult, execute
from infra.gateway import CALLER_HEADER
from infra.inference.client import message_to_openai, tool_to_openai
from infra.mlflow_traces import Annotation, annotate, trace_ids_by_completion
from infra.settings import Settings
from pipelines.errors import InfrastructureError
from pipelines.rewards.verifiers.tool_call import equal_values
from pipelines.traces.model import Feedback, Message, Role, ToolCall

AGENT = "support-agent-demo"
"""How the agent names itself to the gateway and signs its feedback."""
FEEDBACK = "tool_result"
MAX_TOKENS = 56
"""The longest right call is 49 tokens, its end included."""

_ATTEMPTS = 3
_TIMEOUT_S = 300.0
_TRACE_WAIT_S = 60.0
_CLOCK_MARGIN_MS = 10_000
_TOOLS = [tool_to_openai(tool) for tool in TOOLS]

Progress = Callable[[int, int], None]
"""Called with (requests done, requests in all)."""


@dataclass(frozen=True, slots=True)
class Interaction:
    """One request, what the model did, and how it ended."""

    request: DemoRequest
    completion_id: str
    call: ToolCall | None
    """The call that was carried out; None when there was none, or several."""
    result: ToolResult
    trace_id: str = ""
    """MLflow trace of the gateway call."""

    @property
    def right(self) -> bool:
        """Whether the customer got what was asked for: the call worked and was the right one."""
        expected = self.request.expected
        if self.call is None or not self.result.ok or self.call.name != expected.name:
            return False
        return equal_values(expected.arguments, self.call.arguments)


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """What came of some traffic."""

    num_requests: int
    failures: int
    """Requests where the customer did not get what was asked for, also when the tool saw no error."""
    outcomes: dict[str, int]
    """Number of requests per tool code; `wrong_call` are those that worked but did something else."""
    wall_s: float
    interactions: tuple[Interaction, ...]

    @property
    def failure_rate(self) -> float:
        return self.failures / self.num_requests if self.num_requests else 0.0


async def drive(
    settings: Settings,
    requests: Sequence[DemoRequest],
    shop: sqlite3.Connection,
    *,
    concurrency: int = 32,
    progress: Progress | None = None,
) -> TrafficReport:
    """Send the requests through `settings.endpoint`, carry out the calls, and leave a code feedback on every trace.

    Raises InfrastructureError when the gateway does not answer, or its traces do not appear.
    """
    started = time.monotonic()
    since_ms = int(time.time() * 1000) - _CLOCK_MARGIN_MS
    slots = asyncio.Semaphore(concurrency)
    limits = httpx.Limits(max_connections=concurrency)
    done = 0
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, limits=limits, headers={CALLER_HEADER: AGENT}) as http:

        async def handle(request: DemoRequest) -> Interaction:
            nonlocal done
            async with slots:
                interaction = _act(shop, request, await _complete(http, settings, request))
            done += 1
            if progress:
                progress(done, len(requests))
            return interaction

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(handle(request)) for request in requests]
        except ExceptionGroup as failures:  # the first one stopped the others; it says it all
            raise failures.exceptions[0] from None
    interactions = await asyncio.to_thread(_give_feedback, settings, [task.result() for task in tasks], since_ms)
    return _report(interactions, time.monotonic() - started)


async def _complete(http: httpx.AsyncClient, settings: Settings, request: DemoRequest) -> dict[str, Any]:
    messages = (Message(Role.SYSTEM, SYSTEM_PROMPT), Message(Role.USER, request.text))
    body = {
        "model": settings.endpoint,
        "user": request.user,
        "messages": [message_to_openai(message) for message in messages],
        "tools": _TOOLS,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
    }
    problem = ""
    for attempt in range(_ATTEMPTS):
        await asyncio.sleep(attempt)
        try:
            response = await http.post(f"{settings.gateway_url}/chat/completions", json=body)
        except httpx.HTTPError as error:
            problem = repr(error)
            continue
        if response.is_success:
            data: dict[str, Any] = response.json()
            return data
        problem = f"HTTP {response.status_code}: {response.text[:300]}"
    where = f"gateway endpoint {settings.endpoint!r} at {settings.gateway_url}"
    raise InfrastructureError(f"{where}: {problem} ({_ATTEMPTS} attempts); see `everloop status`")


def _act(shop: sqlite3.Connection, request: DemoRequest, data: dict[str, Any]) -> Interaction:
    raw_calls = data["choices"][0]["message"].get("tool_calls") or []
    if len(raw_calls) == 1:
        call = _parse_call(raw_calls[0])
        return Interaction(request, data["id"], call, execute(shop, call))
    code = ToolCode.TOO_MANY_CALLS if raw_calls else ToolCode.NO_CALL
    result = ToolResult(code, f"{len(raw_calls)} tool calls in the answer, expected 1")
    return Interaction(request, data["id"], None, result)


def _parse_call(raw: dict[str, Any]) -> ToolCall:
    function = raw["function"]
    try:
        parsed = orjson.loads(function["arguments"])
    except orjson.JSONDecodeError:
        parsed = None
    return ToolCall(function["name"], parsed if isinstance(parsed, dict) else None, function["arguments"], raw.get("id"))


def _give_feedback(settings: Settings, interactions: Sequence[Interaction], since_ms: int) -> tuple[Interaction, ...]:
    """Find the trace of each call and write on it how its tool call ended, as the agent's own code knows it."""
    trace_ids = _wait_for_traces(settings, {interaction.completion_id for interaction in interactions}, since_ms)
    traced = tuple(Interaction(i.request, i.completion_id, i.call, i.result, trace_ids[i.completion_id]) for i in interactions)
    annotate(settings.mlflow_url, [Annotation(i.trace_id, _feedback(i.result), AGENT) for i in traced])
    return traced


def _feedback(result: ToolResult) -> Feedback:
    return Feedback(FEEDBACK, result.code.value, "code", result.detail)


def _wait_for_traces(settings: Settings, completion_ids: set[str], since_ms: int) -> dict[str, str]:
    """MLflow writes traces in the background: wait until the last one is there."""
    experiment = f"gateway/{settings.endpoint}"
    deadline = time.monotonic() + _TRACE_WAIT_S
    while True:
        found = trace_ids_by_completion(settings.mlflow_url, experiment, since_ms=since_ms)
        missing = completion_ids - found.keys()
        if not missing:
            return found
        if time.monotonic() > deadline:
            raise InfrastructureError(
                f"MLflow experiment {experiment}: {len(missing)} of {len(completion_ids)} calls have no trace after "
                f"{_TRACE_WAIT_S:.0f} s; is usage tracking on for the endpoint?"
            )
        time.sleep(0.5)


def _report(interactions: tuple[Interaction, ...], wall_s: float) -> TrafficReport:
    codes = Counter("wrong_call" if i.result.ok and not i.right else i.result.code.value for i in interactions)
    failures = sum(not interaction.right for interaction in interactions)
    return TrafficReport(len(interactions), failures, dict(codes.most_common()), wall_s, interactions)
