"""`sfd-stream topics`: creates the missing topics that the settings name."""

# Annotations are evaluated: typer reads them.
from typing import Annotated

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from


def topics(
    partitions: Annotated[
        int,
        typer.Option("--partitions", min=1, help="Number of partitions of the input topic and the dead-letter topic."),
    ],
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            help="Number of replicas of a new topic.",
            show_default="the broker's default",
        ),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the topics that the settings name, with the right configuration; existing topics are not changed.

    Example: [bold]sfd-stream topics --config settings.yaml --partitions 4[/bold]
    """
    from sfd_stream.cli.build import admin_of
    from sfd_stream.cli.output import print_json, print_table
    from sfd_stream.kafka.topics import create_topic
    from sfd_stream.tools.topics import wanted_topics

    settings = settings_from(config, overrides).settings
    admin = admin_of(settings)
    made = [
        (topic, create_topic(admin, topic.name, topic.partitions, topic.config, replication_factor))
        for topic in wanted_topics(settings, partitions)
    ]
    if as_json:
        print_json({topic.name: "made" if new else "there" for topic, new in made})
        return
    rows = [(topic.name, topic.partitions if new else "", "created" if new else "exists") for topic, new in made]
    print_table(("topic", "partitions", ""), rows)
