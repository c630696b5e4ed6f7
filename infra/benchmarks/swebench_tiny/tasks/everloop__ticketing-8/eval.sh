#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_ticketing.py <<'EOF_TEST'
from refunds import can_refund, refund_amount


def test_paid_and_recent():
    assert can_refund(True, 3) is True


def test_unpaid_and_old():
    assert can_refund(False, 40) is False


def test_amount_is_never_negative():
    assert refund_amount(5, 8) == 0


def test_unpaid_ticket_is_not_refunded():
    assert can_refund(False, 2) is False


def test_old_ticket_is_not_refunded():
    assert can_refund(True, 15) is False


def test_last_day_counts():
    assert can_refund(True, 14) is True
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_ticketing.py
: '>>>>> End Test Output'
