#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_batches.py <<'EOF_TEST'
from batches import batches


def test_even():
    assert batches([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]


def test_nothing():
    assert batches([], 3) == []


def test_last_batch_is_shorter():
    assert batches([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]


def test_fewer_than_one_batch():
    assert batches([1], 3) == [[1]]
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_batches.py
: '>>>>> End Test Output'
