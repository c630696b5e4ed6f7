#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_almanac.py <<'EOF_TEST'
from almanac import days_in_month, is_leap


def test_common_years():
    assert days_in_month(2023, 2) == 28
    assert days_in_month(2024, 2) == 29


def test_2000_was_a_leap_year():
    assert is_leap(2000)


def test_other_months():
    assert days_in_month(2023, 12) == 31


def test_1900_was_not_a_leap_year():
    assert days_in_month(1900, 2) == 28


def test_2100_will_not_be_one():
    assert not is_leap(2100)
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_almanac.py
: '>>>>> End Test Output'
