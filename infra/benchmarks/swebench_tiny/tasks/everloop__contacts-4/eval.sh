#!/bin/bash
set -uxo pipefail
cd /testbed
cat > tests/test_contacts.py <<'EOF_TEST'
from contacts import names, read_contacts


def test_plain_utf8(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_bytes("name,city\nZo\u00eb,Bern\n".encode("utf-8"))
    assert read_contacts(path) == [{"name": "Zo\u00eb", "city": "Bern"}]


def test_names_are_stripped():
    assert names([{"name": " Ada "}]) == ["Ada"]


def test_byte_order_mark_is_not_part_of_a_name(tmp_path):
    path = tmp_path / "spreadsheet.csv"
    path.write_bytes(b"\xef\xbb\xbfname,city\nAda,Rome\n")
    assert names(read_contacts(path)) == ["Ada"]
EOF_TEST
: '>>>>> Start Test Output'
pytest -rA tests/test_contacts.py
: '>>>>> End Test Output'
