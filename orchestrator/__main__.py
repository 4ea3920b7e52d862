"""The door: start the command line, and turn whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run `gpujob`. Leaves by SystemExit, never by a traceback."""
    if sys.platform == "win32":
        sys.stderr.write(
            "gpujob does not run on Windows: it needs POSIX signals and file locks.\n"
            "Run it under WSL.   (exit 2)\n"
        )
        raise SystemExit(2)
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Return the exit code of one command line."""
    import gc

    gc.disable()  # a command's imports make much and free little: collecting costs a tenth of them
    from orchestrator.cli import app

    try:
        outcome = app(args=argv, prog_name="gpujob", standalone_mode=False)
        code = outcome if isinstance(outcome, int) else 0
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough. The pipe must not be flushed again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted.   (exit 130)\n")
        return 130
    except Exception as error:  # noqa: BLE001 - the last door: a person never meets a traceback
        from orchestrator.complaint import complain

        return complain(error, argv)
    return code


if __name__ == "__main__":
    main()
