"""`python -m hansard`: the command line."""

from hansard.cli.start import main

main()
