"""Signals: evidence in a trace that it is an edge case, and how bad it is.

One module per signal, named like its `SignalKind`, with `find(trace)`, which yields signals with the strongest evidence first, and
`WEIGHT`, its share in severity: what a person or a test says counts more than a symptom. Weights are a choice, no measurement.
A signal reads only the canonical trace and never raises on its content. Own signals are named `package.module:attribute`;
they report a kind that exists, or `SignalKind.CUSTOM`. What shows only against other traces is in `pipelines.traces.outliers`.
This package refuses to judge whether a task can be made of a trace (`rewards` does).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Protocol

from pipelines import plugins
from pipelines.errors import ConfigError
from pipelines.traces import outliers
from pipelines.traces.model import Signal, SignalKind, Trace

FOLDER = "traces.signals"
DETAIL_CHARS = 200


class SignalPlugin(Protocol):
    """What a signal module, or an outside object, must offer."""

    WEIGHT: float
    """In [0, 1)."""

    def find(self, trace: Trace) -> Iterable[Signal]: ...


def find_signals(trace: Trace, own: Sequence[str] = ()) -> tuple[Signal, ...]:
    """The first signal of every shipped module and of the user's `own`, one per kind, the heaviest first."""
    found: dict[str, Signal] = {}
    for name in (*_shipped(), *own):
        signal = next(iter(load_signal(name).find(trace)), None)
        if signal is None:
            continue
        is_custom = signal.kind is SignalKind.CUSTOM
        detail = " ".join(f"{name}: {signal.detail}".split() if is_custom else signal.detail.split())
        found.setdefault(name if is_custom else signal.kind.value, replace(signal, detail=detail[:DETAIL_CHARS]))
    return tuple(found.values())


def severity(signals: Iterable[Signal], own: Sequence[str] = ()) -> float:
    """In [0, 1]: 1 - product of (1 - weight), so more evidence only raises it. `own` as given to `find_signals`."""
    weights = {name: load_signal(name).WEIGHT for name in (*_shipped(), *own)}
    weights |= {kind.value: weight for kind, weight in outliers.WEIGHTS.items()}
    rest = 1.0
    for found in {custom_name(signal) or signal.kind.value for signal in signals}:
        rest *= 1.0 - weights.get(found, 0.0)
    return round(1.0 - rest, 6)


def custom_name(signal: Signal) -> str:
    """The plugin that found a custom signal, which leads its detail; empty for every other kind."""
    return signal.detail.partition(": ")[0] if signal.kind is SignalKind.CUSTOM else ""


@cache
def load_signal(name: str) -> SignalPlugin:
    """The signal of that name. Raises ConfigError when there is none, or it lacks `find` or a usable `WEIGHT`."""
    plugin: SignalPlugin = plugins.load(FOLDER, name)
    weight = getattr(plugin, "WEIGHT", None)
    if not callable(getattr(plugin, "find", None)) or not isinstance(weight, int | float) or not 0.0 <= weight < 1.0:
        raise ConfigError(f"signal {name!r}: WEIGHT is {weight!r}; expected find(trace) and a WEIGHT from 0 to below 1")
    return plugin


@cache
def _shipped() -> tuple[str, ...]:
    return tuple(sorted(plugins.available(FOLDER), key=lambda name: (-load_signal(name).WEIGHT, name)))
