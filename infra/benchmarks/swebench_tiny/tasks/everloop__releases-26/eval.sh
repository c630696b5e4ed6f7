#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_releases.py <<'EOF_TEST'
from releases import parse_version


def test_single_digits():
    assert parse_version("1.2.3") == (1, 2, 3)


def test_not_a_version():
    assert parse_version("1.2") is None
    assert parse_version("v1.2.3") is None


def test_many_digits():
    assert parse_version("1.12.0") == (1, 12, 0)
    assert parse_version("10.0.345") == (10, 0, 345)


def test_text_around_is_refused():
    assert parse_version("1.12.0-beta") is None
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_releases.py
: '>>>>> End Test Output'
