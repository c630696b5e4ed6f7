"""OpenTelemetry traces in OTLP's JSON: documents, lines of the collector's file exporter, and bare lists of spans.

The wire format is opentelemetry.io/docs/specs/otlp, section JSON Protobuf Encoding: hex ids, enums as numbers, 64-bit integers as
text; protobuf's own JSON mapping (base64 ids, enum names), snake_case names and what the SDKs' console exporters print are read
too. A trace is spread over records: spans come late, twice, out of order, without their parents. A run is one trace id.

What spans say is `otlp_spans`' affair, joining steps into a conversation is `langfuse`'s. Refuses traces without a GenAI span.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import JsonValue

from pipelines.traces.formats.langfuse import Step, scalar_facts, tell, tree_order
from pipelines.traces.json_text import unwrap
from pipelines.traces.model import Feedback, Outcome, Source, Trace
from pipelines.traces.openai_messages import as_dict, as_list, as_text
from pipelines.traces.otlp_spans import Fields, Span, is_genai, kind_of, read_attributes, read_span, read_step, trace_id

_FACTS = {
    "agent": ("gen_ai.agent.name", "agent.name"),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "service_name": ("service.name",),
    "service_version": ("service.version",),
    "environment": ("deployment.environment.name", "deployment.environment"),
    "repository": ("vcs.repository.url.full", "vcs.repository.name"),
    "base_commit": ("vcs.ref.head.revision", "vcs.repository.ref.revision"),
    "cwd": ("process.working_directory",),
}
"""Our name of a fact, and the attributes of spans or resources that tell it."""
_CONVERSATION = ("gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id", "gen_ai.thread.id")
_USER = ("user.id", "enduser.id", "traceloop.association.properties.user_id")


def match(record: JsonValue) -> int:
    fields = as_dict(record[0]) if isinstance(record, list) and record else as_dict(record)
    return 2 if _is_batch(fields) or _is_span(fields) else 0


def parts(record: JsonValue) -> list[tuple[str, JsonValue]]:
    """Each span with its resource's attributes, under the id of its trace."""
    items = record if isinstance(record, list) else [record]
    found = ((span, resource) for item in items for span, resource in _spans(as_dict(item)))
    return [(trace_id(span) or "", {"span": span, "resource": resource}) for span, resource in found]


def parse(record: JsonValue, source: Source) -> Trace:
    found = parts(record)
    if len(ids := {run_id for run_id, _ in found}) > 1:
        raise ValueError(f"{len(ids)} traces in one record; expected one")
    return parse_parts([part for _, part in found], source)


def parse_parts(parts: Sequence[JsonValue], source: Source) -> Trace:
    """One trace out of its spans."""
    sources = [as_dict(part) for part in parts]
    spans = _distinct(
        [read_span(as_dict(part.get("span")), as_dict(part.get("resource")), index) for index, part in enumerate(sources)]
    )
    if not any(is_genai(span) for span in spans):
        raise ValueError(f"no GenAI span among the {len(spans)} spans of the trace")
    own_id = next(filter(None, (trace_id(as_dict(part.get("span"))) for part in sources)), None)
    if own_id is None:
        raise ValueError("a span without a traceId")
    known = {span.id: span for span in spans}
    steps = _without_circles(tree_order([read_step(span, kind_of(span), _parent(span, known)) for span in spans]))
    ordered = [known[step.id] for step in steps]
    outer = next((step for step in steps if step.kind == "other" and (step.inputs or step.outputs)), None)
    told = tell(_with_agents(steps, known), {"input": outer.inputs, "output": outer.outputs} if outer else {})
    starts, ends = [s.start for s in spans if s.start], [s.end for s in spans if s.end]
    return Trace(
        id=own_id,
        messages=told.messages,
        source=source,
        tools=told.tools or next((step.tools for step in steps if step.tools), ()),
        outcome=Outcome.FAILURE if told.error else Outcome.UNKNOWN,
        error=told.error,
        feedback=tuple(_feedback(ordered)),
        usage=told.usage,
        model=told.model,
        conversation_id=_fact(ordered, _CONVERSATION),
        user=_fact(ordered, _USER),
        started_at=datetime.fromtimestamp(min(starts) / 1e9, UTC) if starts else None,
        duration_s=max(max(ends) - min(starts), 0) / 1e9 if starts and ends else None,
        attributes=_attributes(ordered) | told.attributes,
    )


