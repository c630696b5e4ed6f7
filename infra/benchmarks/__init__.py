"""Benchmarks: what turns a served model and a set of tasks into an EvaluationReport.

Owns the protocol of the model under evaluation. Refuses to compare reports: `pipelines.evaluation` does.
"""

from collections.abc import Sequence
from typing import Protocol

from infra.inference.client import Completion, Sampling
from pipelines.traces.model import Message, ToolSpec


class ChatModel(Protocol):
    """The model under evaluation; `infra.inference.client.ChatClient` is one."""

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, *, token_ids: bool = False
    ) -> list[Completion]:
        """Answers to one prompt. Raises InfrastructureError when there are none."""
        ...
