"""Files that are written in one step, so that a reader finds the old one or the new one, and files that tell damage."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["read_sealed", "write_in_one_step", "write_sealed"]

_SEAL = hashlib.sha256().digest_size


def write_in_one_step(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file, in a folder that is made where it is not there; OSError where that cannot be."""
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_sealed(path: Path, content: bytes) -> None:
    """The same, behind the digest of what is in it."""
    write_in_one_step(path, hashlib.sha256(content).digest() + content)


def read_sealed(path: Path) -> bytes | None:
    """What was written so; None where there is no such file, or it is not as it was written."""
    try:
        sealed = path.read_bytes()
    except OSError:
        return None
    content = sealed[_SEAL:]
    return content if hashlib.sha256(content).digest() == sealed[:_SEAL] else None
