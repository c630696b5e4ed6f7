"""Decontamination: what may not train because it is near what measures.

Owns the comparison of training material with protected material (held-out and regression tasks, SWE-bench rows): shared runs of
words, instance ids, repository and commit. It refuses to decide splits; it reports each hit and what is left.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from pipelines.rewards.model import RewardTask, Split
from pipelines.traces.model import Role, Trace

WORD = re.compile(r"\w+")
MIN_COMMIT_CHARS = 7
MIN_TEXTS_FOR_BOILERPLATE = 10
ID_ATTRIBUTES = ("instance_id",)
REPOSITORY_ATTRIBUTES = ("repository", "repo")
COMMIT_ATTRIBUTES = ("base_commit", "commit")


class DecontaminationOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    num_words: int = Field(8, ge=2)
    """Length of the runs of words compared (n-grams). A text shorter than this must be equal to be a hit."""
    max_overlap: float = Field(0.5, gt=0.0, le=1.0)
    """Share of the shorter text's runs that two texts may have in common; above it, or all of them, is a hit."""
    boilerplate_share: float = Field(0.5, gt=0.0, le=1.0)
    """Runs that stand in more than this share of the training texts are instructions around the request and are ignored."""


@dataclass(frozen=True, slots=True)
class Material:
    """A text with the facts that could tie it to a benchmark row."""

    id: str
    text: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Of interest: instance_id, repository (or repo), base_commit (or commit)."""


class HitKind(StrEnum):
    WORDING = "wording"
    INSTANCE_ID = "instance_id"
    COMMIT = "commit"
    """Same repository at the same commit, or the commit's hash in the text."""


@dataclass(frozen=True, slots=True)
class Hit:
    training_id: str
    protected_id: str
    kind: HitKind
    overlap: float
    """Share of the shorter text's runs of words found in the other; 1.0 for ids and commits."""


@dataclass(frozen=True, slots=True)
class Decontamination:
    tasks: tuple[RewardTask, ...]
    """What is left: every task that is not a training hit."""
    hits: tuple[Hit, ...]


def decontaminate(
    tasks: Sequence[RewardTask], protected: Sequence[Material], options: DecontaminationOptions, *, traces: Mapping[str, Trace]
) -> Decontamination:
    """Drop training tasks near the other splits' tasks or near `protected` rows. `traces` by id lend attributes to tasks."""
    guarded = [*protected, *(task_material(t, traces) for t in tasks if t.split is not Split.TRAIN)]
    training = [task_material(t, traces) for t in tasks if t.split is Split.TRAIN]
    hits = find_hits(training, guarded, options)
    dirty = {hit.training_id for hit in hits}
    return Decontamination(tuple(t for t in tasks if t.id not in dirty), hits)


def task_material(task: RewardTask, traces: Mapping[str, Trace]) -> Material:
    """What the users of a task's prompt said (system prompts are the same everywhere), with its traces' attributes."""
    attributes: dict[str, str] = {}
    for trace_id in task.provenance:
        if trace_id in traces:
            attributes |= traces[trace_id].attributes
    text = "\n".join(m.content for m in task.prompt if m.role is Role.USER and m.content)
    return Material(task.id, text, attributes)


def find_hits(training: Sequence[Material], protected: Sequence[Material], options: DecontaminationOptions) -> tuple[Hit, ...]:
    """The strongest hit of each training item with each protected one, in order. Cost grows with shared runs, not with pairs."""
    ignored = _boilerplate(training, options)
    index = _Index.build(protected, num_words=options.num_words, ignored=ignored)
    return tuple(hit for item in training for hit in index.hits(item, options))


Gram = tuple[str, ...]


