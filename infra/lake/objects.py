"""Single objects of a lake with conditional writes: the protocol, and the local folder that implements it.

Owns create-if-absent and compare-and-replace of small objects and whole-file copies. Refuses to know what the objects mean.
`infra.lake.s3_objects` implements the same protocol on S3.
"""

import contextlib
import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from pipelines.artifacts import digest_bytes
from pipelines.errors import ArtifactError, InfrastructureError

COPY_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's bytes with the etag that `replace` expects."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it."""

    path: str
    """Relative to the lake's root, with forward slashes."""
    size_bytes: int
    etag: str
    """Changes whenever the content does."""


class Objects(Protocol):
    """Where the objects of a lake lie. Paths are relative to its root, with forward slashes."""

    root: str

    def get(self, path: str) -> StoredObject | None: ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create the object; True when it now holds exactly `data`, False when it holds something else.

        A second writer of the same bytes also gets True: put an owner's token into a lease.
        """
        ...

    def replace(self, path: str, data: bytes, *, expected_etag: str) -> bool:
        """Overwrite the object only if its etag is still `expected_etag`; True when it now holds `data`."""
        ...

    def upload(self, source: Path, path: str) -> None:
        """Copy a whole local file into the lake, overwriting; complete and durable on return."""
        ...

    def download(self, path: str, target: Path) -> None:
        """Copy a whole object to a local file; raises ArtifactError when there is none."""
        ...

    def list_files(self, prefix: str) -> list[ObjectInfo]:
        """Objects under a folder, sorted by path; empty when the folder does not exist."""
        ...


class LocalObjects:
    """A folder. Creating is temp file + fsync + hard link; replacing is serialised by a lock file per object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = str(folder)

    def get(self, path: str) -> StoredObject | None:
        with disk_errors(f"reading {path}"):
            try:
                data = (self.folder / path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return StoredObject(data, digest_bytes(data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = self.folder / path
        with disk_errors(f"writing {path}"), _temporary(target) as (temporary, stream):
            stream.write(data)
            _flush(stream)
            try:
                os.link(temporary, target)
            except FileExistsError:
                return target.read_bytes() == data
            _sync_folder(target.parent)
        return True

    def replace(self, path: str, data: bytes, *, expected_etag: str) -> bool:
        target = self.folder / path
        with disk_errors(f"writing {path}"), self._lock(path), _temporary(target) as (temporary, stream):
            current = self.get(path)
            if current is None or current.etag != expected_etag:
                return current is not None and current.data == data
            stream.write(data)
            _flush(stream)
            temporary.replace(target)
            _sync_folder(target.parent)
        return True

    def upload(self, source: Path, path: str) -> None:
        target = self.folder / path
        with disk_errors(f"writing {path}"), source.open("rb") as reader, _temporary(target) as (temporary, stream):
            while chunk := reader.read(COPY_CHUNK_BYTES):
                stream.write(chunk)
            _flush(stream)
            temporary.replace(target)
            _sync_folder(target.parent)

    def download(self, path: str, target: Path) -> None:
        source = self.folder / path
        if not source.is_file():
            raise ArtifactError(f"{source} is missing")
        LocalObjects(target.parent).upload(source, target.name)

    def list_files(self, prefix: str) -> list[ObjectInfo]:
        base = self.folder / prefix
        files = sorted(p for p in base.rglob("*") if p.is_file() and not p.name.startswith("."))
        return [self._info(path) for path in files]

    def _info(self, path: Path) -> ObjectInfo:
        try:
            etag = digest_bytes(path.read_bytes())
        except OSError as error:
            etag = f"unreadable: {error.strerror}"
        return ObjectInfo(path.relative_to(self.folder).as_posix(), path.stat().st_size, etag)

    @contextlib.contextmanager
    def _lock(self, path: str) -> Iterator[None]:
        lock = self.folder / ".locks" / f"{digest_bytes(path.encode())[:16]}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def disk_errors(action: str) -> Iterator[None]:
    """Turn an OSError of the lake's disk into one InfrastructureError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise InfrastructureError(f"lake: no space left while {action}; free space on that disk and run again") from error
        raise InfrastructureError(
            f"lake: {error.strerror or error} while {action}; check the folder and its permissions"
        ) from error


@contextlib.contextmanager
def _temporary(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """An open file beside the target that is gone afterwards, whatever happened."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as stream:
            yield temporary, stream
    finally:
        temporary.unlink(missing_ok=True)


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the new directory entry itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
