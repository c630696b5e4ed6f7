"""Pages for people, on the terminal: an edge case as one reads a conversation, and tables of cases and rejections.

Owns how they look. Refuses to read the lake (`flows.data_commands` does).
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pipelines.artifacts import to_json
from pipelines.traces.model import EdgeCase, Message, Rejection, Role
from pipelines.traces.summary import FileSummary

COLOURS = {Role.SYSTEM: "bright_black", Role.USER: "cyan", Role.ASSISTANT: "green", Role.TOOL: "yellow"}
SHOWN_CHARS = 4000
"""Of one message; the rest is in the lake."""


def case_page(case: EdgeCase) -> Group:
    """One failed run: what it was, why it counts as a failure, the conversation, and what people said about it."""
    trace = case.trace
    facts = Table.grid(padding=(0, 2))
    for name, value in (
        ("trace", trace.id),
        ("source", f"{trace.source.format}, {trace.source.location}"),
        ("model", trace.model),
        ("started", trace.started_at.isoformat() if trace.started_at else None),
        ("outcome", trace.outcome.value),
        ("error", trace.error),
        ("cluster", case.cluster),
        ("severity", f"{case.severity:.2f}"),
        *trace.attributes.items(),
    ):
        if value:
            facts.add_row(Text(name, style="bold"), Text(value))
    signals = [Text(f"  {signal.kind.value}: {signal.detail}", style="red") for signal in case.signals]
    said = [Text(f"  {f.name} = {_plain(f.value)} ({f.source}) {f.rationale or ''}") for f in trace.feedback]
    wanted = [Text(f"  {e.name} = {_plain(e.value)}" + (f" by {e.author}" if e.author else "")) for e in trace.expectations]
    return Group(
        facts,
        *_section("Why it is an edge case", signals),
        *_section("Conversation", [_message(message) for message in trace.messages]),
        *_section("Feedback", said),
        *_section("Expected instead", wanted),
    )


def cases_table(cases: Sequence[EdgeCase]) -> Table:
    table = _table("trace", "signals", "cluster", "severity", "model", title=f"{len(cases)} edge cases")
    for case in cases:
        kinds = ", ".join(sorted({signal.kind.value for signal in case.signals}))
        table.add_row(escape(case.trace.id), kinds, escape(case.cluster), f"{case.severity:.2f}", escape(case.trace.model or ""))
    return table


def rejections_table(rejections: Sequence[tuple[str, Rejection]]) -> Table:
    """Rejections under the digests they are found by."""
    table = _table("id", "reason", "where", "why", title=f"{len(rejections)} records in quarantine")
    for key, rejection in rejections:
        table.add_row(key[:12], rejection.reason.value, escape(_where(rejection)), escape(rejection.detail))
    return table


def rejection_page(key: str, rejection: Rejection) -> Group:
    """Everything kept of a refused record; its raw text is redacted and cut."""
    return Group(
        Text(f"{key}\n{rejection.reason.value}: {rejection.detail}\n{_where(rejection)} (format {rejection.source.format})\n"),
        Panel(Text(rejection.raw or "(nothing was kept)"), title="raw, redacted"),
    )


def files_table(summaries: Sequence[FileSummary]) -> Table:
    """What `everloop ingest --dry-run` found, a row per file and a line per kind of rejection."""
    columns = ("file", "format", "runs", "messages", "tool calls", "judged", "rejected")
    table = _table(*columns, title="Dry run: nothing was stored")
    for s in summaries:
        formats = ", ".join(f"{name} {count}" if len(s.runs) > 1 else name for name, count in s.runs.most_common()) or "none"
        counts = (s.num_runs, s.num_messages, s.num_tool_calls, s.num_judged, s.num_rejected)
        table.add_row(escape(s.location), formats, *map(str, counts))
    return table


def rejected_lines(summaries: Sequence[FileSummary]) -> list[Text]:
    """The first rejections of each file in full."""
    lines: list[Text] = []
    for summary in summaries:
        for reason, details in summary.details.items():
            lines += [Text(f"{summary.location}: {reason}: {detail}") for detail in details]
            hidden = summary.rejected[reason] - len(details)
            lines += [Text(f"{summary.location}: {reason}: and {hidden} more")] if hidden > 0 else []
    return lines


def _table(*columns: str, title: str) -> Table:
    """A table that never cuts an id or a path: they are there to be copied."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _section(title: str, parts: Sequence[RenderableType]) -> list[RenderableType]:
    return [Text(f"\n{title}", style="bold"), *parts] if parts else []


def _message(message: Message) -> Panel:
    body = Text(_cut(message.content or ""))
    for call in message.tool_calls:
        body.append(f"\n-> {call.name}({_cut(call.raw_arguments)})" if body else f"-> {call.name}({_cut(call.raw_arguments)})")
    return Panel(body, title=message.role.value, title_align="left", border_style=COLOURS[message.role])


def _where(rejection: Rejection) -> str:
    at = "" if rejection.source.position is None else f" at byte {rejection.source.position}"
    return f"{rejection.source.location}{at}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} ... ({len(text) - SHOWN_CHARS} more characters)"


def _plain(value: object) -> str:
    return _cut(value if isinstance(value, str) else to_json(value).decode())
