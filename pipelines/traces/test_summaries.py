"""What a tool's output says about tests: pytest, unittest, Go, Cargo, Jest and Maven summaries."""

import re

_FAILED = re.compile(
    r"""^(?:=+\s.*?)?\b[1-9]\d*\ (?:failed|errors?)\b(?:,|\ in\ |\s*$|\s=)   # pytest: 1 failed, 2 passed in 0.1s
    |^FAILED\ (?:\S+::|\((?:failures|errors)=)                                # pytest, unittest
    |^---\ FAIL:                                                              # go test
    |^test\ result:\ FAILED                                                   # cargo test
    |^Tests:\s+[1-9]\d*\ failed                                               # jest
    |Tests\ run:\ \d+,\ (?:Failures:\ [1-9]|Failures:\ 0,\ Errors:\ [1-9])    # maven
    """,
    re.MULTILINE | re.VERBOSE,
)
_PASSED = re.compile(
    r"""^(?:=+\s.*?)?\b(?:0\ failed,\ )?\d+\ passed\b
    |^OK(?:\ \(.*\))?$
    |^ok\s+\S+\s+[\d.]+s
    |^test\ result:\ ok
    |^Tests:\s+\d+\ passed
    |Tests\ run:\ \d+,\ Failures:\ 0,\ Errors:\ 0
    """,
    re.MULTILINE | re.VERBOSE,
)


def failed_tests(output: str) -> str | None:
    """The line that says tests failed; empty when they passed; None when the output is of no test run."""
    failed = _FAILED.search(output)
    if failed is not None:
        return output[output.rfind("\n", 0, failed.start()) + 1 :].partition("\n")[0].strip() or failed[0]
    return "" if _PASSED.search(output) else None
