from collections.abc import Sequence

from infra.benchmarks.tool_tasks import evaluate_tasks
from infra.inference.client import Completion, Sampling
from pipelines.errors import InfrastructureError
from pipelines.rewards.model import FailureReason, RewardTask, Split
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec


def task(name: str) -> RewardTask:
    return RewardTask(
        id=name,
        kind="tool_call",
        prompt=(Message(Role.USER, name),),
        tools=(ToolSpec("look_up"),),
        verifier="tool_call",
        arguments={"name": "look_up", "arguments": {"order": 7}},
        split=Split.HOLDOUT,
        group=name,
        cluster="c",
        provenance=("t",),
    )


class Scripted:
    """Answers by the request's text; remembers the seeds it was asked with."""

    def __init__(self) -> None:
        self.seeds: list[int | None] = []

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, *, token_ids: bool = False
    ) -> list[Completion]:
        self.seeds.append(sampling.seed)
        text = messages[-1].content
        if text == "down":
            raise InfrastructureError("HTTP 503")
        call = ToolCall("look_up", {"order": 7}, '{"order": 7}') if text == "right" else ToolCall("look_up", {}, "{}")
        message = Message(Role.ASSISTANT, None, (call,))
        return [Completion(message, "tool_calls", "m", input_tokens=10, output_tokens=5, duration_s=0.1)]


async def test_every_task_is_answered_once_per_seed_and_verified_in_order() -> None:
    client, progress = Scripted(), list[tuple[int, int]]()
    report = await evaluate_tasks(
        client,
        [task("right"), task("wrong"), task("down")],
        benchmark="holdout",
        model="m",
        model_digest="d",
        seeds=[1, 2],
        temperature=0.0,
        max_tokens=64,
        on_progress=lambda done, total: progress.append((done, total)),
    )
    assert [(o.task_id, o.seed, o.passed, o.failure) for o in report.outcomes] == [
        ("right", 1, True, None),
        ("right", 2, True, None),
        ("wrong", 1, False, None),
        ("wrong", 2, False, None),
        ("down", 1, None, FailureReason.SERVER),
        ("down", 2, None, FailureReason.SERVER),
    ]
    assert (report.pass_rate, report.num_failures, report.input_tokens) == (0.5, 2, 40)
    assert sorted(s for s in client.seeds if s is not None) == [1, 1, 1, 2, 2, 2]
    assert progress[-1] == (6, 6)
    assert report.outcomes[0].answer == 'look_up({"order": 7})'
    assert 0 < (report.outcomes[2].score or 0) < 1
