"""The dataset card: what a reward dataset holds, for people, and where its files are, for `datasets`."""

from collections import Counter
from collections.abc import Iterable

from pipelines.rewards.model import RewardDataset, Split
from pipelines.rewards.splits import shared_values

SFT_TRAIN_FILE = "sft/train.parquet"
MAX_CLUSTERS = 30


def tasks_file(split: Split) -> str:
    return f"tasks/{split}.parquet"


def write_card(dataset: RewardDataset, *, title: str, gaps: tuple[str, ...] = ()) -> str:
    """Markdown with counts by split, cluster, kind, verifier and source, and the known gaps; `gaps` adds the builder's own."""
    tasks = dataset.tasks
    parts = [
        _file_configuration(dataset),
        f"# {title}\n",
        f"{len(tasks)} verifiable tasks and {len(dataset.sft_rows)} supervised rows, made from {_num_traces(dataset)} traces.\n",
        _table(("split", "tasks", "groups"), [(s.value, *_count(dataset, s)) for s in Split]),
        _table(("kind", "verifier", "tasks"), [(*k, n) for k, n in sorted(Counter((t.kind, t.verifier) for t in tasks).items())]),
        "## Kinds of failure\n",
        _table(("cluster", *(s.value for s in Split)), _cluster_rows(dataset)),
        "## Where supervised answers come from\n",
        _table(("source", "rows"), sorted(Counter(r.source for r in dataset.sft_rows).items())),
        "## Known gaps\n",
        "\n".join(f"- {gap}" for gap in (*known_gaps(dataset), *gaps)) + "\n",
    ]
    return "\n".join(parts)


def known_gaps(dataset: RewardDataset) -> list[str]:
    """What a reader of a result on this dataset has to know."""
    tasks = dataset.tasks
    by_split = {split: {t.cluster for t in tasks if t.split is split} for split in Split}
    gaps: list[str] = []
    unseen = sorted(by_split[Split.HOLDOUT] - by_split[Split.TRAIN])
    if unseen:
        gaps.append(f"Held out but never trained: {_listed(unseen)}.")
    unmeasured = sorted(by_split[Split.TRAIN] - by_split[Split.HOLDOUT])
    if unmeasured:
        gaps.append(f"Trained but not measured by the hold-out: {_listed(unmeasured)}.")
    undated = sum(t.occurred_at is None for t in tasks)
    if undated:
        gaps.append(f"{undated} tasks have no time; they count as the oldest.")
    shared = shared_values(tasks)
    if shared:
        names = sorted({value.argument for value in shared})
        gaps.append(f"{len(shared)} argument values stand in training and in the hold-out (of {_listed(names)}).")
    return gaps or ["None found by the builder."]


def _file_configuration(dataset: RewardDataset) -> str:
    """YAML that `datasets` reads: a configuration for tasks and one for supervised rows, each with the splits that have rows."""
    present = [split for split in Split if any(task.split is split for task in dataset.tasks)]
    configurations = {
        "tasks": [(split.value, tasks_file(split)) for split in present],
        "sft": [("train", SFT_TRAIN_FILE)] if dataset.sft_rows else [],
    }
    lines = ["---", "configs:" if dataset.tasks else "configs: []"]
    for name, files in configurations.items():
        if files:
            lines += [f"- config_name: {name}", f"  default: {'true' if name == 'tasks' else 'false'}", "  data_files:"]
        for split, path in files:
            lines += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*lines, "---", ""])


def _num_traces(dataset: RewardDataset) -> int:
    return len({trace_id for task in dataset.tasks for trace_id in task.provenance})


def _count(dataset: RewardDataset, split: Split) -> tuple[int, int]:
    tasks = [t for t in dataset.tasks if t.split is split]
    return len(tasks), len({t.group for t in tasks})


def _cluster_rows(dataset: RewardDataset) -> list[tuple[str | int, ...]]:
    totals = Counter(t.cluster for t in dataset.tasks)
    cells = Counter((t.cluster, t.split) for t in dataset.tasks)
    ranked = sorted(totals, key=lambda cluster: (-totals[cluster], cluster))
    rows: list[tuple[str | int, ...]] = [(c, *(cells[c, s] for s in Split)) for c in ranked[:MAX_CLUSTERS]]
    rest = ranked[MAX_CLUSTERS:]
    if rest:
        rows.append((f"{len(rest)} more", *(sum(cells[c, s] for c in rest) for s in Split)))
    return rows


def _table(header: tuple[str, ...], rows: Iterable[tuple[str | int, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _listed(names: list[str], *, limit: int = 8) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
