"""`python -m app.cli`: the same as the command `surefoot`."""

from app.cli import main

main()
