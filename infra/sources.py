"""Sources of traces that are files: the lake's `inbox/`, where people and exporters drop them.

Owns the snapshot of what lies there and reading it. Formats are `pipelines.traces.formats`' concern; a file that cannot be read
is a rejection, a lake that cannot be reached is an error.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from infra.lake import Lake
from pipelines.artifacts import digest
from pipelines.errors import ArtifactError, InfrastructureError
from pipelines.traces.formats import parse_file
from pipelines.traces.model import Rejection, RejectionReason, Source, Trace

INBOX = "inbox"


@dataclass(frozen=True, slots=True)
class InboxFile:
    path: str
    """Relative to the lake's root."""
    size_bytes: int
    etag: str

    @property
    def cursor(self) -> str:
        """Name of the file's application transaction: the same content under the same path is read once."""
        return f"file:{self.path}@{self.etag}"


@dataclass(frozen=True, slots=True)
class InboxSnapshot:
    """What lay in the inbox when a cycle looked."""

    files: tuple[InboxFile, ...]
    """Sorted by path; empty for an empty or missing inbox."""

    @property
    def digest(self) -> str:
        return digest(self.files)


def list_inbox(lake: Lake) -> InboxSnapshot:
    return InboxSnapshot(tuple(InboxFile(f.path, f.size_bytes, f.etag) for f in lake.list_files(INBOX)))


def read_inbox_file(lake: Lake, file: InboxFile) -> Iterator[Trace | Rejection]:
    """Traces and rejections of one file of a snapshot, in order.

    A file that is gone, was changed after the snapshot, or may not be read, is one rejection: the next snapshot will hold it.
    """
    location = f"{lake.root}/{file.path}"
    source = Source("file", location, "unknown")
    try:
        stored = lake.get(file.path)
    except ArtifactError:
        stored = None
    except InfrastructureError as error:
        if not isinstance(error.__cause__, PermissionError | IsADirectoryError):
            raise
        yield Rejection(RejectionReason.UNREADABLE, str(error), source, "")
        return
    if stored is None:
        yield Rejection(RejectionReason.UNREADABLE, f"{file.path} is gone since it was listed", source, "")
    elif stored.etag.strip('"') != file.etag:
        yield Rejection(RejectionReason.UNREADABLE, f"{file.path} changed since it was listed; it is read next time", source, "")
    else:
        yield from parse_file(stored.data, location=location)
