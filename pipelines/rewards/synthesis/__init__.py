"""Synthesis: from edge cases to verifiable reward tasks and SFT rows; one module per task kind.

A kind's module has `Options` and `synthesize(case, options) -> Draft | Skip`. This package tries the kinds in order, gives the
drafts their ids, merges equal ones and holds the admission gate: the reference answer scores 1.0 three times, doing nothing
scores 0.0, and the answer that failed in production does not pass. What is refused is a `Skip` with its reason; it refuses to
split or store anything, so a task leaves here with the split `train` and no group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from pipelines import plugins
from pipelines.artifacts import digest
from pipelines.errors import ConfigError
from pipelines.rewards.model import RewardTask, SftRow, Split
from pipelines.rewards.verifiers import verify
from pipelines.traces.model import EdgeCase, Message, Role, ToolSpec

FOLDER = "rewards.synthesis"
NUM_REFERENCE_CHECKS = 3
EMPTY_ANSWER = Message(Role.ASSISTANT, None)


class SkipReason(StrEnum):
    """Why an edge case gave no task."""

    NO_EXPECTATION = "no_expectation"
    """Nobody said what the run should have done."""
    UNREADABLE_EXPECTATION = "unreadable_expectation"
    SEVERAL_CALLS = "several_calls"
    """The person expects more than one call; this kind checks one."""
    UNKNOWN_TOOL = "unknown_tool"
    """The expected tool was not offered to the model."""
    INVALID_EXPECTATION = "invalid_expectation"
    """The expected arguments do not fit the tool's JSON Schema."""
    UNUSABLE_SCHEMA = "unusable_schema"
    NO_PROMPT = "no_prompt"
    """No user message stands before the failing turn."""
    PROMPT_TOO_LONG = "prompt_too_long"
    NOT_SERIALISABLE = "not_serialisable"
    """JSON cannot carry it (lone surrogates, integers above 64 bits)."""
    REFERENCE_FAILS = "reference_fails"
    EMPTY_ANSWER_SCORES = "empty_answer_scores"
    FAILED_ANSWER_PASSES = "failed_answer_passes"
    """What production answered is right by the expectation, so there is nothing to learn."""
    CONFLICTING = "conflicting"
    """Two people corrected the same prompt in different ways."""


@dataclass(frozen=True, slots=True)
class Skip:
    reason: SkipReason
    detail: str
    trace_id: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a kind makes of an edge case, before admission."""

    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    verifier: str
    arguments: dict[str, JsonValue]
    """The verifier's Options."""
    reference: Message
    """The answer that should have been given."""
    reference_source: str
    """Who says so; becomes `SftRow.source`."""
    failed: Message
    """What production answered; `EMPTY_ANSWER` when it answered nothing."""
    environment: str | None = None


class Synthesizer(Protocol):
    """What a kind's module, or an outside object named `package.module:attribute`, must offer."""

    Options: type[BaseModel]

    def synthesize(self, case: EdgeCase, options: Any) -> Draft | Skip: ...


def _default_kinds() -> dict[str, dict[str, JsonValue]]:
    return {"tool_call": {}}


class SynthesisOptions(BaseModel):
    """Which kinds of task to make, and their limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: dict[str, dict[str, JsonValue]] = Field(default_factory=_default_kinds, min_length=1)
    """Kind (module in pipelines/rewards/synthesis) to its options; the first kind that can use an edge case takes it."""
    max_prompt_chars: int = Field(32_000, ge=1)
    """Longer prompts are skipped: the trainer would cut them. Characters of all messages' content."""


class Synthesis(NamedTuple):
    """Tasks sorted by id, the SFT row of each, and what was refused."""

    tasks: tuple[RewardTask, ...]
    sft_rows: tuple[SftRow, ...]
    skipped: tuple[Skip, ...]


@dataclass(slots=True)
class _Admitted:
    """Tasks by id while edge cases come in."""

    tasks: dict[str, RewardTask] = field(default_factory=dict)
    rows: dict[str, SftRow] = field(default_factory=dict)
    prompts: dict[str, set[str]] = field(default_factory=dict)
    """Prompt digest to the ids of its tasks."""


def build_reward_tasks(edge_cases: Sequence[EdgeCase], options: SynthesisOptions) -> Synthesis:
    """Turn edge cases into admitted tasks; raises ConfigError when a kind or its options cannot be used."""
    kinds = [(name, *_load_kind(name, given)) for name, given in options.kinds.items()]
    admitted = _Admitted()
    skipped: list[Skip] = []
    for case in edge_cases:
        result = _first_draft(case, kinds)
        refused = result if isinstance(result, Skip) else _admit(case, *result, options=options, admitted=admitted)
        if refused is not None:
            skipped.append(refused)
    skipped.extend(_drop_conflicts(admitted))
    ids = sorted(admitted.tasks)
    return Synthesis(tuple(admitted.tasks[i] for i in ids), tuple(admitted.rows[i] for i in ids), tuple(skipped))


