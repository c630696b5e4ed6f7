"""Every error Everloop raises on purpose. Owns the tree; refuses to own handling.

A bad record is not an error: it is a `Rejection` and is stored. A failed gate is not an error: it is a `Decision`.
An error here means that the world is wrong (a server is down, a file cannot be read, a setting makes no sense), and its
message says three things: the value seen, what was expected, and the next step.
"""


class EverloopError(Exception):
    """Root of the tree. The command line prints its message as the last word and exits non-zero."""


class ConfigError(EverloopError):
    """A setting, a run config or a plugin name that cannot be used."""


class InputError(EverloopError):
    """Outside data that cannot be used as a whole (a missing folder, a source that cannot be read)."""


class InfrastructureError(EverloopError):
    """A part of the world failed: server, process, disk, sandbox. Never turned into a score."""


class ArtifactError(InfrastructureError):
    """A stored artifact is missing, incomplete, or does not match its digest."""


class ValidationFailed(EverloopError):
    """Data was checked and is bad; the stage stops before anything downstream can use it."""


class LeakError(ValidationFailed):
    """A secret was found in data that was about to leave quarantine."""


class TrainingError(EverloopError):
    """Training ended without what was asked: missing steps, non-finite loss, a share of failed rollouts over the cap."""
