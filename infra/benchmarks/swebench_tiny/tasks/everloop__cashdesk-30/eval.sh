#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_cashdesk.py <<'EOF_TEST'
from money import show, to_cents


def test_exact_amounts():
    assert to_cents(12.5) == 1250
    assert to_cents(0) == 0


def test_show():
    assert show(1205) == "12.05"


def test_no_cent_is_lost():
    assert to_cents(19.99) == 1999
    assert to_cents(0.29) == 29


def test_result_is_whole():
    assert isinstance(to_cents(1.1), int)
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_cashdesk.py
: '>>>>> End Test Output'
