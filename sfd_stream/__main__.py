"""`python -m sfd_stream`: the command line by the interpreter that runs already."""

import sys

from sfd_stream.cli import main

sys.exit(main())
