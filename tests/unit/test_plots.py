from io import BytesIO
from threading import Thread

from infra.plots import Curve, Gain, Rate, plot_costs, plot_curves, plot_models
from pipelines.economics.ledger import Total

RATES = [
    Rate("holdout (84 tasks)", "champion", 0.02, 0.0, 0.06),
    Rate("holdout (84 tasks)", "candidate", 0.55, 0.44, 0.66),
    Rate("swebench-tiny (12 tasks)", "champion", 0.0),
]


def test_models_are_plotted_with_intervals_values_and_units() -> None:
    figure = plot_models(RATES, [Gain("holdout", 53, 42, 63), Gain("swebench-tiny", 8, 0, 25)])
    rates, gains = figure.axes
    assert rates.get_xlabel() == "pass rate (%)"
    assert [t.get_text() for t in rates.get_yticklabels()] == ["holdout (84 tasks)", "swebench-tiny (12 tasks)"]
    assert {t.get_text() for t in rates.texts} == {"2.0", "55.0", "0.0"}
    assert [t.get_text() for t in gains.texts] == ["+53.0", "+8.0"]
    assert "percentage points" in gains.get_xlabel()


def test_a_cost_with_an_unknown_part_says_at_least() -> None:
    (axes,) = plot_costs({"train": Total(0.01, ()), "evaluate": Total(0.002, ("tokens:judge",))}).axes
    assert axes.get_title(loc="left") == "Cost by stage: at least 1.2 US cents"
    assert axes.texts[1].get_text() == "at least 0.2, part unknown"
    (known,) = plot_costs({"train": Total(0.01, ())}).axes
    assert known.texts[0].get_text() == "1 (100%)"


def test_curves_of_one_unit_share_a_panel() -> None:
    curves = [Curve("a", [1, 2], [0.1, 0.2], "reward"), Curve("b", [1, 2], [0.3, 0.2], "reward"), Curve("c", [1], [2.0], "loss")]
    assert [axes.get_ylabel() for axes in plot_curves(curves).axes] == ["reward", "loss"]


def test_empty_inputs_still_give_a_figure_from_any_thread() -> None:
    sizes: list[int] = []

    def draw() -> None:
        for figure in (plot_models(RATES[:1]), plot_costs({}), plot_curves([])):
            buffer = BytesIO()
            figure.savefig(buffer, format="png")
            sizes.append(len(buffer.getvalue()))

    thread = Thread(target=draw)
    thread.start()
    thread.join()
    assert len(sizes) == 3
    assert min(sizes) > 1000
