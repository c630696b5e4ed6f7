#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_sensors.py <<'EOF_TEST'
from readings import mean, spread


def test_mean():
    assert mean([1, 2, 6]) == 3


def test_spread():
    assert spread([4, 9, 5]) == 5


def test_mean_of_nothing_is_none():
    assert mean([]) is None


def test_mean_of_zeros_is_zero():
    assert mean([0, 0]) == 0
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_sensors.py
: '>>>>> End Test Output'
