"""A person took the run over, or stopped it.

Evidence: attribute `interrupted` and its like, or an `exit_status` that says so; calls that the user refused (`num_refused_calls`);
a call that hands the conversation to a person, as its name says; feedback that says it was transferred or escalated. Not: a
hand-off from one agent to another (transfer_to_billing_agent), one that was expected, and somebody's wish to be transferred.
"""

import re
from collections.abc import Iterator

from pipelines.traces.corrections import expected_calls
from pipelines.traces.model import Feedback, Signal, SignalKind, Trace

WEIGHT = 0.5

_FACT = re.compile(
    r"interrupted|(?:human_|user_)?takeover|taken_over|escalated(?:_to_human)?|transferred_to_(?:human|agent)|human_handoff"
    r"|handed_off_to_human"
)
_YES = ("true", "yes", "1", "1.0")
_STOPPED = re.compile(
    r"interrupted|keyboard_?interrupt|(?:cancell?ed|aborted)_by_user|user_(?:cancell?ed|aborted)", re.IGNORECASE
)
_MOVES = frozenset(
    ["transfer", "escalate", "escalation", "handoff", "handover", "hand", "forward", "connect", "route", "takeover"]
)
_PEOPLE = frozenset(["human", "humans", "operator", "representative", "staff"])
_SAID = re.compile(
    r"\b(?:transferred|escalated|handed (?:off|over)|forwarded|passed on) (?:\w+ ){0,2}to (?:an? |the |our )?"
    r"(?:live |human |real |support )?(?:agents?|humans?|person|operators?|representatives?|supervisors?|staff|support|colleague)\b"
    r"|\btaken over by (?:an? |the |our )?(?:human|agent|person|operator|staff|colleague)\b",
    re.IGNORECASE,
)
_WISH = re.compile(
    r"\b(?:not|never|no|without|wants?|wanted|should|could|would|be|asked|unless|instead|if)\b|n['\u2019]t\b", re.IGNORECASE
)


def find(trace: Trace) -> Iterator[Signal]:
    for name, value in trace.attributes.items():
        if _FACT.fullmatch(_key(name)) and value.strip().casefold() in _YES:
            yield Signal(SignalKind.TAKEOVER, _key(name))
    if _STOPPED.fullmatch(status := trace.attributes.get("exit_status", "")):
        yield Signal(SignalKind.TAKEOVER, status)
    if (count := trace.attributes.get("num_refused_calls", "0")) not in ("0", ""):
        yield Signal(SignalKind.TAKEOVER, f"the user refused {count} of the agent's calls")
    expected = {call.name for call in expected_calls(trace)}
    for message in trace.messages:
        for call in message.tool_calls:
            if call.name not in expected and _is_handoff(call.name):
                yield Signal(SignalKind.TAKEOVER, f"handed to a person by {call.name}")
    for item in trace.feedback:
        if told := _told(item):
            yield Signal(SignalKind.TAKEOVER, told)


def _is_handoff(tool: str) -> bool:
    words = set(_key(tool).split("_"))
    to_live_agent = "live" in words and bool(words & {"agent", "chat", "support"})
    return bool(words & _MOVES) and (to_live_agent or bool(words & _PEOPLE))


def _told(item: Feedback) -> str:
    """What an item of feedback says about a takeover; empty when it says nothing. A judging model's prose is no report."""
    if _FACT.fullmatch(_key(item.name)) and str(item.value).strip().casefold() in _YES:
        return f"{item.name} by {item.source}"
    for text in (item.value, item.rationale):
        if item.source == "llm_judge" or not isinstance(text, str) or (found := _SAID.search(text)) is None:
            continue
        sentence = re.split(r"[.!?;\n]", text[: found.start()])[-1]
        if not _WISH.search(sentence[-60:]):
            return f"{item.name}: {text}"
    return ""


def _key(name: str) -> str:
    """A name in snake case, without the namespaces before it: `support.transferToHuman` is `transfer_to_human`."""
    last = re.split(r"[.:/]|__", name)[-1]
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)).strip("_").casefold()
