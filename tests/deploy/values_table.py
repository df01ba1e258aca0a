"""The chart's README, whose table is made of values.yaml: each value, its default, the comment above it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

HEAD = """# sfd-stream

{description}. Version {version}, for Kubernetes {kube}.

These values are required, and no others:

```yaml
{smallest}```

<!-- not run: needs a cluster and a registry -->
```console
$ helm install sketch oci://REGISTRY/sfd-stream --version {version} -n data -f values.yaml
```

`examples/` has complete values for Strimzi, Amazon MSK, Confluent Cloud, Azure Event Hubs, Redpanda, S3, Google Cloud
Storage and Azure Blob Storage. [deploying.md](../../docs/guides/deploying.md) has sizing, rights for stores and
brokers and what was tried on what; [UPGRADING.md](UPGRADING.md) has what to do between versions. A value that cannot
work is refused with the reason and the remedy; `values.schema.json` knows every setting of the program itself.

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
    return head + "".join(f"| `{name}` | {default} | {words} |\n" for name, default, words in rows(values))


def rows(values: str) -> Iterator[tuple[str, str, str]]:
    """Each value of the first two levels, with the comment above it. A map on several lines has no default itself."""
    defaults, above, comment = yaml.safe_load(values), "", []
    for line in values.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().lstrip("#").strip())
            continue
        if found := _KEY.match(line):
            above = above if found["indent"] else found["name"]
            path = (above, found["name"]) if found["indent"] else (above,)
            default = defaults[above][path[1]] if found["indent"] else defaults[above]
            shown = "" if line.endswith(":") else f"`{json.dumps(default)}`"
            yield ".".join(path), shown, " ".join(comment).replace("|", "\\|")
        comment = []
