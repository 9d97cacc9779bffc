"""`python -m samelog` is the `samelog` command."""

from samelog.cli.main import main

if __name__ == "__main__":
    main()
