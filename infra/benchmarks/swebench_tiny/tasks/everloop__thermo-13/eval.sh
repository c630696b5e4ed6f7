#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_thermo.py <<'EOF_TEST'
import pytest
from thermo.convert import convert


def test_celsius():
    assert convert(21.5, "C") == 21.5


def test_unknown_unit():
    with pytest.raises(KeyError):
        convert(1, "X")


def test_kelvin():
    assert convert(0, "K") == pytest.approx(273.15)


def test_fahrenheit():
    assert convert(100, "F") == pytest.approx(212)
    assert convert(0, "F") == pytest.approx(32)
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_thermo.py
: '>>>>> End Test Output'
