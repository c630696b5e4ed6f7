#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_logview.py <<'EOF_TEST'
from logview import last_lines, matching


def test_last_two():
    assert last_lines(["a", "b", "c"], 2) == ["b", "c"]


def test_more_than_there_are():
    assert last_lines(["a"], 5) == ["a"]


def test_matching():
    assert matching(["ok", "an error"], "error") == ["an error"]


def test_no_lines():
    assert last_lines(["a", "b"], 0) == []
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_logview.py
: '>>>>> End Test Output'
