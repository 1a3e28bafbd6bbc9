"""A journal of the records of a long run, so that what a killed run has done is not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import Any


class Journal:
    """Records by the piece of work that they are of, in a file of one JSON object a line.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.journal"
    >>> Journal(path).add("fold 1", {"error": 0.25})
    {'error': 0.25}
    >>> Journal(path).records
    {'fold 1': {'error': 0.25}}
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        content = self.path.read_bytes()
        # a run that was killed while it wrote leaves part of a line
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self.path.write_bytes(whole)
        for line in whole.decode("utf-8").splitlines():
            work, record = json.loads(line)
            self.records[work] = record

    def add(self, work: str, record: dict[str, Any]) -> dict[str, Any]:
        """Write a record down, and return it as a later run will read it."""
        line = json.dumps([work, record])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.records[work] = json.loads(line)[1]
        return self.records[work]


_current: ContextVar[Journal | None] = ContextVar("journal", default=None)


def current_journal() -> Journal | None:
    """The journal of the run that is under way, if it keeps one."""
    return _current.get()


@contextmanager
def journal(folder: Path, name: str, command: str) -> Iterator[Journal]:
    """Keep a journal in `folder` meanwhile: what the same command wrote before it was killed is
    read, and the file is removed when all went well."""
    mark = sha256(command.encode()).hexdigest()[:8]
    found = Journal(folder / f"{name}-{mark}.journal")
    token = _current.set(found)
    try:
        yield found
        found.path.unlink(missing_ok=True)
    finally:
        _current.reset(token)
