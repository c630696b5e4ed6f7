"""Grading a test run by the rules of SWE-bench, from output that the code under test could have tried to forge.

Owns the markers with their nonce, the pytest log parser, the signed report of outcomes, and resolved or not with the reason. A
run that never reached the tests is an InfrastructureError, never a grade.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from pipelines.errors import ConfigError, InfrastructureError
from pipelines.evaluation.swebench.instance import Instance

START = ">>>>> Start Test Output"
END = ">>>>> End Test Output"
STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
PASSING = frozenset({"PASSED", "XFAIL"})
MAINTAINED = PASSING | {"SKIPPED"}
TAMPERING = "tampering"
SESSION = re.compile(r"^>>>>> Session (?P<signature>\S+)$", re.M)
"""Written by the test runner before it imports code under test; without it the runner itself did not start."""
REPORT = re.compile(r"^>>>>> Outcomes (?P<signature>\S+) (?P<body>.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Grade:
    resolved: bool
    reason: str
    """Why it is not resolved, or what passed."""
    fail_to_pass: dict[str, bool] = field(default_factory=dict)
    pass_to_pass: dict[str, bool] = field(default_factory=dict)
    tampered: bool = False
    """The output shows an attempt to forge the result."""


def mark(eval_script: str, nonce: str) -> str:
    """The script with this run's nonce in its markers. Raises ConfigError when it does not have each marker once."""
    for marker in (START, END):
        if eval_script.count(marker) != 1:
            raise ConfigError(f"eval_script has {marker!r} {eval_script.count(marker)} times; expected once")
    return eval_script.replace(START, f"{START} {nonce}").replace(END, f"{END} {nonce}")


def grade(instance: Instance, output: str, *, nonce: str, key: bytes, ended_by: str | None = None) -> Grade:
    """Grade the combined output of a marked script whose tests reported with `key`.

    `ended_by` names the limit that ended the run, if one did. Raises InfrastructureError when the tests never started.
    """
    if instance.log_parser not in LOG_PARSERS or instance.eval_type != "pass_and_fail":
        known = ", ".join(sorted(LOG_PARSERS))
        seen = f"{instance.log_parser} and {instance.eval_type}"
        raise ConfigError(f"{instance.instance_id}: cannot grade {seen}; have {known} and pass_and_fail")
    if not any(_is_signed(key, "begun", session["signature"]) for session in SESSION.finditer(output)):
        raise InfrastructureError(f"{instance.instance_id}: the tests never started: {output.strip()[-300:] or 'no output'}")
    section, problem = _section(output, nonce)
    if section is None:
        if problem.startswith(TAMPERING):
            return Grade(False, problem, tampered=True)
        return Grade(False, f"the tests were ended by the limit on {ended_by}" if ended_by else problem)
    logged = LOG_PARSERS[instance.log_parser](section)
    reported, forged = _reported(section, key)
    if forged:
        return Grade(False, f"{TAMPERING}: a report of outcomes with a wrong signature", tampered=True)
    graded = (*instance.fail_to_pass, *instance.pass_to_pass)
    if reported is None:
        claimed = any(_status(name, logged) in PASSING for name in graded)
        return Grade(False, "the test session ended early, without its signed report of outcomes", tampered=claimed)
    for name in graded:
        if _status(name, logged) in PASSING and _status(name, reported) not in MAINTAINED:
            return Grade(False, f"{TAMPERING}: the log says that {name} passed and the signed report does not", tampered=True)
    return _resolve(instance, reported)


def parse_pytest_log(log: str) -> dict[str, str]:
    """Test name to status, from the lines of `pytest -rA`; the last line of a test counts."""
    statuses: dict[str, str] = {}
    for line in log.split("\n"):
        status, _, rest = line.partition(" ")
        name = rest.split(" - ", 1)[0].split()[:1]
        # `SKIPPED [2] file.py:3: reason` is a count, not a test
        if status in STATUSES and name and not (status == "SKIPPED" and re.fullmatch(r"\[\d+\]", name[0])):
            statuses[name[0]] = status
    return statuses


LOG_PARSERS = {"parse_log_pytest": parse_pytest_log}


def _section(output: str, nonce: str) -> tuple[str | None, str]:
    """What stands between the markers, or why that cannot be graded.

    The shell echoes each marker once; any further occurrence was printed by the code under test.
    """
    starts, ends = (len(re.findall(re.escape(marker), output)) for marker in (START, END))
    start, end = output.find(f"{START} {nonce}"), output.find(f"{END} {nonce}")
    if starts > 1 or ends > 1 or (starts and start < 0) or (ends and end < start):
        return None, f"{TAMPERING}: a marker of the test output occurs twice or out of place"
    if start < 0 or end < 0:
        return None, "the test run ended before its end marker"
    return output[start:end], ""


def _reported(section: str, key: bytes) -> tuple[dict[str, str] | None, bool]:
    """The signed outcomes, None without a report; and whether there is one that the key did not sign."""
    reports = list(REPORT.finditer(section))
    signed = [r for r in reports if _is_signed(key, r["body"], r["signature"])]
    if len(reports) > len(signed) or len(signed) > 1:
        return None, True
    return (orjson.loads(signed[0]["body"]) if signed else None), False


def _is_signed(key: bytes, body: str, signature: str) -> bool:
    return hmac.compare_digest(hmac.new(key, body.encode(), hashlib.sha256).hexdigest().encode(), signature.encode())


def _resolve(instance: Instance, statuses: Mapping[str, str]) -> Grade:
    fixed = {name: _status(name, statuses) in PASSING for name in instance.fail_to_pass}
    kept = {name: _status(name, statuses) in MAINTAINED for name in instance.pass_to_pass}
    failed = [name for name, passed in (fixed | kept).items() if not passed]
    counts = f"{sum(fixed.values())}/{len(fixed)} fixed, {sum(kept.values())}/{len(kept)} kept"
    resolved = not failed and bool(fixed)
    return Grade(resolved, counts if resolved else f"{counts}; failed: {', '.join(failed[:3])}", fixed, kept)


def _status(name: str, statuses: Mapping[str, str]) -> str | None:
    """The status of a test; an id cut inside its parameters (676 in Verified are) matches by prefix when all matches agree."""
    if name in statuses:
        return statuses[name]
    if name.count("[") > name.count("]"):
        matches = [status for other, status in statuses.items() if other.startswith(name)]
        if matches and len({status in PASSING for status in matches}) == 1:
            return matches[0]
    return None
