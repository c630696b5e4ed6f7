"""The demo's human operator: later, on some of the failed runs, the call that should have been made.

Owns the corrections. They are MLflow expectations on the traces, the way a team reviewing its agent in the MLflow UI would give
them.
"""

import random
from collections.abc import Sequence

from pydantic import JsonValue

from infra.demo.agent import Interaction
from infra.mlflow_traces import Annotation, annotate
from infra.settings import Settings
from pipelines.traces.model import Expectation

EXPECTATION = "expected_tool_call"
OPERATOR = "operator@shop.example"


def correct(settings: Settings, interactions: Sequence[Interaction], *, share: float, seed: int) -> int:
    """Write the right call on `share` (0 to 1) of the failed runs, chosen by seed; returns how many.

    Raises InfrastructureError when MLflow fails.
    """
    failed = [interaction for interaction in interactions if not interaction.right]
    chosen = random.Random(seed).sample(failed, round(share * len(failed)))
    annotate(settings.mlflow_url, [_correction(interaction) for interaction in chosen])
    return len(chosen)


def _correction(interaction: Interaction) -> Annotation:
    expected = interaction.request.expected
    value: dict[str, JsonValue] = {"name": expected.name, "arguments": expected.arguments}
    return Annotation(interaction.trace_id, Expectation(EXPECTATION, value, OPERATOR), OPERATOR)
