#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_settings.py <<'EOF_TEST'
from layers.load import load
from layers.merge import merge


def test_flat():
    assert merge({"a": 1, "b": 2}, {"b": 3}) == {"a": 1, "b": 3}


def test_later_layers_win():
    assert load({"a": 1}, {"a": 2}, {"c": 3}) == {"a": 2, "c": 3}


def test_a_dict_replaces_a_plain_value():
    assert merge({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}


def test_neighbours_stay():
    merged = merge({"db": {"host": "a", "port": 1}}, {"db": {"port": 2}})
    assert merged == {"db": {"host": "a", "port": 2}}


def test_any_depth_through_load():
    assert load({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 9}}}) == {"a": {"b": {"c": 9, "d": 2}}}


def test_defaults_are_not_changed():
    defaults = {"db": {"port": 1}}
    merge(defaults, {"db": {"port": 2}})
    assert defaults == {"db": {"port": 1}}
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_settings.py
: '>>>>> End Test Output'
