"""Commands to look at data: `everloop ingest --dry-run`, `everloop cases`, `everloop quarantine`. They change nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from flows.terminal import make_console, read_settings
from pipelines.errors import ConfigError, InputError
from pipelines.traces.model import Rejection, Trace

SHOWN_ROWS = 50

cases = typer.Typer(no_args_is_help=True, help="Edge cases: the runs where the agent failed, as the lake holds them.")
quarantine = typer.Typer(no_args_is_help=True, help="Records that could not be used, each with its reason.")

Limit = Annotated[int, typer.Option(min=1, help="Show at most so many, the newest.")]


def ingest(
    files: Annotated[list[Path] | None, typer.Argument(help="Trace files; none: those in the lake's inbox/.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count, store nothing.")] = False,
) -> None:
    """Show what trace files hold before a cycle reads them: format, runs, rejections with their reasons."""
    from flows.pages import files_table, rejected_lines
    from pipelines.traces.summary import summarise

    if not dry_run:
        raise ConfigError(
            "ingest: give --dry-run to look at files; a cycle (`everloop run`) ingests what lies in the lake's inbox/"
        )
    console = make_console()
    summaries = []
    with console.status("reading") as spinner:
        for location, results in _local(files) if files else _inbox():
            spinner.update(f"reading {location}")
            summaries.append(summarise(location, results))
    if not summaries:
        console.print("No files: the lake's inbox/ is empty.")
        return
    console.print(files_table(summaries))
    for line in rejected_lines(summaries):
        console.print(line)


@cases.command("ls", epilog="[bold]Example[/]\n\n[cyan]everloop cases ls[/]")
def list_cases(limit: Limit = SHOWN_ROWS) -> None:
    """List the edge cases."""
    from flows.pages import cases_table
    from infra.lake import open_lake
    from pipelines.traces.table import edge_case_from_row

    frame = open_lake(read_settings()).read("edge_cases").sort("started_at", descending=True, nulls_last=True)
    make_console().print(cases_table([edge_case_from_row(row) for row in frame.head(limit).iter_rows(named=True)]))


@cases.command("show", epilog="[bold]Example[/]\n\n[cyan]everloop cases show tr-4f6c[/]  (the start of an id is enough)")
def show_case(trace: Annotated[str, typer.Argument(help="Trace id, or its start.")]) -> None:
    """Show one edge case as a page: why it counts as a failure, the conversation, feedback and corrections."""
    from flows.pages import case_page
    from infra.lake import open_lake
    from pipelines.traces.table import edge_case_from_row

    rows = open_lake(read_settings()).read("edge_cases", predicate=pl.col("trace_id").str.starts_with(trace))
    ids = rows["trace_id"].unique(maintain_order=True).to_list()
    _require_one("edge case", trace, ids, "everloop cases ls")
    make_console().print(case_page(edge_case_from_row(rows.row(-1, named=True))))


@quarantine.command("ls", epilog="[bold]Example[/]\n\n[cyan]everloop quarantine ls[/]")
def list_quarantine(limit: Limit = SHOWN_ROWS) -> None:
    """List the records in quarantine."""
    from flows.pages import rejections_table
    from infra.lake import open_lake
    from pipelines.traces.table import rejection_from_row

    frame = open_lake(read_settings()).read("rejections").unique("digest", keep="last", maintain_order=True).tail(limit)
    make_console().print(rejections_table([(row["digest"], rejection_from_row(row)) for row in frame.iter_rows(named=True)]))


@quarantine.command("show", epilog="[bold]Example[/]\n\n[cyan]everloop quarantine show 1f2e3d[/]")
def show_quarantined(key: Annotated[str, typer.Argument(help="Id from `everloop quarantine ls`, or its start.")]) -> None:
    """Show one refused record: where it stood, why it was refused, and its text."""
    from flows.pages import rejection_page
    from infra.lake import open_lake
    from pipelines.traces.table import rejection_from_row

    rows = open_lake(read_settings()).read("rejections", predicate=pl.col("digest").str.starts_with(key))
    found = rows["digest"].unique(maintain_order=True).to_list()
    _require_one("record in quarantine", key, found, "everloop quarantine ls")
    make_console().print(rejection_page(found[0], rejection_from_row(rows.row(-1, named=True))))


def _require_one(what: str, key: str, found: list[str], command: str) -> None:
    if len(found) != 1:
        shown = f"{len(found)} begin so, among them {', '.join(found[:3])}" if found else "none begins so"
        raise InputError(f"{what} {key!r}: {shown}; `{command}` lists them")


def _local(files: list[Path]) -> Iterator[tuple[str, Iterator[Trace | Rejection]]]:
    from pipelines.traces.formats import parse_file

    for file in files:
        yield str(file), parse_file(file.read_bytes(), location=str(file))


def _inbox() -> Iterator[tuple[str, Iterator[Trace | Rejection]]]:
    from infra.lake import open_lake
    from infra.sources import list_inbox, read_inbox_file

    lake = open_lake(read_settings())
    for file in list_inbox(lake).files:
        yield file.path, read_inbox_file(lake, file)