def _is_batch(fields: Fields) -> bool:
    return any(isinstance(fields.get(name), list) for name in ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans"))


def _is_span(fields: Fields) -> bool:
    context = fields.get("context")
    if isinstance(context, dict) and "trace_id" in context and "span_id" in context:
        return isinstance(fields.get("attributes"), dict)
    has_ids = ("traceId" in fields and "spanId" in fields) or ("trace_id" in fields and "span_id" in fields)
    is_timed = "startTimeUnixNano" in fields or "start_time_unix_nano" in fields
    return has_ids and (is_timed or isinstance(fields.get("attributes"), list))


def _spans(fields: Fields) -> Iterator[tuple[Fields, Fields]]:
    """Spans of a document, of one resource's entry in it, or the span itself, each with the attributes of its resource."""
    if _is_span(fields):
        yield fields, read_attributes(as_dict(fields.get("resource")).get("attributes"))
        return
    entries = as_list(fields.get("resourceSpans")) or as_list(fields.get("resource_spans")) or [fields]
    for entry in map(as_dict, entries):
        resource = read_attributes(as_dict(entry.get("resource")).get("attributes"))
        scopes = (entry.get(name) for name in ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"))
        for scope in (item for place in scopes for item in as_list(place)):
            for span in as_list(as_dict(scope).get("spans")):
                yield as_dict(span), resource


def _distinct(spans: Sequence[Span]) -> list[Span]:
    """Each span once: the last that is complete, as spans are exported again on a retry or written before they end."""
    found: dict[str, Span] = {}
    for span in spans:
        known = found.get(span.id)
        if known is None or span.end is not None or known.end is None:
            found[span.id] = span
    return list(found.values())


def _parent(span: Span, known: Mapping[str, Span]) -> str | None:
    """The parent; an agent whose caller is not in the file began the run here."""
    is_agent = "gen_ai.agent.name" in span.attributes or span.attributes.get("openinference.span.kind") == "AGENT"
    return None if is_agent and span.parent not in known else span.parent


def _without_circles(ordered: Sequence[Step]) -> list[Step]:
    """The steps in a tree: in a circle of parents each is above the others, and all would pass for repetitions."""
    places = {step.id: index for index, step in enumerate(ordered)}
    return [
        replace(step, parent=None) if places.get(step.parent or "", -1) >= index else step for index, step in enumerate(ordered)
    ]


def _with_agents(steps: Sequence[Step], known: Mapping[str, Span]) -> list[Step]:
    """Where no model call tells what was said, since only agents were told to log it, the outermost agents count as calls."""
    if any(step.kind == "model" and (step.inputs or step.outputs) for step in steps):
        return list(steps)
    agents = [step for step in steps if step.kind == "other" and _holds_messages(step)]
    agents = agents or [step for step in steps if step.kind == "other" and (step.inputs or step.outputs)][:1]
    wanted, beneath = {step.id for step in agents}, set[str]()
    for step in steps:
        if step.parent in wanted or step.parent in beneath:
            beneath.add(step.id)
            wanted.discard(step.id)
    return [read_step(known[step.id], "model", step.parent) if step.id in wanted else step for step in steps]


def _holds_messages(step: Step) -> bool:
    return any("role" in as_dict(next(iter(as_list(side)), None)) for side in (step.inputs, step.outputs))


def _feedback(spans: Sequence[Span]) -> Iterator[Feedback]:
    """Evaluations that were recorded as events; who judged is not among what the event tells, so it is code."""
    for name, body in (event for span in spans for event in span.events):
        value = body.get("gen_ai.evaluation.score.value", body.get("gen_ai.evaluation.score.label"))
        if name == "gen_ai.evaluation.result" and isinstance(value, str | int | float):
            label = as_text(body.get("gen_ai.evaluation.name")) or "evaluation"
            yield Feedback(label, value, "code", as_text(body.get("gen_ai.evaluation.explanation")))


def _fact(spans: Sequence[Span], names: Sequence[str]) -> str | None:
    """The first of the names that a span or its resource has, outermost span first."""
    for name in names:
        for span in spans:
            value = span.attributes.get(name, span.resource.get(name))
            if isinstance(value, str | int) and value != "":
                return str(value)
    return None


def _attributes(spans: Sequence[Span]) -> dict[str, str]:
    metadata = next((value for span in spans if (value := as_dict(unwrap(span.attributes.get("metadata"))))), {})
    found = {name: _fact(spans, names) for name, names in _FACTS.items()}
    found["name"] = spans[0].name
    return scalar_facts(metadata) | {name: value for name, value in found.items() if value}
