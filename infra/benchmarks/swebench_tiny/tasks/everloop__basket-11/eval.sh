#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_basket.py <<'EOF_TEST'
from basket import add_item, count


def test_given_basket_is_extended():
    mine = ["bread"]
    assert add_item("tea", mine) is mine
    assert mine == ["bread", "tea"]


def test_count():
    assert count(["a", "b", "a"]) == {"a": 2, "b": 1}


def test_baskets_are_not_shared():
    add_item("tea")
    assert add_item("milk") == ["milk"]


def test_given_empty_basket_is_kept():
    mine = []
    assert add_item("tea", mine) is mine
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_basket.py
: '>>>>> End Test Output'
