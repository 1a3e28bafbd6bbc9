"""The entry point: run a verb, and turn whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress

from bayeseq.cli.arguments import build_parser

FAILED, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
"""Exit codes: an error, and as a shell reports it a process ended by SIGINT or SIGPIPE."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    >>> main(["fit", "no-such-file", "-o", "model"])
    2
    """
    args = build_parser().parse_args(argv)
    _never_fail_on_a_letter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: _complain(f"warning: {message}")
            # Only now, as the verbs import torch, which help and version can do without.
            code = importlib.import_module(f"bayeseq.cli.{args.verb}").run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _complain("interrupted; nothing was saved" if args.verb == "fit" else "interrupted")
        return INTERRUPTED
    except (ValueError, OSError) as error:
        if args.debug or os.environ.get("BAYESEQ_DEBUG") == "1":
            traceback.print_exc()
        _complain(f"error: {_message(error)}")
        return FAILED
    return int(code)


def _complain(text: str) -> None:
    print(f"bayeseq: {text}", file=sys.stderr)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _never_fail_on_a_letter() -> None:
    """Write what a terminal's encoding does not have as `?`; tagged text sets its own encoding."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _forget_stdout() -> None:
    """Nobody reads any more, so what is still buffered goes nowhere and says nothing."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
