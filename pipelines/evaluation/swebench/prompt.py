"""The one-shot prompt: the problem and the files, answered by whole corrected files.

A small model writes a whole short file more reliably than a diff with right line numbers; the diff is computed from it.
"""

from collections.abc import Mapping

from pipelines.evaluation.swebench.instance import Instance
from pipelines.evaluation.swebench.patches import make_patch
from pipelines.evaluation.swebench.tampering import refusal
from pipelines.traces.model import Message, Role

SYSTEM = "You fix bugs in Python code. Answer with the whole corrected file in one ```python block and nothing else."


def build_prompt(instance: Instance, files: Mapping[str, str]) -> tuple[Message, ...]:
    """The messages for one instance: problem statement, then every file that an answer may change."""
    shown = [f"File `{path}`:\n```python\n{files[path].rstrip()}\n```" for path in editable_files(files)]
    several = "Begin the block with a comment that names the file.\n\n" if len(shown) > 1 else ""
    text = f"{instance.problem_statement.strip()}\n\n{several}" + "\n\n".join(shown)
    return Message(Role.SYSTEM, SYSTEM), Message(Role.USER, text)


def editable_files(files: Mapping[str, str]) -> list[str]:
    """Paths of the Python files that are neither tests nor empty, sorted."""
    return sorted(p for p in files if p.endswith(".py") and files[p].strip() and refusal(make_patch(p, None, "x\n")) is None)
