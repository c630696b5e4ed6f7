#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_powers.py <<'EOF_TEST'
from powers import power


def test_one():
    assert power(7, 1) == 7


def test_even_and_odd():
    assert power(2, 10) == 1024
    assert power(3, 5) == 243


def test_exponent_zero():
    assert power(2, 0) == 1
    assert power(0, 0) == 1
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_powers.py
: '>>>>> End Test Output'
