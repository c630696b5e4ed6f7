"""From a model's answer to a patch.

Owns reading fenced blocks: whole files, from which the diff is computed, or a diff as it is. Refuses to guess which file a block
is when several could be meant.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.evaluation.swebench.patches import make_patch
from pipelines.evaluation.swebench.prompt import editable_files

# a block that is never closed ends with the text, as in CommonMark
BLOCK = re.compile(r"^[ ]{0,3}```(?P<info>[^\n`]*)\n(?P<body>.*?)(?:^[ ]{0,3}```[ \t]*$|\Z)", re.M | re.S)
PATH = re.compile(r"[\w./-]*[\w-]\.py\b")
NAMED = re.compile(r"^#\s*(?:file(?:name)?|path)?\s*:?\s*`?(?P<path>[\w./-]*[\w-]\.py)`?\s*$", re.I)


@dataclass(frozen=True, slots=True)
class Extraction:
    patch: str
    """A git diff; empty when there is none."""
    reason: str
    """Why there is none; empty otherwise."""


def extract_patch(answer: str, files: Mapping[str, str]) -> Extraction:
    """The patch that the answer means for `files`; the last block of a file counts."""
    wanted: dict[str, str] = {}
    diffs: list[str] = []
    above = 0
    for block in BLOCK.finditer(answer):
        info, body = block["info"].strip(), block["body"]
        if info.lower() in ("diff", "patch") or body.startswith(("diff --git ", "--- ")):
            diffs.append(body if body.endswith("\n") else body + "\n")
            continue
        path, content = _whole_file(info, body, answer[above : block.start()], files)
        above = block.end()
        if path is None:
            return Extraction("", f"a block names none of the files {', '.join(editable_files(files))}")
        wanted[path] = content
    if wanted:
        patch = "".join(make_patch(path, files.get(path), content) for path, content in sorted(wanted.items()))
        return Extraction(patch, "" if patch else "the answer changes nothing")
    if diffs:
        return Extraction("".join(diffs), "")
    return Extraction("", "no fenced block in the answer")


def _whole_file(info: str, body: str, above: str, files: Mapping[str, str]) -> tuple[str | None, str]:
    """Which file a block is and its content: named in the info string, its first line, the line above, or the only one."""
    content = body.rstrip() + "\n"
    first, _, rest = content.partition("\n")
    named = NAMED.match(first.strip())
    candidates = [*PATH.findall(info)]
    if named:
        candidates.append(named["path"])
        if not any(text.startswith(first) for text in files.values()):
            content = rest.lstrip("\n")
    lines = [line for line in above.splitlines() if line.strip()]
    candidates += PATH.findall(lines[-1])[-1:] if lines else []
    if candidates:
        path = candidates[0].removeprefix("./")
        same_name = [p for p in files if p.rpartition("/")[2] == path]
        return (path if path in files or len(same_name) != 1 else same_name[0]), content
    only = editable_files(files)
    return (only[0] if len(only) == 1 else None), content
