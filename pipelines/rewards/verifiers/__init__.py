"""Verifiers: one module per way of checking an answer by a program.

A verifier module has `Options`, a pydantic model (extra keys forbidden) parsed from the task's arguments, and
`verify(answer, options) -> Verdict`. It is deterministic, opens nothing, and returns a verdict for any message, however
hostile. This package finds the module and parses its options; it refuses to know what any of them checks.
"""

from functools import cache
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from pipelines import plugins
from pipelines.errors import ConfigError
from pipelines.rewards.model import RewardTask, Verdict
from pipelines.traces.model import Message

FOLDER = "rewards.verifiers"


class Verifier(Protocol):
    """What a verifier module, or an outside object named `package.module:attribute`, must offer."""

    Options: type[BaseModel]

    def verify(self, answer: Message, options: Any) -> Verdict: ...


def verify(task: RewardTask, answer: Message) -> Verdict:
    """Check an answer to a task. Raises ConfigError when the verifier or its arguments cannot be used; never for an answer."""
    verifier = load_verifier(task.verifier)
    return verifier.verify(answer, parse_options(verifier, task))


@cache
def load_verifier(name: str) -> Verifier:
    """The verifier of that name; raises ConfigError when there is none, or it lacks `Options` or `verify`."""
    found = plugins.load(FOLDER, name)
    missing = [attribute for attribute in ("Options", "verify") if not hasattr(found, attribute)]
    if missing:
        raise ConfigError(f"verifier {name!r}: has no {' and no '.join(missing)}; expected Options and verify(answer, options)")
    verifier: Verifier = found
    return verifier


def parse_options(verifier: Verifier, task: RewardTask) -> BaseModel:
    """The task's arguments as the verifier's Options; raises ConfigError naming the task and the first thing wrong."""
    try:
        return verifier.Options.model_validate(task.arguments)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "arguments"
        raise ConfigError(
            f"task {task.id}: verifier {task.verifier!r} cannot use {where}: {first['msg']}; "
            f"expected the fields {', '.join(verifier.Options.model_fields)}; build the dataset again"
        ) from error
