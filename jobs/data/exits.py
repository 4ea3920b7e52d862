"""Exit codes of the `data` commands, as in the table of exit codes of the whole command line."""

OK, USAGE, REFUSED = 0, 2, 6
