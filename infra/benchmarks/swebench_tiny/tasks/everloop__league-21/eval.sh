#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_league.py <<'EOF_TEST'
from league import ranking, total_points


def test_one_team():
    assert ranking([("Foxes", 3)]) == ["Foxes"]


def test_equal_points_are_alphabetical():
    assert ranking([("Owls", 1), ("Bears", 1)]) == ["Bears", "Owls"]


def test_total():
    assert total_points([("Owls", 1), ("Bears", 4)]) == 5


def test_most_points_first():
    assert ranking([("Bears", 1), ("Owls", 7), ("Foxes", 4)]) == ["Owls", "Foxes", "Bears"]


def test_ties_inside_the_table():
    assert ranking([("Owls", 2), ("Ants", 9), ("Bears", 2)]) == ["Ants", "Bears", "Owls"]
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_league.py
: '>>>>> End Test Output'
