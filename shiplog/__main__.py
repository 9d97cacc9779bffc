"""`python -m shiplog` is the `shiplog` command."""

from shiplog.cli.main import main

if __name__ == "__main__":
    main()
