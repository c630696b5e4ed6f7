"""Tables of a lake: Delta Lake through `deltalake`, with explicit schemas and application transactions.

Owns appending rows together with the cursor of their source, and reading. Refuses to know what a row means
(`pipelines.*.table` does).
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl
import pyarrow as pa

from pipelines.economics.table import LEDGER_SCHEMA
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.rewards.table import TASKS_SCHEMA, VERDICTS_SCHEMA
from pipelines.traces.table import EDGE_CASES_SCHEMA, REJECTIONS_SCHEMA, TRACES_SCHEMA

if TYPE_CHECKING:
    from deltalake import DeltaTable

SCHEMAS: dict[str, pa.Schema] = {
    "traces": TRACES_SCHEMA,
    "rejections": REJECTIONS_SCHEMA,
    "edge_cases": EDGE_CASES_SCHEMA,
    "tasks": TASKS_SCHEMA,
    "verdicts": VERDICTS_SCHEMA,
    "ledger": LEDGER_SCHEMA,
}

COMMIT_RETRIES = 50
"""deltalake's own default of 15 is lost to eight writers that append at once."""
ATTEMPTS = 8
"""Fresh reads of the table after a commit that lost to another writer."""

T = TypeVar("T")


class Tables:
    def __init__(self, root: str, storage_options: dict[str, str]) -> None:
        self.root = root
        self.storage_options = storage_options

    def append(self, table: str, rows: Sequence[dict[str, Any]], *, transaction: tuple[str, int] | None = None) -> int:
        """Append rows; with `transaction` (source, version) in one commit with the source's cursor. Returns the rows appended.

        A version at or below the committed one appends nothing and returns 0, so a killed ingest can simply be run again.
        """
        data = pa.Table.from_pylist(list(rows), schema=_schema(table))
        for attempt in range(ATTEMPTS):
            opened = self.open(table) or self._create(table)
            if transaction and _is_committed(opened, transaction):
                return 0
            if self._commit(opened, data, transaction, table=table, is_last=attempt == ATTEMPTS - 1):
                return len(rows)
            time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def transaction_version(self, table: str, source: str) -> int | None:
        """The version last committed for a source; None when there is none."""
        opened = self.open(table)
        return None if opened is None else self._guard(lambda: opened.transaction_version(source), f"reading table {table}")

    def read(self, table: str, *, columns: Sequence[str] | None = None, predicate: pl.Expr | None = None) -> pl.DataFrame:
        """Rows as a polars frame, empty with the right columns when nothing was ever written."""
        opened = self.open(table)
        if opened is None:
            frame = pl.DataFrame(pl.from_arrow(_schema(table).empty_table())).lazy()
        else:
            frame = pl.scan_pyarrow_dataset(opened.to_pyarrow_dataset())
        if predicate is not None:
            frame = frame.filter(predicate)
        if columns is not None:
            frame = frame.select(list(columns))
        return self._guard(frame.collect, f"reading table {table}")

    def open(self, table: str) -> "DeltaTable | None":
        """The Delta table itself, for upkeep, erasure and time travel; None when nothing was ever written."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        _schema(table)
        try:
            return self._guard(
                lambda: DeltaTable(self._url(table), storage_options=self.storage_options), f"opening table {table}"
            )
        except TableNotFoundError:
            return None

    def _create(self, table: str) -> "DeltaTable":
        """The empty table; another writer may make it first."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        url, options = self._url(table), self.storage_options
        try:
            return DeltaTable.create(url, _schema(table), mode="ignore", storage_options=options)
        except (DeltaError, OSError) as error:
            if (opened := self.open(table)) is not None:
                return opened
            raise InfrastructureError(_message(f"creating table {table}", error)) from error

    def _commit(
        self, opened: "DeltaTable", data: pa.Table, transaction: tuple[str, int] | None, *, table: str, is_last: bool
    ) -> bool:
        """Whether the rows are in; False when another writer was faster and the cursor must be looked at again.

        Commits on top of the snapshot whose cursor was looked at: given the URL, deltalake would open a newer one, and miss
        that another writer has just committed this very version.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        transactions = [Transaction(*transaction)] if transaction else None
        properties = CommitProperties(max_commit_retries=COMMIT_RETRIES, app_transactions=transactions)
        try:
            write_deltalake(opened, data, mode="append", commit_properties=properties)
        except (DeltaError, OSError) as error:
            if isinstance(error, CommitFailedError) and not is_last:
                return False
            raise InfrastructureError(_message(f"writing table {table}", error)) from error
        return True

    def _guard(self, action: Callable[[], T], doing: str) -> T:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return action()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError, pl.exceptions.ComputeError) as error:
            raise InfrastructureError(_message(doing, error)) from error

    def _url(self, table: str) -> str:
        return f"{self.root}/tables/{table}"


def _is_committed(opened: "DeltaTable", transaction: tuple[str, int]) -> bool:
    source, version = transaction
    committed = opened.transaction_version(source)
    return committed is not None and committed >= version


def _schema(table: str) -> pa.Schema:
    if table not in SCHEMAS:
        raise ConfigError(f"table {table!r}: the lake has no such table; have {', '.join(SCHEMAS)}")
    return SCHEMAS[table]


def _message(doing: str, error: Exception) -> str:
    text = str(error)
    if "No space left" in text or "os error 28" in text:
        return f"lake: no space left while {doing}; free space on that disk and run again"
    return f"lake: {text} while {doing}; check that the lake can be reached and written"
