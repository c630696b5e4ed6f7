"""What a tool's output says about tests: the summaries of pytest, unittest, Go, Cargo, Jest, Vitest, Mocha, RSpec, PHPUnit, CTest,
.NET, Maven, Gradle and TAP."""

import re

_FAILED = re.compile(
    r"""^(?:=+\s.*?)?\b[1-9]\d*\ (?:failed|errors?)\b(?:,|\ in\ |\s*$|\s=)   # pytest: 1 failed, 2 passed in 0.1s
    |^FAILED\ (?:\S+::|\((?:failures|errors)=)                                # pytest, unittest
    |^---\ FAIL:                                                              # go test
    |^test\ result:\ FAILED                                                   # cargo test
    |^Tests:\s+[1-9]\d*\ failed                                               # jest
    |^[\ \t]{0,8}Tests\ +[1-9]\d*\ failed\b                                         # vitest
    |^[\ \t]{0,8}[1-9]\d*\ failing\b                                              # mocha
    |^\d+\ examples?,\ [1-9]\d*\ failures?\b                                   # rspec
    |^FAILURES!$|^Tests:\ \d+,\ Assertions:\ \d+,.*\b(?:Failures|Errors):\ [1-9]  # phpunit
    |^\d+%\ tests\ passed,\ [1-9]\d*\ tests?\ failed                            # ctest
    |^Failed!\s+-\ Failed:\s+[1-9]                                            # .net
    |^\d+\ tests?\ completed,\ [1-9]\d*\ failed                                # gradle
    |^not\ ok\ \d+\b(?!.*\#\ (?:TODO|SKIP))                                      # tap
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
    |^[\ \t]{0,8}Tests\ +\d+\ passed\b
    |^[\ \t]{0,8}\d+\ passing\b
    |^\d+\ examples?,\ 0\ failures\b
    |^OK\ \(\d+\ tests?,
    |^100%\ tests\ passed
    |^Passed!\s+-\ Failed:\s+0
    |^ok\ \d+\b
    |Tests\ run:\ \d+,\ Failures:\ 0,\ Errors:\ 0
    """,
    re.MULTILINE | re.VERBOSE,
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def failed_tests(output: str) -> str | None:
    """The line that says tests failed; empty when they passed; None when the output is of no test run."""
    output = _COLOUR.sub("", output)
    failed = _FAILED.search(output)
    if failed is not None:
        return output[output.rfind("\n", 0, failed.start()) + 1 :].partition("\n")[0].strip() or failed[0]
    return "" if _PASSED.search(output) else None
