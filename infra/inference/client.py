"""Chat completions over HTTP, from a vLLM replica or the AI Gateway. Owns the wire format; refuses to judge answers."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import orjson
from pydantic import JsonValue

from pipelines.errors import InfrastructureError
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec

ATTEMPTS = 3
RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn."""

    n: int = 1
    """Answers to each prompt."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    max_tokens: int = 64
    seed: int | None = None
    """Of sampling; not sent when greedy. vLLM 0.32 on the CPU can die of a seeded draw ("CPU Generator does not use offset")."""


@dataclass(frozen=True, slots=True)
class Completion:
    message: Message
    finish_reason: str
    """stop, length, tool_calls, ..."""
    model: str
    """Name the server says it answered with."""
    prompt_token_ids: tuple[int, ...] = ()
    """Empty unless asked for."""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Log-probability of each of token_ids under the weights that sampled it."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """Of this answer when token ids were asked for, else of the whole response shared out evenly."""
    duration_s: float = 0.0

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


class ChatClient:
    """Async client with bounded concurrency and retries; use as an async context manager, or call `close`."""

    def __init__(self, base_url: str, model: str, *, timeout_s: float = 120.0, concurrency: int = 32) -> None:
        self.base_url = base_url.rstrip("/")
        self.model = model
        self._http = httpx.AsyncClient(timeout=timeout_s, limits=httpx.Limits(max_connections=concurrency))
        self._slots = asyncio.Semaphore(concurrency)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, *, token_ids: bool = False
    ) -> list[Completion]:
        """Answers to one prompt, `sampling.n` of them. Raises InfrastructureError when the server cannot give them."""
        body = _request(self.model, messages, tools, sampling, token_ids=token_ids)
        async with self._slots:
            started = time.perf_counter()
            data = await self._post(body)
            duration_s = time.perf_counter() - started
        try:
            return _completions(data, duration_s)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise InfrastructureError(f"{self.base_url}: answer is not a chat completion ({error!r})") from error

    async def _post(self, body: dict[str, Any]) -> Any:
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(2.0**attempt / 4)
            try:
                response = await self._http.post(f"{self.base_url}/chat/completions", json=body)
            except httpx.TimeoutException as error:
                raise InfrastructureError(f"{self.base_url}: no answer in time ({type(error).__name__})") from error
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if response.status_code in RETRY_STATUS:
                problem = f"HTTP {response.status_code}: {response.text[:300]}"
                continue
            if response.status_code != 200:
                raise InfrastructureError(f"{self.base_url}: HTTP {response.status_code}: {response.text[:300]}")
            return response.json()
        raise InfrastructureError(f"{self.base_url}: {problem} ({ATTEMPTS} attempts); is the server up? see `everloop status`")


def message_to_openai(message: Message) -> dict[str, Any]:
    """A message in the OpenAI chat format."""
    data: dict[str, Any] = {"role": message.role.value, "content": message.content or ""}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": c.id or f"call_{i}", "type": "function", "function": {"name": c.name, "arguments": c.raw_arguments}}
            for i, c in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def tool_to_openai(tool: ToolSpec) -> dict[str, Any]:
    """A tool in the OpenAI format."""
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _request(
    model: str, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, *, token_ids: bool
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [message_to_openai(m) for m in messages],
        "n": sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }
    if tools:
        body["tools"] = [tool_to_openai(t) for t in tools]
    if sampling.seed is not None and sampling.temperature > 0:
        body["seed"] = sampling.seed
    if token_ids:
        body |= {"return_token_ids": True, "logprobs": True}
    return body


def _completions(data: dict[str, Any], duration_s: float) -> list[Completion]:
    usage = data.get("usage") or {}
    choices = sorted(data["choices"], key=lambda c: c.get("index", 0))
    shared = usage.get("completion_tokens")
    results = []
    for choice in choices:
        token_ids = tuple(choice.get("token_ids") or ())
        content = (choice.get("logprobs") or {}).get("content") or []
        results.append(
            Completion(
                message=_message(choice["message"]),
                finish_reason=str(choice.get("finish_reason") or ""),
                model=str(data.get("model") or ""),
                prompt_token_ids=tuple(data.get("prompt_token_ids") or ()),
                token_ids=token_ids,
                logprobs=tuple(float(entry["logprob"]) for entry in content),
                input_tokens=usage.get("prompt_tokens"),
                output_tokens=len(token_ids) or (shared // len(choices) if shared is not None else None),
                duration_s=duration_s,
            )
        )
    return results


def _message(data: dict[str, Any]) -> Message:
    calls = tuple(_tool_call(c) for c in data.get("tool_calls") or ())
    return Message(Role.ASSISTANT, data.get("content"), calls)


def _tool_call(data: dict[str, Any]) -> ToolCall:
    function = data["function"]
    raw = function.get("arguments") or ""
    arguments: dict[str, JsonValue] | None
    try:
        parsed = orjson.loads(raw)
        arguments = parsed if isinstance(parsed, dict) else None
    except orjson.JSONDecodeError:
        arguments = None
    return ToolCall(str(function.get("name") or ""), arguments, raw, data.get("id"))