@dataclass(slots=True)
class _Index:
    """Protected material by what can give it away."""

    num_words: int
    ignored: frozenset[Gram]
    by_gram: dict[Gram, set[str]] = field(default_factory=dict)
    num_grams: dict[str, int] = field(default_factory=dict)
    """Protected id to the number of its runs of words."""
    by_text: dict[Gram, set[str]] = field(default_factory=dict)
    by_instance: dict[str, set[str]] = field(default_factory=dict)
    by_commit: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Commit to (protected id, repository)."""

    @classmethod
    def build(cls, protected: Sequence[Material], *, num_words: int, ignored: frozenset[Gram]) -> "_Index":
        index = cls(num_words, ignored)
        for item in protected:
            index.by_text.setdefault(normalised_words(item.text), set()).add(item.id)
            grams = index.grams(item.text)
            index.num_grams[item.id] = len(grams)
            for gram in grams:
                index.by_gram.setdefault(gram, set()).add(item.id)
            instance = _first(item.attributes, ID_ATTRIBUTES)
            if instance:
                index.by_instance.setdefault(instance, set()).add(item.id)
            commit = _first(item.attributes, COMMIT_ATTRIBUTES)
            if len(commit) >= MIN_COMMIT_CHARS:
                index.by_commit.setdefault(commit, []).append((item.id, _first(item.attributes, REPOSITORY_ATTRIBUTES)))
        return index

    def grams(self, text: str) -> set[Gram]:
        return _grams(normalised_words(text), self.num_words) - self.ignored

    def hits(self, item: Material, options: DecontaminationOptions) -> list[Hit]:
        found: dict[str, Hit] = {}
        for protected_id, overlap in self._wording(item.text):
            if overlap > options.max_overlap or overlap == 1.0:
                found[protected_id] = Hit(item.id, protected_id, HitKind.WORDING, overlap)
        for protected_id in self._commits(item):
            found[protected_id] = Hit(item.id, protected_id, HitKind.COMMIT, 1.0)
        for protected_id in self._instances(item):
            found[protected_id] = Hit(item.id, protected_id, HitKind.INSTANCE_ID, 1.0)
        return [found[protected_id] for protected_id in sorted(found)]

    def _wording(self, text: str) -> list[tuple[str, float]]:
        words = normalised_words(text)
        equal = self.by_text.get(words, set()) if words else set()
        grams = self.grams(text)
        shared: dict[str, int] = {}
        for gram in grams:
            for protected_id in self.by_gram.get(gram, ()):
                shared[protected_id] = shared.get(protected_id, 0) + 1
        overlaps = {pid: count / min(len(grams), self.num_grams[pid]) for pid, count in shared.items()}
        return list((overlaps | dict.fromkeys(equal, 1.0)).items())

    def _commits(self, item: Material) -> set[str]:
        commit = _first(item.attributes, COMMIT_ATTRIBUTES)
        repository = _first(item.attributes, REPOSITORY_ATTRIBUTES)
        # A commit without its repository says nothing: every trace of one deployment carries that of its server.
        hits = {pid for pid, theirs in self.by_commit.get(commit, ()) if theirs and theirs == repository}
        words = set(normalised_words(item.text))
        return hits | {pid for known, owners in self.by_commit.items() if known in words for pid, _ in owners}

    def _instances(self, item: Material) -> set[str]:
        text = item.text.lower()
        own = _first(item.attributes, ID_ATTRIBUTES)
        return {pid for instance, ids in self.by_instance.items() if instance == own or instance in text for pid in ids}


def _boilerplate(training: Sequence[Material], options: DecontaminationOptions) -> frozenset[Gram]:
    if len(training) < MIN_TEXTS_FOR_BOILERPLATE:
        return frozenset()
    counts = Counter(gram for item in training for gram in _grams(normalised_words(item.text), options.num_words))
    limit = len(training) * options.boilerplate_share
    return frozenset(gram for gram, count in counts.items() if count > limit)


def normalised_words(text: str) -> tuple[str, ...]:
    """Words in NFKC without case and punctuation, so that a reformatted copy is still a copy."""
    return tuple(WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _grams(words: tuple[str, ...], num_words: int) -> set[Gram]:
    return {words[i : i + num_words] for i in range(len(words) - num_words + 1)}


def _first(attributes: Mapping[str, str], names: Sequence[str]) -> str:
    """The first of these attributes that says something, in lower case; empty when none does."""
    return next((attributes[name].lower() for name in names if attributes.get(name)), "")
