"""`python -m adafuse` is the command `adafuse`."""

from adafuse.cli.main import main

main()
