"""`python -m sfd_stream.cli`: the command line with the running interpreter."""

import sys

from sfd_stream.cli import main

sys.exit(main())
