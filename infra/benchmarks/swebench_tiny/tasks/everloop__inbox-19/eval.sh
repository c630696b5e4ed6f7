#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_inbox.py <<'EOF_TEST'
from inbox import remove_all, unread


def test_nothing_to_remove():
    assert remove_all(["a", "b"], "spam") == ["a", "b"]


def test_single_match():
    assert remove_all(["a", "spam", "b"], "spam") == ["a", "b"]


def test_unread():
    assert unread(["a", "b"], {"a"}) == ["b"]


def test_neighbouring_matches():
    assert remove_all(["spam", "spam", "hi"], "spam") == ["hi"]


def test_argument_is_not_changed():
    messages = ["spam", "hi"]
    remove_all(messages, "spam")
    assert messages == ["spam", "hi"]
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_inbox.py
: '>>>>> End Test Output'
