#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_wordplay.py <<'EOF_TEST'
from wordplay import initials, is_palindrome


def test_plain_words():
    assert is_palindrome("level")
    assert not is_palindrome("lever")


def test_initials():
    assert initials("ada lovelace") == "AL"


def test_case_is_ignored():
    assert is_palindrome("Level")


def test_punctuation_is_ignored():
    assert is_palindrome("Madam, I'm Adam")


def test_digits_count():
    assert not is_palindrome("1 a 2")
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_wordplay.py
: '>>>>> End Test Output'
