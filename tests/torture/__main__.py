"""`python -m tests.torture`: see the package's docstring. Exit code 1 if a check failed; then the logs are kept."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.system.runs import PROTOCOLS
from tests.torture.campaign import Campaign, Shape, remove
from tests.torture.parts import NETWORK_STORES

LOGS = Path("dist") / "torture"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="A campaign on real parts.")
    parser.add_argument("--minutes", type=float, default=5.0, help="How long faults are injected.")
    parser.add_argument("--seed", type=int, default=0, help="Chooses the shape and the plan of faults.")
    parser.add_argument("--every", type=float, default=3.0, metavar="SECONDS", help="Average time between two faults.")
    parser.add_argument("--cluster", action="store_true", help="Run three brokers instead of one.")
    parser.add_argument("--fencing", action="store_true", help="Let pauses of a second fence the only broker.")
    parser.add_argument("--delivery", choices=("idempotent", "transactional"))
    parser.add_argument("--score-delivery", choices=("at-least-once", "transactional"))
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS))
    parser.add_argument("--store", choices=("disk", *NETWORK_STORES))
    parser.add_argument("--folder", type=Path, help="Folder for the logs; it must not exist.")
    parser.add_argument("--keep", action="store_true", help="Keep the logs of a campaign that passed, too.")
    parser.add_argument("--table", type=Path, help="Write the table to this file every ten minutes and at the end.")
    parser.add_argument("--commit", action="store_true", help="Commit the file of --table each time.")
    return parser.parse_args()


def record(campaign: Campaign, table: Path | None, *, commit: bool) -> None:
    if table is None:
        return
    table.write_text(campaign.table())
    if commit:
        subprocess.run(["git", "add", str(table)], check=True)
        subprocess.run(["git", "commit", "--quiet", "-m", f"torture: record {table.name}", str(table)], check=True)


def main() -> int:
    given = arguments()
    shape = Shape.of(
        given.seed,
        brokers=3 if given.cluster else 1,
        fencing=given.fencing,
        delivery=given.delivery,
        score_delivery=given.score_delivery,
        protocol=given.protocol,
        store=given.store,
    )
    folder = given.folder or LOGS / f"seed-{given.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    campaign = Campaign(
        shape,
        given.minutes,
        folder.absolute(),
        given.every,
        lambda running: record(running, given.table, commit=given.commit),
    )
    passed = campaign.run()
    print(campaign.table())
    record(campaign, given.table, commit=given.commit)
    if passed and not given.keep:
        remove(campaign.folder)
    else:
        print(f"logs: {campaign.folder}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
