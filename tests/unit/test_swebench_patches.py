import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation.swebench.patches import PatchError, apply_patch, make_patch

TEXT = st.text(alphabet=st.sampled_from("ab \n\r\t\x0c\u2028é-+@\\"), max_size=60)


@given(TEXT, TEXT)
def test_a_made_patch_turns_the_old_text_into_the_new(old: str, new: str) -> None:
    patch = make_patch("a.py", old, new)
    assert (apply_patch({"a.py": old}, patch) if patch else {"a.py": old}) == {"a.py": new}


def test_a_new_file_is_added() -> None:
    assert apply_patch({}, make_patch("p/a.py", None, "x\n")) == {"p/a.py": "x\n"}


def test_an_empty_new_file_is_added() -> None:
    patch = "diff --git a/p/__init__.py b/p/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    assert apply_patch({}, patch) == {"p/__init__.py": ""}


def test_a_deleted_file_is_none() -> None:
    patch = "diff --git a/a.py b/a.py\ndeleted file mode 100644\n--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert apply_patch({"a.py": "x\n"}, patch) == {"a.py": None}


def test_a_hunk_with_a_wrong_line_number_is_found_by_its_context() -> None:
    patch = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n c\n-d\n+D\n"
    assert apply_patch({"a.py": "a\nb\nc\nd\n"}, patch) == {"a.py": "a\nb\nc\nD\n"}


def test_a_last_line_without_newline_is_kept() -> None:
    assert apply_patch({"a.py": "a\nb"}, make_patch("a.py", "a\nb", "A\nb")) == {"a.py": "A\nb"}


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ("hello", "no file"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-other\n+new\n", "does not fit"),
        ("--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-x\n+y\n", "does not exist"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n-x\n", "not a unified diff"),
        ("diff --git a/a.py b/a.py\nBinary files a/a.py and b/a.py differ\n", "regular text files"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n", "regular text files"),
        ("diff --git a/a.py b/c.py\nrename from a.py\nrename to c.py\n", "regular text files"),
        ("--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+y\n", "exists already"),
    ],
)
def test_a_patch_that_cannot_be_applied_says_why(patch: str, reason: str) -> None:
    with pytest.raises(PatchError, match=reason):
        apply_patch({"a.py": "x\n"}, patch)
