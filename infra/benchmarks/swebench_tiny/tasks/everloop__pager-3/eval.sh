#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_pager.py <<'EOF_TEST'
import pytest
from pager import num_pages, page_bounds


def test_full_pages():
    assert num_pages(20, 10) == 2
    assert num_pages(0, 10) == 0


def test_size_must_be_positive():
    with pytest.raises(ValueError):
        num_pages(5, 0)


def test_bounds():
    assert page_bounds(2, 10) == (20, 30)


def test_partly_filled_page_counts():
    assert num_pages(21, 10) == 3


def test_single_item():
    assert num_pages(1, 10) == 1
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_pager.py
: '>>>>> End Test Output'
