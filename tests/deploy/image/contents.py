"""What is in the image, as a page: its size, its layers, every package with its licence, and what a scan looks for.

python -m tests.deploy.image.contents      builds the image as `make image` does, and writes docs/reference/image.md
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.image.containers import ROOT, UID
from tests.deploy.image.making import make_image
from tests.support.engine import PYTHON_BASE, Engine, start_engine

PAGE = ROOT / "docs" / "reference" / "image.md"
PYTHON = ("--entrypoint", "/opt/sfd-stream/bin/python")
_PACKAGES = """
import importlib.metadata as m, json
def licence(d):
    said = d.metadata.get("License-Expression") or (d.metadata.get("License") or "").partition("\\n")[0]
    short = [c.rpartition(" :: ")[2] for c in d.metadata.get_all("Classifier") or [] if c.startswith("License")]
    return said if 0 < len(said) < 60 else ", ".join(short)
def size(d):
    return sum(f.locate().stat().st_size for f in d.files or [] if f.locate().exists())
print(json.dumps(sorted([d.name.lower(), d.version, licence(d), size(d)] for d in m.distributions())))
"""
_FOUND = {
    "files that run as another user (set-user-id, set-group-id)": "find / -xdev -type f -perm /6000",
    f"files of uid {UID}": f"find / -xdev -uid {UID}",
    "files that anybody may write": "find / -xdev ! -type l ! -path '/tmp' ! -path '/var/tmp' "
    "! -path '/run/lock' ! -path '/var/lock' ! -path '/dev/*' -perm -o+w",
    "compilers, linkers, make": "for p in gcc cc c++ ld make; do command -v $p; done",
    "pip of the program's own, caches, sources of the build": "ls -d /src /wheels /build /opt/sfd-stream/bin/pip* "
    "/opt/sfd-stream/lib/python3*/site-packages/pip 2>/dev/null; "
    "find / -xdev \\( -path '*/.cache/*' -o -path '*cache/pip' \\)",
}
_OF_THE_BASE = {"pip of the base, which the program does not use": "for p in pip pip3; do command -v $p; done"}


@dataclass(frozen=True)
class Contents:
    compressed_bytes: int
    unpacked_bytes: int
    base: str
    layers: list[str]
    python: list[tuple[str, str, str, int]]
    debian: list[str]
    found: dict[str, list[str]]
    """Should be nothing."""
    of_the_base: dict[str, list[str]]
    """What the base brings, and is left as it is."""

    def page(self) -> str:
        lines = [
            "# What is in the image",
            "",
            "Written by `python -m tests.deploy.image.contents`, which builds the image and looks into it. `make test`",
            "fails if its packages differ from the lock; `make test-image` checks the rest on a new build.",
            "",
            "| | |",
            "|---|---|",
            f"| compressed, as a registry stores it | {self.compressed_bytes:,} bytes |",
            f"| unpacked | {self.unpacked_bytes:,} bytes |",
            f"| base | {self.base} |",
            *(
                f"| {name} | {', '.join(f'`{one}`' for one in found) or 'none'} |"
                for name, found in (self.found | self.of_the_base).items()
            ),
            "",
            "## Python packages",
            "",
            "| package | version | licence | bytes |",
            "|---|---|---|---:|",
            *(f"| {name} | {version} | {licence} | {size:,} |" for name, version, licence, size in self.python),
            "",
            "## Layers",
            "",
            "```",
            *self.layers,
            "```",
            "",
            "## Debian packages of the base",
            "",
            "```",
            *self.debian,
            "```",
        ]
        return "\n".join(lines) + "\n"


def contents(engine: Engine, image: str) -> Contents:
    def shell(script: str) -> list[str]:
        whole = ("run", "--rm", "--user", "0", "--entrypoint", "sh", image, "-c", f"{script}; true")
        return engine.run(*whole).splitlines()

    layers = engine.run("history", "--no-trunc", "--format", "{{.Size}}\t{{.CreatedBy}}", image).splitlines()
    python: Any = json.loads(engine.run("run", "--rm", *PYTHON, image, "-c", _PACKAGES))
    return Contents(
        compressed_bytes=compressed_bytes(engine, image),
        unpacked_bytes=int(engine.run("inspect", "--format", "{{.Size}}", image)),
        base=f"{PYTHON_BASE}, made here from Debian's packages" if engine.ours else PYTHON_BASE,
        layers=[re.sub(r"RUN \|.*? /bin/sh -c", "RUN", line)[:140] for line in layers if not line.startswith("0B")],
        python=[(name, version, licence, size) for name, version, licence, size in python],
        debian=shell("dpkg-query -W -f '${Package} ${Version}\\n'"),
        found={name: shell(script) for name, script in _FOUND.items()},
        of_the_base={name: shell(script) for name, script in _OF_THE_BASE.items()},
    )


def compressed_bytes(engine: Engine, image: str) -> int:
    """Its layers, gzipped."""
    with subprocess.Popen([engine.client, "save", image], stdout=subprocess.PIPE, env=engine.environment) as save:
        size = subprocess.run("gzip -6 | wc -c", shell=True, stdin=save.stdout, capture_output=True, check=True).stdout  # noqa: S602 - a fixed text
    assert save.returncode == 0
    return int(size)


def main(page: Path = PAGE) -> None:
    with start_engine() as engine:
        page.write_text(contents(engine, make_image(engine)).page())


if __name__ == "__main__":
    main()