def task_id(kind: str, draft: Draft) -> str:
    """16 hex digits over kind, prompt, tools, verifier and its arguments."""
    return digest([kind, draft.prompt, draft.tools, draft.verifier, draft.arguments])[:16]


def load_synthesizer(name: str) -> Synthesizer:
    """The kind of that name; raises ConfigError when there is none, or it lacks `Options` or `synthesize`."""
    found = plugins.load(FOLDER, name)
    missing = [attribute for attribute in ("Options", "synthesize") if not hasattr(found, attribute)]
    if missing:
        lacks = " and no ".join(missing)
        raise ConfigError(f"task kind {name!r}: has no {lacks}; expected Options and synthesize(case, options)")
    kind: Synthesizer = found
    return kind


def _load_kind(name: str, given: dict[str, JsonValue]) -> tuple[Synthesizer, BaseModel]:
    kind = load_synthesizer(name)
    try:
        return kind, kind.Options.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "options"
        raise ConfigError(
            f"task kind {name!r}: option {where}: {first['msg']}; expected the fields {', '.join(kind.Options.model_fields)}"
        ) from error


def _first_draft(case: EdgeCase, kinds: Sequence[tuple[str, Synthesizer, BaseModel]]) -> tuple[str, Draft] | Skip:
    skips: list[Skip] = []
    for name, kind, kind_options in kinds:
        result = kind.synthesize(case, kind_options)
        if isinstance(result, Draft):
            return name, result
        skips.append(result)
    # A kind that could read an expectation says more about the case than one that found none.
    return next((s for s in skips if s.reason is not SkipReason.NO_EXPECTATION), skips[0])


def _admit(case: EdgeCase, kind: str, draft: Draft, *, options: SynthesisOptions, admitted: _Admitted) -> Skip | None:
    trace = case.trace
    num_chars = sum(len(m.content or "") for m in draft.prompt)
    if num_chars > options.max_prompt_chars:
        return Skip(SkipReason.PROMPT_TOO_LONG, f"{num_chars} characters; at most {options.max_prompt_chars}", trace.id)
    try:
        new_id = task_id(kind, draft)
        prompt_id = digest([kind, draft.prompt])
    except TypeError as error:
        return Skip(SkipReason.NOT_SERIALISABLE, str(error), trace.id)
    known = admitted.tasks.get(new_id)
    if known is not None:
        _merge(known, case, admitted)
        return None
    task = RewardTask(
        id=new_id,
        kind=kind,
        prompt=draft.prompt,
        tools=draft.tools,
        verifier=draft.verifier,
        arguments=draft.arguments,
        split=Split.TRAIN,
        group="",
        cluster=case.cluster,
        provenance=(trace.id,),
        occurred_at=trace.started_at,
        environment=draft.environment,
    )
    refusal = check_admission(task, draft)
    if refusal is not None:
        return Skip(refusal[0], refusal[1], trace.id)
    admitted.tasks[new_id] = task
    admitted.rows[new_id] = SftRow(draft.prompt, draft.tools, draft.reference, new_id, draft.reference_source, (trace.id,))
    admitted.prompts.setdefault(prompt_id, set()).add(new_id)
    return None


def check_admission(task: RewardTask, draft: Draft) -> tuple[SkipReason, str] | None:
    """The gate every task passes once: reason and detail when it is refused, None when it is admitted."""
    for _ in range(NUM_REFERENCE_CHECKS):
        verdict = verify(task, draft.reference)
        if verdict.score != 1.0 or not verdict.passed:
            return SkipReason.REFERENCE_FAILS, f"score {verdict.score}: {verdict.evidence or verdict.failure}"
    nothing = verify(task, EMPTY_ANSWER)
    if nothing.score != 0.0:
        return SkipReason.EMPTY_ANSWER_SCORES, f"score {nothing.score}: {nothing.evidence or nothing.failure}"
    failed = verify(task, draft.failed)
    if failed.passed is not False:
        return SkipReason.FAILED_ANSWER_PASSES, failed.evidence
    return None


def _merge(known: RewardTask, case: EdgeCase, admitted: _Admitted) -> None:
    """The same failure seen again: one task, every trace it came from, and the last time it happened."""
    trace = case.trace
    provenance = tuple(sorted({*known.provenance, trace.id}))
    times = [t for t in (known.occurred_at, trace.started_at) if t is not None]
    admitted.tasks[known.id] = replace(known, provenance=provenance, occurred_at=max(times, default=None))
    admitted.rows[known.id] = replace(admitted.rows[known.id], provenance=provenance)


def _drop_conflicts(admitted: _Admitted) -> list[Skip]:
    skips: list[Skip] = []
    for ids in admitted.prompts.values():
        if len(ids) < 2:
            continue
        for conflicting in sorted(ids):
            task = admitted.tasks.pop(conflicting)
            del admitted.rows[conflicting]
            detail = f"{len(ids)} different corrections of one prompt"
            skips.extend(Skip(SkipReason.CONFLICTING, detail, trace_id) for trace_id in task.provenance)
    return skips
