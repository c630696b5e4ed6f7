"""The decision as a Markdown note for the MLflow run: verdict first, since a run description folds after a few lines."""

from collections.abc import Sequence

from pipelines.promotion.decision import Decision, Evidence, Outcome, describe_gain

HEADLINES = {
    Outcome.PROMOTE: "Promote",
    Outcome.HOLD: "Hold",
    Outcome.REJECT: "Reject",
}
MAX_LISTED_TASKS = 10


def to_markdown(decision: Decision, evidence: Evidence, *, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Verdict, the reason for it, every check, then `facts` (label and value) the caller adds, such as cost and model version."""
    lines = [f"**{HEADLINES[decision.verdict]}**: {_because(decision, evidence)}", ""]
    if decision.additional_tasks is not None:
        lines += [f"{decision.additional_tasks} more hold-out tasks would decide it.", ""]
    lines += [f"- {label}: {value}" for label, value in facts]
    lines += ["", "| check | result | what was seen |", "| --- | --- | --- |"]
    lines += [f"| {r.check} | {'passed' if r.passed else r.verdict} | {_cell(r.detail)} |" for r in decision.reasons]
    lines += [
        "",
        *_changed_tasks("Newly solved", evidence.holdout.newly_solved),
        *_changed_tasks("Newly broken", evidence.holdout.newly_broken),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _because(decision: Decision, evidence: Evidence) -> str:
    if decision.verdict is Outcome.PROMOTE:
        return describe_gain(evidence.holdout)
    decisive = [r for r in decision.reasons if r.verdict is decision.verdict]
    return "; ".join(f"{r.check}: {r.detail}" for r in decisive)


def _changed_tasks(title: str, task_ids: tuple[str, ...]) -> list[str]:
    if not task_ids:
        return []
    rest = f" and {len(task_ids) - MAX_LISTED_TASKS} more" if len(task_ids) > MAX_LISTED_TASKS else ""
    return [f"{title} ({len(task_ids)}): {', '.join(f'`{t}`' for t in task_ids[:MAX_LISTED_TASKS])}{rest}", ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
