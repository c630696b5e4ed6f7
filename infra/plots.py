"""Plots for the MLflow run of a cycle: models against each other, cost by stage, training curves.

Owns how results look. Figures are made on their own canvas, without pyplot and its global state, so plotting is safe in any
thread; the caller logs or saves them. Colours are from Okabe and Ito (2008), told apart with every common colour vision, and no
meaning rests on colour alone. Refuses to compute statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.economics.ledger import Total

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
COLOURS = (GREY, BLUE, GREEN, ORANGE)
MARKERS = ("o", "s", "D", "^")
DPI = 130


@dataclass(frozen=True, slots=True)
class Rate:
    """One model's pass rate on one benchmark, in [0, 1], with its interval."""

    benchmark: str
    model: str
    """As it is called in the legend: champion, after SFT, candidate."""
    rate: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Gain:
    """A paired gain in percentage points with its interval."""

    label: str
    points: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric over training steps."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
    panel: str
    """Curves of one panel share an axis; it is the axis label, unit included."""


def plot_models(rates: Sequence[Rate], gains: Sequence[Gain] = (), *, title: str = "Champion and candidate") -> "Figure":
    """Pass rates by benchmark as dots with intervals; below them the paired gains, against zero."""
    benchmarks = list(dict.fromkeys(r.benchmark for r in rates))
    models = list(dict.fromkeys(r.model for r in rates))
    heights = [0.5 + 0.34 * max(len(rates), 1), 0.5 + 0.45 * len(gains)] if gains else [0.5 + 0.34 * max(len(rates), 1)]
    figure = _figure(8.0, sum(heights) + 1.6)
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    axes = figure.add_subplot(grid[0])
    for index, model in enumerate(models):
        _draw_rates(axes, [r for r in rates if r.model == model], benchmarks, offset=_offset(index, len(models)), index=index)
    axes.set_yticks(range(len(benchmarks)), benchmarks)
    axes.set_ylim(len(benchmarks) - 0.5, -0.5)
    axes.set_xlim(-3, 103)
    axes.set_xlabel("pass rate (%)")
    axes.set_title(title, loc="left", fontweight="bold")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    if gains:
        _draw_gains(figure.add_subplot(grid[1]), gains)
    return figure


def plot_costs(totals: Mapping[str, Total], *, title: str = "Cost by stage") -> "Figure":
    """Cost of each stage in US cents as bars, in order; a stage with an unknown part says so."""
    figure = _figure(8.0, 1.2 + 0.45 * max(len(totals), 1))
    axes = figure.add_subplot()
    cents = [100.0 * total.known_usd for total in totals.values()]
    all_cents = sum(cents)
    unknown = any(total.unknown for total in totals.values())
    axes.barh(range(len(totals)), cents, color=BLUE, height=0.6)
    for row, (total, value) in enumerate(zip(totals.values(), cents, strict=True)):
        share = f" ({value / all_cents:.0%})" if all_cents > 0 and not unknown else ""
        text = f"at least {value:.3g}, part unknown" if total.unknown else f"{value:.3g}{share}"
        axes.annotate(text, (value, row), xytext=(5, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(totals)), list(totals))
    axes.invert_yaxis()
    axes.set_xlim(0, max(cents, default=0.0) * 1.3 or 1.0)
    axes.set_xlabel("US cents")
    axes.set_title(f"{title}: {'at least ' if unknown else ''}{all_cents:.3g} US cents", loc="left", fontweight="bold")
    return figure


def plot_curves(curves: Sequence[Curve], *, title: str = "Training") -> "Figure":
    """Training curves, one panel per unit, sharing the step axis."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    figure = _figure(8.0, 0.9 + 2.2 * max(len(panels), 1))
    grid = figure.add_gridspec(max(len(panels), 1), 1)
    for row, panel in enumerate(panels):
        axes = figure.add_subplot(grid[row])
        for index, curve in enumerate(c for c in curves if c.panel == panel):
            (line,) = axes.plot(curve.steps, curve.values, label=curve.name, markersize=3.5, linewidth=1.4)
            line.set(color=COLOURS[(index + 1) % len(COLOURS)], marker=MARKERS[index % len(MARKERS)])
        axes.set_ylabel(panel)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        if row == len(panels) - 1:
            axes.set_xlabel("training step")
        if row == 0:
            axes.set_title(title, loc="left", fontweight="bold")
    return figure


def _figure(width_in: float, height_in: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_rates(axes: "Axes", rates: Sequence[Rate], benchmarks: Sequence[str], *, offset: float, index: int) -> None:
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    for rate in rates:
        y = benchmarks.index(rate.benchmark) + offset
        if rate.low is not None and rate.high is not None:
            axes.plot([100 * rate.low, 100 * rate.high], [y, y], color=colour, linewidth=2.0, alpha=0.6, zorder=2)
        axes.annotate(
            f"{100 * rate.rate:.1f}", (100 * rate.rate, y), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    xs = [100 * r.rate for r in rates]
    ys = [benchmarks.index(r.benchmark) + offset for r in rates]
    axes.plot(xs, ys, linestyle="none", marker=marker, color=colour, markersize=7, label=rates[0].model, zorder=3)
    axes.grid(axis="x", alpha=0.3)


def _draw_gains(axes: "Axes", gains: Sequence[Gain]) -> None:
    for row, gain in enumerate(gains):
        certain = gain.low > 0 or gain.high < 0
        colour = (GREEN if gain.points > 0 else ORANGE) if certain else GREY
        axes.plot([gain.low, gain.high], [row, row], color=colour, linewidth=2.0)
        axes.plot([gain.points], [row], marker="o", color=colour, markersize=7, markerfacecolor=colour if certain else "white")
        axes.annotate(
            f"{gain.points:+.1f}", (gain.points, row), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    axes.axvline(0.0, color="black", linewidth=1.0)
    axes.set_yticks(range(len(gains)), [g.label for g in gains])
    axes.set_ylim(len(gains) - 0.4, -0.6)
    axes.set_xlabel("paired gain (percentage points); hollow: the interval holds zero")
    axes.grid(axis="x", alpha=0.3)


def _offset(index: int, count: int) -> float:
    """Spread the models of one benchmark around its line."""
    return (index - (count - 1) / 2) * 0.26
