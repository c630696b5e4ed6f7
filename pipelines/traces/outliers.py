"""Outliers: runs that took far longer, or cost far more, than the other runs of the same model in the batch.

Owns the signals that one trace alone cannot show. Compared are runs of the same model in the same source format (a logged call and
a whole session are no measure for each other), on a log scale, since such values are skewed: modified z-score from median and
MAD (Iglewicz and Hoaglin 1993). Refuses to look at what is unusually short or cheap, and at runs whose model is not known.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from pipelines.traces.model import Signal, SignalKind, Trace

MIN_TRACES = 20
"""Fewer values than this say nothing about what is usual."""
MAX_SCORE = 3.5
"""Iglewicz and Hoaglin's threshold of the modified z-score."""
MIN_RATIO = 2.0
"""What is below this multiple of the median is no outlier, however alike the others are."""
WEIGHTS = {SignalKind.COST_OUTLIER: 0.2, SignalKind.LATENCY_OUTLIER: 0.1}

_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class _Measure:
    kind: SignalKind
    of: Callable[[Trace], float | None]
    shape: str
    """How a value is shown."""


def find_outliers(traces: Sequence[Trace]) -> list[tuple[Signal, ...]]:
    """The extra signals of each trace, in the order of the traces; at most one per kind."""
    found: list[dict[SignalKind, Signal]] = [{} for _ in traces]
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, trace in enumerate(traces):
        if trace.model:
            groups[trace.model, trace.source.format].append(index)
    for (model, _), members in groups.items():
        for measure in _MEASURES:
            values = {index: value for index in members if (value := measure.of(traces[index])) is not None}
            limit, usual = _limit(list(values.values())), median(values.values() or [0.0])
            for index, value in values.items():
                if value > limit:
                    shown = (
                        f"{measure.shape.format(value)}, {value / usual:.1f} times the median of {len(values)} runs of {model}"
                    )
                    found[index].setdefault(measure.kind, Signal(measure.kind, shown))
    return [tuple(signals.values()) for signals in found]


def _limit(values: list[float]) -> float:
    """The value above which one is an outlier; infinite when there are too few to tell."""
    if len(values) < MIN_TRACES:
        return math.inf
    logs = [math.log(value) for value in values]
    middle = median(logs)
    spread = _MAD_TO_SIGMA * median(abs(log - middle) for log in logs)
    return _exp(middle + max(MAX_SCORE * spread, math.log(MIN_RATIO)))


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700.0 else math.inf


def _duration(trace: Trace) -> float | None:
    return _positive(trace.duration_s)


def _cost(trace: Trace) -> float | None:
    return _positive(trace.attributes.get("cost_usd"))


def _tokens(trace: Trace) -> float | None:
    return _positive((trace.usage.input_tokens or 0) + (trace.usage.output_tokens or 0))


def _positive(value: float | str | None) -> float | None:
    try:
        number = float(value or 0.0)
    except (ValueError, OverflowError):
        return None
    return number if 0.0 < number < math.inf else None


_MEASURES = (
    _Measure(SignalKind.LATENCY_OUTLIER, _duration, "{:.1f} s"),
    _Measure(SignalKind.COST_OUTLIER, _cost, "{:.4g} USD"),
    _Measure(SignalKind.COST_OUTLIER, _tokens, "{:.0f} tokens"),
)
