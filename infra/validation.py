"""Data validation by Great Expectations: run a suite on a frame, render Data Docs, tell bad data from a broken check.

Owns the Great Expectations context, which lives in memory for one call. It refuses to know what the suites say
(`pipelines.rewards.expectations` does) and to decide what happens to bad data, except for `require_valid`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.errors import InfrastructureError, ValidationFailed
from pipelines.rewards.expectations import Rule, Suite

if TYPE_CHECKING:
    from great_expectations.checkpoint.actions import ValidationAction
    from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext

SITE = "data_docs"
SHOWN_VALUES = 5


@dataclass(frozen=True, slots=True)
class Check:
    """What became of one rule."""

    rule: str
    expectation: str
    passed: bool
    error: str
    """Why the check itself broke (a missing column, a wrong type): it then says nothing about the data. Empty when it ran."""
    observed: str
    """What was seen, short: the value, or how many rows were wrong and a few of them."""

    @property
    def broken(self) -> bool:
        return bool(self.error)


@dataclass(frozen=True, slots=True)
class ValidationOutcome:
    suite: str
    num_rows: int
    checks: tuple[Check, ...]
    """In the suite's order."""
    docs: Path | None
    """index.html of the rendered Data Docs; None when none were asked for."""

    @property
    def success(self) -> bool:
        """All checks ran and passed."""
        return all(check.passed for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that ran and found bad data."""
        return tuple(c for c in self.checks if not c.passed and not c.broken)

    @property
    def broken(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if c.broken)


def validate(frame: pl.DataFrame, suite: Suite, *, docs_folder: Path | None = None) -> ValidationOutcome:
    """Run the suite on the frame; write Data Docs (a static HTML site) into `docs_folder`.

    Importing Great Expectations takes seconds and some 280 MB, hence only here.
    """
    import great_expectations as gx
    from great_expectations.checkpoint.actions import UpdateDataDocsAction

    context = _open_context(docs_folder)
    definition = gx.ValidationDefinition(
        name=suite.name,
        data=context.data_sources.add_pandas("lake").add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe("all"),
        suite=context.suites.add(gx.ExpectationSuite(name=suite.name, expectations=[_expectation(rule) for rule in suite.rules])),
    )
    actions: list[ValidationAction] = [UpdateDataDocsAction(name=SITE, site_names=[SITE])] if docs_folder else []
    checkpoint = gx.Checkpoint(
        name=suite.name,
        validation_definitions=[context.validation_definitions.add(definition)],
        actions=actions,
        result_format={"result_format": "SUMMARY", "partial_unexpected_count": SHOWN_VALUES},
    )
    outcome = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame.to_pandas()})
    results: dict[str, Any] = {}
    for result in (r for run in outcome.run_results.values() for r in run.results):
        if result.expectation_config is not None:
            results[result.expectation_config.meta["rule"]] = result
    return ValidationOutcome(
        suite=suite.name,
        num_rows=frame.height,
        checks=tuple(_check(rule, results.get(rule.name)) for rule in suite.rules),
        docs=docs_folder / "index.html" if docs_folder else None,
    )


def require_valid(outcome: ValidationOutcome) -> None:
    """Stop here unless the data is good: ValidationFailed for bad data, InfrastructureError for a check that broke."""
    where = f"; read {outcome.docs}" if outcome.docs else ""
    if outcome.failed:
        listed = "; ".join(f"{check.rule} ({check.observed})" for check in outcome.failed)
        raise ValidationFailed(f"{outcome.suite}: {len(outcome.failed)} of {len(outcome.checks)} checks failed: {listed}{where}")
    if outcome.broken:
        listed = "; ".join(f"{check.rule} ({check.error})" for check in outcome.broken)
        raise InfrastructureError(f"{outcome.suite}: {len(outcome.broken)} checks could not run: {listed}{where}")


def _open_context(docs_folder: Path | None) -> "AbstractDataContext":
    """A context in memory, silent: no progress bars, no usage statistics."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs_folder)},
    }
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(),
        data_docs_sites={SITE: site} if docs_folder else {},
        progress_bars=ProgressBarsConfig(globally=False, metric_calculations=False),
        analytics_enabled=False,
    )
    return gx.get_context(project_config=config, mode="ephemeral")


def _expectation(rule: Rule) -> Any:
    import great_expectations as gx

    return getattr(gx.expectations, rule.expectation)(**rule.arguments, meta={"rule": rule.name}, description=rule.name)


def _check(rule: Rule, result: Any) -> Check:
    if result is None:
        return Check(rule.name, rule.expectation, False, "no result came back for it", "")
    error = _exception(result.exception_info)
    return Check(
        rule.name, rule.expectation, bool(result.success) and not error, error, "" if error else _observed(result.result)
    )


def _exception(info: dict[str, Any]) -> str:
    """The first exception's message. The report nests them by metric, except when there is none."""
    if "raised_exception" in info:
        return str(info["exception_message"] or "unknown error") if info["raised_exception"] else ""
    messages = [_exception(nested) for nested in info.values() if isinstance(nested, dict)]
    return next((message.strip() for message in messages if message), "")


def _observed(result: dict[str, Any]) -> str:
    if "observed_value" in result:
        return f"{result['observed_value']}"
    count = result.get("unexpected_count", 0)
    if not count:
        return f"{result.get('element_count', 0)} rows"
    shown = ", ".join(str(value)[:80] for value in result.get("partial_unexpected_list", [])[:SHOWN_VALUES])
    return f"{count} of {result.get('element_count')} rows: {shown}"
