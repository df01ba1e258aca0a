"""The chart's README, whose table is made of values.yaml: each value, its default, the comment above it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

HEAD = """# sfd-stream

{description}. Version {version}, for Kubernetes {kube}.

```yaml
{smallest}```

is all that has to be said. [deploying.md](../../docs/deploying.md) has the rest: the five lines to a running release,
sizing, rights for stores and brokers, upgrades, what was tried on what. Refusals say what is wrong, why, and what to
do; `values.schema.json` knows every setting of the program itself.

## Values

Made of `values.yaml` by `make chart`.

| value | default | |
|---|---|---|
"""
_KEY = re.compile(r"^(?P<indent>(?:  )?)(?P<name>[A-Za-z]\w*):")


def readme(chart: dict[str, Any], smallest: str, values: str) -> str:
    body = smallest.partition("\n")[2]  # without its comment
    head = HEAD.format(
        description=chart["description"], version=chart["version"], kube=chart["kubeVersion"], smallest=body
    )
    return head + "".join(f"| `{name}` | `{default}` | {words} |\n" for name, default, words in rows(values))


def rows(values: str) -> Iterator[tuple[str, str, str]]:
    """Each top-level value, and those below it that have a comment of their own."""
    defaults, above, comment = yaml.safe_load(values), "", []
    for line in values.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().lstrip("#").strip())
            continue
        if (found := _KEY.match(line)) and (comment or not found["indent"]):
            above = above if found["indent"] else found["name"]
            path = (above, found["name"]) if found["indent"] else (above,)
            default = defaults[above][path[1]] if found["indent"] else defaults[above]
            yield ".".join(path), _shown(default), " ".join(comment).replace("|", "\\|")
        comment = []


def _shown(default: Any) -> str:
    text = json.dumps(default)
    return text if len(text) <= 60 else "{...}"
