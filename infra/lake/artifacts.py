"""Artifacts: immutable folders under a content key, which exist only once their manifest does.

Owns writing, checking and fetching them. The manifest is written last and on condition; files without one are garbage of a
writer that died and may be written over. The key is the digest of the files alone, so writing the same content again is free,
and the manifest of the first writer (its parents and facts) is the one that stays.
"""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, ValidationError

from infra.lake.objects import COPY_CHUNK_BYTES, LocalObjects, Objects, disk_errors
from pipelines.artifacts import FileEntry, Manifest, from_json, to_json
from pipelines.errors import ArtifactError, ConfigError

MANIFEST = "manifest.json"
KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Artifact:
    uri: str
    """URL of the folder: `<lake>/artifacts/<kind>/<key>`."""
    manifest: Manifest


class Artifacts:
    """The artifacts of one lake; `cache` is the local folder for copies of artifacts that lie on S3."""

    def __init__(self, objects: Objects, cache: Path) -> None:
        self.objects = objects
        self.cache = cache

    def write(self, kind: str, folder: Path, *, parents: Sequence[str], facts: dict[str, JsonValue]) -> Artifact:
        """Store a folder's content. Idempotent; raises ArtifactError when the folder changes meanwhile."""
        manifest = describe_folder(kind, folder, parents=parents, facts=facts)
        path = f"artifacts/{kind}/{manifest.digest[:KEY_DIGITS]}"
        existing = self._manifest(path)
        if existing is not None and self._is_complete(path, existing):
            return Artifact(f"{self.objects.root}/{path}", existing)
        for entry in manifest.files:
            self._store(folder / entry.path, f"{path}/{entry.path}", entry)
        if existing is None and not self.objects.put_if_absent(f"{path}/{MANIFEST}", to_json(manifest)):
            existing = self.read_manifest(path)
        return Artifact(f"{self.objects.root}/{path}", existing or manifest)

    def open(self, uri: str) -> Path:
        """A local folder with the artifact's files, every digest checked; the stored folder itself when the lake is local.

        Raises ArtifactError when the artifact is missing, incomplete or damaged.
        """
        path = path_of(uri)
        manifest = self.read_manifest(path)
        if isinstance(self.objects, LocalObjects):
            folder = self.objects.folder / path
            check_folder(folder, manifest)
            return folder
        folder = self.cache / path
        if folder.is_dir() and not _damage(folder, manifest):
            return folder
        return self._fetch(path, manifest, folder)

    def read_manifest(self, uri: str) -> Manifest:
        path = path_of(uri)
        manifest = self._manifest(path)
        if manifest is None:
            raise ArtifactError(
                f"artifact {self.objects.root}/{path} does not exist (it has no {MANIFEST}); run the stage that makes it"
            )
        return manifest

    def _manifest(self, path: str) -> Manifest | None:
        stored = self.objects.get(f"{path}/{MANIFEST}")
        if stored is None:
            return None
        try:
            manifest = from_json(Manifest, stored.data)
        except ValidationError as error:
            raise ArtifactError(
                f"artifact {self.objects.root}/{path}: unreadable {MANIFEST}; delete that folder and run again"
            ) from error
        if manifest.digest[:KEY_DIGITS] != path.rpartition("/")[2]:
            raise ArtifactError(
                f"artifact {self.objects.root}/{path}: {MANIFEST} lists other content; delete that folder and run again"
            )
        return manifest

    def _is_complete(self, path: str, manifest: Manifest) -> bool:
        """Whether the stored files still are what the manifest says; on S3 by size only, since reading back is a download."""
        if isinstance(self.objects, LocalObjects):
            return not _damage(self.objects.folder / path, manifest)
        sizes = {info.path.removeprefix(f"{path}/"): info.size_bytes for info in self.objects.list_files(path)}
        return all(sizes.get(entry.path) == entry.size_bytes for entry in manifest.files)

    def _store(self, source: Path, path: str, entry: FileEntry) -> None:
        self.objects.upload(source, path)
        stored = self.objects.folder / path if isinstance(self.objects, LocalObjects) else source
        if _entry(stored, entry.path) != entry:
            raise ArtifactError(f"{source} changed while it was stored as {path}; stop its writer and run again")

    def _fetch(self, path: str, manifest: Manifest, folder: Path) -> Path:
        with disk_errors(f"caching {path}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
                fresh = Path(scratch) / "files"
                for entry in manifest.files:
                    self.objects.download(f"{path}/{entry.path}", fresh / entry.path)
                check_folder(fresh, manifest)
                return _install(fresh, folder, manifest)


def describe_folder(
    kind: str, folder: Path, *, parents: Sequence[str] = (), facts: dict[str, JsonValue] | None = None
) -> Manifest:
    """The manifest of a local folder; raises ArtifactError when there is nothing in it."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", kind):
        raise ConfigError(f"artifact kind {kind!r}: expected lower-case letters, digits, - and _")
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    paths = [p.relative_to(folder).as_posix() for p in files]
    if not files or MANIFEST in paths:
        raise ArtifactError(f"{folder} holds {'a ' + MANIFEST if files else 'no file'}; expected a folder of result files")
    entries = sorted((_entry(file, path) for file, path in zip(files, paths, strict=True)), key=lambda e: e.path)
    return Manifest(kind, tuple(entries), tuple(parents), facts or {})


def check_folder(folder: Path, manifest: Manifest) -> None:
    """Raise ArtifactError naming the first file that is missing or differs from the manifest."""
    if damage := _damage(folder, manifest):
        raise ArtifactError(f"artifact {folder}: {damage}; delete the folder and run the stage that makes it again")


def path_of(uri: str) -> str:
    """`artifacts/<kind>/<key>` of a URL: a lake may be moved, the content key stays."""
    match = re.search(r"(?:^|/)(artifacts/[a-z][a-z0-9_-]*/[0-9a-f]{16})/?$", uri)
    if match is None:
        raise ArtifactError(f"{uri!r} is no artifact; expected <lake>/artifacts/<kind>/<16 hex digits>")
    return match[1]


def _damage(folder: Path, manifest: Manifest) -> str:
    for entry in manifest.files:
        file = folder / entry.path
        if not file.is_file():
            return f"{entry.path} is missing"
        if file.stat().st_size != entry.size_bytes:
            return f"{entry.path} has {file.stat().st_size} bytes, the manifest says {entry.size_bytes}"
        if _entry(file, entry.path) != entry:
            return f"{entry.path} does not match its digest"
    return ""


def _entry(file: Path, path: str) -> FileEntry:
    content = hashlib.sha256()
    size_bytes = 0
    with disk_errors(f"reading {file}"), file.open("rb") as stream:
        while chunk := stream.read(COPY_CHUNK_BYTES):
            content.update(chunk)
            size_bytes += len(chunk)
    return FileEntry(path, size_bytes, content.hexdigest())


def _install(fresh: Path, folder: Path, manifest: Manifest) -> Path:
    """Move a checked copy into the cache; another process may have been faster, and an older copy may be damaged."""
    if folder.is_dir() and not _damage(folder, manifest):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    try:
        fresh.rename(folder)
    except OSError:
        check_folder(folder, manifest)
    return folder
