"""`python -m holdfast` is the command line."""

import sys

from .cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
