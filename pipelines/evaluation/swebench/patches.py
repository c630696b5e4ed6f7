"""Git diffs over files held in memory: parse, apply, make.

Owns what a patch does to text files, with context checked line by line. Refuses binary files, renames and anything but regular
files: those are not what a model's answer needs.
"""

import difflib
import re
from collections.abc import Mapping, Sequence

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

NO_NEWLINE = "\\ No newline at end of file\n"
SPECIAL = re.compile(r"^(?:Binary files .* differ|GIT binary patch|rename (?:from|to) .*|copy (?:from|to) .*)$", re.M)
MODE = re.compile(r"^(?:new file mode|new mode|old mode|deleted file mode) (?!100(?:644|755)$)(\d+)$", re.M)


class PatchError(ValueError):
    """A patch that cannot be read or does not fit the files."""


def parse_patch(patch: str) -> list[PatchedFile]:
    """The files of a patch. Raises PatchError when it is not a readable diff of regular text files."""
    body = "\n".join(line for line in patch.split("\n") if line[:1] not in ("+", "-", " "))
    found = SPECIAL.search(body) or MODE.search(body)
    if found:
        raise PatchError(f"{found[0]!r}: expected changes of regular text files only")
    try:
        files = list(PatchSet(patch))
    except UnidiffParseError as error:
        raise PatchError(f"not a unified diff: {error}") from error
    if not files:
        raise PatchError("no file in the patch")
    return files


def touched_paths(patch: str) -> list[str]:
    """Every path a patch names, old and new, without the a/ and b/ prefixes."""
    names = [name for file in parse_patch(patch) for name in (file.source_file, file.target_file)]
    return list(dict.fromkeys(_strip(name) for name in names if name != "/dev/null"))


def apply_patch(files: Mapping[str, str], patch: str) -> dict[str, str | None]:
    """What the patch changes: path to new content, None for a deleted file. Raises PatchError when it does not fit."""
    changes: dict[str, str | None] = {}
    for file in parse_patch(patch):
        added, removed = _kind(file)
        path = _strip(file.source_file if removed else file.target_file)
        if path in changes:
            raise PatchError(f"{path} occurs twice in the patch")
        if added:
            if path in files:
                raise PatchError(f"{path} exists already and the patch adds it")
            lines: list[str] = []
        elif path not in files:
            raise PatchError(f"{path} does not exist; have {', '.join(sorted(files))}")
        else:
            lines = _lines(files[path])
        new = _apply_hunks(path, lines, file)
        changes[path] = None if removed else "".join(new)
    return changes


def make_patch(path: str, old: str | None, new: str) -> str:
    """A git diff from `old` (None: a new file) to `new`; empty when nothing changes."""
    if old == new:
        return ""
    before, after = _lines(old or ""), _lines(new)
    header = f"diff --git a/{path} b/{path}\n" + ("new file mode 100644\n" if old is None else "")
    names = ("/dev/null" if old is None else f"a/{path}", f"b/{path}")
    lines = difflib.unified_diff(before, after, *names)
    return header + "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)


def _kind(file: PatchedFile) -> tuple[bool, bool]:
    """Added and removed, by the header; unidiff's own properties also say so of an existing empty file."""
    header = str(file.patch_info or "")
    added = file.source_file == "/dev/null" or "\nnew file mode " in header
    return added, file.target_file == "/dev/null" or "\ndeleted file mode " in header


def _apply_hunks(path: str, lines: Sequence[str], file: PatchedFile) -> list[str]:
    result: list[str] = []
    position = 0
    for hunk in file:
        before, after = _sides(hunk)
        start = _locate(lines, before, wanted=max(hunk.source_start - 1, 0) if before else hunk.source_start, floor=position)
        if start is None:
            raise PatchError(f"{path}: the hunk at line {hunk.source_start} does not fit the file")
        result += [*lines[position:start], *after]
        position = start + len(before)
    return [*result, *lines[position:]]


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """The lines a hunk expects and the lines it leaves."""
    before: list[str] = []
    after: list[str] = []
    sides: list[list[str]] = []
    for line in hunk:
        if line.line_type == "\\":
            for side in sides:
                side[-1] = side[-1].removesuffix("\n")
            continue
        sides = [side for side, kinds in ((before, " -"), (after, " +")) if line.line_type in kinds]
        for side in sides:
            side.append(line.value)
    return before, after


def _locate(lines: Sequence[str], before: Sequence[str], *, wanted: int, floor: int) -> int | None:
    """Where the expected lines stand: at the stated line, else the nearest place after the previous hunk."""
    places = range(floor, len(lines) - len(before) + 1)
    for start in sorted(places, key=lambda place: abs(place - wanted)):
        if list(lines[start : start + len(before)]) == list(before):
            return start
    return None


def _lines(text: str) -> list[str]:
    """Split after line feeds only: str.splitlines also splits at U+2028 and form feeds."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _strip(name: str) -> str:
    return name[2:] if name.startswith(("a/", "b/")) else name
