import hashlib
import hmac
import json

import pytest

from pipelines.errors import ConfigError, InfrastructureError
from pipelines.evaluation.swebench.grading import END, START, Grade, grade, mark, parse_pytest_log
from pipelines.evaluation.swebench.instance import Instance

NONCE, KEY = "n0nce", b"key"
FIXED, KEPT = "t.py::fixed", "t.py::kept"


def instance(**changes: object) -> Instance:
    row: dict[str, object] = {
        **dict.fromkeys(("repo", "base_commit", "problem_statement", "patch", "test_patch", "eval_script"), ""),
        "instance_id": "x__y-1",
        "FAIL_TO_PASS": [FIXED],
        "PASS_TO_PASS": json.dumps([KEPT]),
        "unknown_column": 1,
    }
    return Instance.model_validate(row | changes)


def sign(body: str, key: bytes = KEY) -> str:
    return hmac.new(key, body.encode(), hashlib.sha256).hexdigest()


BEGUN = f">>>>> Session {sign('begun')}"


def output(statuses: dict[str, str], *, reported: dict[str, str] | None = None, key: bytes = KEY, extra: str = "") -> str:
    body = json.dumps(statuses if reported is None else reported, sort_keys=True)
    report = f">>>>> Outcomes {sign(body, key)} {body}"
    log = "\n".join(f"{status} {name}" for name, status in statuses.items())
    return f"+ : '{START} {NONCE}'\n{BEGUN}\n{extra}\n{log}\n{report}\n+ : '{END} {NONCE}'\n"


def graded(text: str, ended_by: str | None = None) -> Grade:
    return grade(instance(), text, nonce=NONCE, key=KEY, ended_by=ended_by)


@pytest.mark.parametrize(
    ("fixed", "kept", "resolved"),
    [
        ("PASSED", "PASSED", True),
        ("XFAIL", "XFAIL", True),
        ("PASSED", "SKIPPED", True),
        ("SKIPPED", "PASSED", False),
        ("FAILED", "PASSED", False),
        ("XPASS", "PASSED", False),
        ("PASSED", "FAILED", False),
        ("PASSED", "ERROR", False),
        ("PASSED", None, False),
        (None, "PASSED", False),
    ],
)
def test_statuses_decide_by_the_official_rules(fixed: str | None, kept: str | None, resolved: bool) -> None:
    statuses = {name: status for name, status in ((FIXED, fixed), (KEPT, kept)) if status}
    result = graded(output(statuses))
    assert result.resolved is resolved
    assert not result.tampered


def test_an_instance_without_tests_to_fix_is_never_resolved() -> None:
    text = output({KEPT: "PASSED"})
    assert not grade(instance(FAIL_TO_PASS=[]), text, nonce=NONCE, key=KEY).resolved


def test_an_id_cut_inside_its_parameters_matches_by_prefix() -> None:
    text = output({"t.py::p[a b]": "PASSED", KEPT: "PASSED"})
    assert grade(instance(FAIL_TO_PASS=["t.py::p[a"]), text, nonce=NONCE, key=KEY).resolved


def test_the_log_is_read_like_the_official_parser_reads_it() -> None:
    log = (
        "PASSED t.py::a\nFAILED t.py::b - assert 1\nSKIPPED [1] t.py:3: no\nXFAIL t.py::c\nFAILED t.py::a\nERROR\n PASSED t.py::d"
    )
    assert parse_pytest_log(log) == {"t.py::a": "FAILED", "t.py::b": "FAILED", "t.py::c": "XFAIL"}


@pytest.mark.parametrize("extra", [f"{START}", f"{END} {NONCE}", f"{START} {NONCE}", f"x {END} other"])
def test_a_second_marker_is_tampering(extra: str) -> None:
    result = graded(output({FIXED: "PASSED", KEPT: "PASSED"}, extra=extra))
    assert (result.resolved, result.tampered) == (False, True)


def test_markers_in_the_wrong_order_are_tampering() -> None:
    assert graded(f"{END} {NONCE}\n{BEGUN}\n{START} {NONCE}\n").tampered


def test_printed_passes_without_a_signed_report_are_tampering() -> None:
    text = f"{START} {NONCE}\n{BEGUN}\nPASSED {FIXED}\nPASSED {KEPT}\n{END} {NONCE}\n"
    result = graded(text)
    assert (result.resolved, result.tampered) == (False, True)
    assert "ended early" in result.reason


def test_a_report_signed_with_another_key_is_tampering() -> None:
    assert graded(output({FIXED: "PASSED", KEPT: "PASSED"}, key=b"guess")).tampered


def test_a_log_that_contradicts_the_signed_report_is_tampering() -> None:
    result = graded(output({FIXED: "PASSED", KEPT: "PASSED"}, reported={KEPT: "PASSED"}))
    assert (result.resolved, result.tampered) == (False, True)


def test_a_limit_during_the_tests_is_unresolved_and_names_it() -> None:
    result = graded(f"{START} {NONCE}\n{BEGUN}\ncollecting", ended_by="wall_time")
    assert result == Grade(False, "the tests were ended by the limit on wall_time")


def test_tests_that_never_started_are_an_infrastructure_failure() -> None:
    with pytest.raises(InfrastructureError, match="never started: bash: pytest: not found"):
        graded("bash: pytest: not found")


def test_a_test_runner_that_did_not_start_is_an_infrastructure_failure_whatever_was_printed() -> None:
    with pytest.raises(InfrastructureError, match="never started"):
        graded(f"{START} {NONCE}\n>>>>> Session é\nbash: pytest: not found\n{END} {NONCE}")


def test_an_unknown_log_parser_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="parse_log_jest"):
        grade(instance(log_parser="parse_log_jest"), "", nonce=NONCE, key=KEY)


def test_marking_needs_each_marker_once() -> None:
    assert mark(f": '{START}'\n: '{END}'\n", "abc") == f": '{START} abc'\n: '{END} abc'\n"
    with pytest.raises(ConfigError, match="End Test Output"):
        mark(f": '{START}'", "abc")
