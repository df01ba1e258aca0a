"""`python -m tests.system.versions.make_golden`: the checkpoint folders in golden/, made again by the tree of 75b2d4e.

They are never to be made by another commit: what that one wrote must be readable for ever.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.trees import RELEASED, environment_of, extract
from tests.system.versions import made_checkpoints

GOLDEN = Path(__file__).parent / "golden" / RELEASED


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = extract(RELEASED, Path(folder))
        script = Path(made_checkpoints.__file__)
        subprocess.run([sys.executable, str(script), str(GOLDEN)], check=True, env=environment_of(tree))


if __name__ == "__main__":
    main()
