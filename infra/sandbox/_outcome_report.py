"""A pytest plugin that reports every outcome once, at the end of the session, signed with a key that nobody else has read.

It is copied into the test environment and runs inside the sandbox, so it imports only the standard library and pytest. The key
comes on standard input and is read before any code under test is imported. A session that the code under test ends early
(os._exit) has no report, and printed imitations of pytest's output do not match one. Code that searches this process's memory for
the key is beyond it.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Callable

import pytest


def _make_writer() -> Callable[[dict[str, str]], None]:
    key = os.read(0, 256).strip()
    channel = os.dup(1)
    os.set_inheritable(channel, False)

    def sign(body: str) -> str:
        return hmac.new(key, body.encode(), hashlib.sha256).hexdigest()

    def write(outcomes: dict[str, str]) -> None:
        body = json.dumps(outcomes, sort_keys=True)
        os.write(channel, f"\n>>>>> Outcomes {sign(body)} {body}\n".encode())

    os.write(channel, f"\n>>>>> Session {sign('begun')}\n".encode())
    return write


_write = _make_writer()
_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep one status per test, in the words of the log: an error in setup or teardown outweighs the call."""
    expected = hasattr(report, "wasxfail")
    if report.when != "call" and report.failed:
        _outcomes[report.nodeid] = "ERROR"
    elif report.skipped:
        _outcomes[report.nodeid] = "XFAIL" if expected else "SKIPPED"
    elif report.when == "call":
        _outcomes[report.nodeid] = "FAILED" if report.failed else "XPASS" if expected else "PASSED"


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """After the summary, when nothing more can change an outcome."""
    _write(_outcomes)
