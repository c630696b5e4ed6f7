"""A filter or a policy outside the model stopped it.

Evidence: `finish_reason` of a content filter; an attribute or a check named after a guardrail, content filter or moderation whose
value says that it struck; the error of the run or of a tool, in the words of providers and frameworks. Not: that a guardrail ran
and let it pass, its name or version, the model's own refusal (`refusal`), and talk about policies.
"""

import re
from collections.abc import Iterator

from pipelines.traces.model import Signal, SignalKind, Trace
from pipelines.traces.signals.tool_error import tool_problems

WEIGHT = 0.4

_FINISH_REASON = re.compile(
    r"content_?filter(?:ed)?|(?:image_)?safety|prohibited_content|blocklist|spii|recitation|guardrails?(?:_intervened)?",
    re.IGNORECASE,
)
_NAME = re.compile(r"guard_?rail|content_?filter|content_?safety|moderation|tripwire|responsible_?ai", re.IGNORECASE)
_STRUCK = re.compile(
    r"blocked|block|denied|deny|triggered|tripped|(?:guardrail_)?intervened|flagged|rejected|filtered|violated|violation|stopped",
    re.IGNORECASE,
)
_YES = ("true", "yes", "1", "1.0")
_POLICY_NAME = r"(?:content|safety|security|usage|acceptable use|organi[sz]ation|company|compliance|privacy|moderation)"
_ERROR = re.compile(
    r"guardrail\w{0,40}(?: \w{1,40}){0,3} (?:triggered|intervened|violated|blocked|rejected)|GuardrailTripwireTriggered"
    r"|(?:violated|violates|(?:blocked|rejected|denied|stopped) by)(?: \w{1,40}){0,3} guardrail"
    r"|content management policy|ResponsibleAIPolicyViolation|content_policy_violation|ContentPolicyViolationError"
    r"|(?:^|\bcode\W{1,6})content_filter\b|(?:our|the) safety system|\bcontent filter(?:ing)? policy"
    rf"|(?:blocked|filtered|rejected|denied|disallowed) by (?:(?:the|our|your|an?) )?(?:{_POLICY_NAME} )?(?:polic(?:y|ies)|filters?)\b"
    rf"|violat(?:es|ed|ing|ions?) (?:of )?(?:(?:the|our|your) )?{_POLICY_NAME} polic(?:y|ies)",
    re.IGNORECASE,
)


def find(trace: Trace) -> Iterator[Signal]:
    for said in _evidence(trace):
        yield Signal(SignalKind.GUARDRAIL, said)


def _evidence(trace: Trace) -> Iterator[str]:
    reason = trace.attributes.get("finish_reason", "")
    if _FINISH_REASON.fullmatch(reason.replace("-", "_")):
        yield f"the answer was stopped: {reason}"
    facts = [*trace.attributes.items(), *((item.name, item.value) for item in trace.feedback if item.source == "code")]
    for name, value in facts:
        if _NAME.search(name) and _has_struck(name, str(value).strip().casefold()):
            yield f"{name} = {value}"
    for problem in (trace.error or "", *tool_problems(trace)):
        if _ERROR.search(problem):
            yield problem


def _has_struck(name: str, value: str) -> bool:
    """`guardrail.action = blocked` and `moderation_flagged = true`, not `guardrails = true`."""
    return _STRUCK.fullmatch(value) is not None or (value in _YES and _STRUCK.search(name) is not None)
