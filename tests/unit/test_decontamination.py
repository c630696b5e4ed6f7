from pipelines.rewards.decontamination import (
    DecontaminationOptions,
    Hit,
    HitKind,
    Material,
    decontaminate,
    find_hits,
)
from pipelines.rewards.model import RewardTask, Split
from pipelines.traces.model import Message, Role, Source, Trace

OPTIONS = DecontaminationOptions()
STATEMENT = "The parser of dates returns the wrong month when the day is the thirty first and the year is a leap year"


def kinds(training: Material, protected: Material) -> list[HitKind]:
    return [hit.kind for hit in find_hits([training], [protected], OPTIONS)]


def test_a_copy_with_other_punctuation_and_case_is_a_hit() -> None:
    assert kinds(Material("a", STATEMENT.upper().replace(" ", " ; ")), Material("b", STATEMENT)) == [HitKind.WORDING]


def test_a_statement_quoted_in_a_long_prompt_is_a_hit() -> None:
    long = " ".join(f"word{i}" for i in range(500))
    assert kinds(Material("a", f"{long} {STATEMENT} {long}"), Material("b", STATEMENT)) == [HitKind.WORDING]


def test_another_text_on_the_same_subject_is_no_hit() -> None:
    assert (
        kinds(
            Material("a", "The parser of dates is slow when a leap year comes; make it faster please"), Material("b", STATEMENT)
        )
        == []
    )


def test_short_texts_hit_only_when_equal() -> None:
    assert kinds(Material("a", "refund order A1!"), Material("b", "Refund order a1")) == [HitKind.WORDING]
    assert kinds(Material("a", "refund order A2"), Material("b", "refund order A1")) == []
    assert kinds(Material("a", "..."), Material("b", "!!")) == []


def test_instance_ids_and_commits_are_hits_whatever_the_wording() -> None:
    row = Material(
        "django-1", "other words", {"instance_id": "django__django-11099", "repo": "django/django", "base_commit": "d26b242" * 5}
    )
    assert kinds(Material("a", "", {"instance_id": "Django__django-11099"}), row) == [HitKind.INSTANCE_ID]
    assert kinds(Material("a", "please solve django__django-11099 now"), row) == [HitKind.INSTANCE_ID]
    assert kinds(Material("a", "", {"repository": "django/django", "commit": "d26b242" * 5}), row) == [HitKind.COMMIT]
    assert kinds(Material("a", f"at {'d26b242' * 5}"), row) == [HitKind.COMMIT]
    assert kinds(Material("a", "", {"repository": "django/django", "commit": "abcdef0" * 5}), row) == []
    assert kinds(Material("a", "", {"repository": "other/fork", "commit": "d26b242" * 5}), row) == []


def test_instructions_that_stand_in_every_prompt_are_not_contamination() -> None:
    frame = "You have a shell; submit your work by printing the final line and nothing else after it."
    training = [Material(f"t{i}", f"{frame} {' '.join(f'w{i}x{j}' for j in range(20))}") for i in range(12)]
    protected = [Material("held", f"{frame} {' '.join(f'held{j}' for j in range(4))}")]
    assert find_hits(training, protected, OPTIONS) == ()


def task(task_id: str, text: str, split: Split) -> RewardTask:
    prompt = (Message(Role.SYSTEM, STATEMENT), Message(Role.USER, text))
    return RewardTask(task_id, "tool_call", prompt, (), "tool_call", {}, split, "", "", (f"tr-{task_id}",))


def test_training_tasks_near_other_splits_or_protected_rows_are_dropped_and_reported() -> None:
    tasks = [
        task("clean", "where is my parcel", Split.TRAIN),
        task("dirty", STATEMENT, Split.TRAIN),
        task("same", "cancel order nine", Split.TRAIN),
        task("held", "Cancel order nine.", Split.HOLDOUT),
        task("attributed", "fix it", Split.TRAIN),
    ]
    trace = Trace("tr-attributed", (), Source("file", "x", "mini_swe_agent"), attributes={"instance_id": "toy__toy-1"})
    protected = [Material("row", STATEMENT), Material("row2", "unrelated", {"instance_id": "toy__toy-1"})]
    result = decontaminate(tasks, protected, OPTIONS, traces={trace.id: trace})
    assert [t.id for t in result.tasks] == ["clean", "held"]
    assert result.hits == (
        Hit("dirty", "row", HitKind.WORDING, 1.0),
        Hit("same", "held", HitKind.WORDING, 1.0),
        Hit("attributed", "row2", HitKind.INSTANCE_ID, 1.0),
    )
