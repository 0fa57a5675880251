"""`python -m hansard.cli`."""

from hansard.cli.start import main

main()
