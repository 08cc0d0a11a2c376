"""`headrace topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import REQUEST_TIMEOUT_SECONDS, KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import TopicArgument, TopicsArgument, YesOption, confirm
from headrace.cli.common.output import Output, OutputOption, show_each, show_rows
from headrace.cli.common.parsing import parse_pairs
from headrace.cli.topic.details import DETAIL_COLUMNS, read_details
from headrace.client.admin.errors import not_found

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
]


@app.command()
@with_groups
def create(
    names: TopicsArgument,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 is the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Copies of each partition; -1 is the broker's default.")
    ] = -1,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Skip topics that exist already.")
    ] = False,
    kafka: KafkaOptions,
) -> None:
    """Create topics."""
    settings = parse_pairs(config, "--config")
    admin = kafka.admin()
    from headrace.client.admin.topics import create_each

    with kafka.errors():
        for name, is_new in create_each(
            admin, names, partitions, replication_factor, settings, if_not_exists=if_not_exists
        ):
            print(f"created {name}" if is_new else f"{name} exists")


@app.command("list")
@with_groups
def list_topics(
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Also internal topics.")] = False,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """List topics."""
    topics = _topics(kafka.admin(), kafka)
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    show_rows(rows, ("topic", "partitions", "replicas"), output)


@app.command()
@with_groups
def describe(
    names: TopicsArgument,
    *,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Show the id, the changed settings and the partitions of topics."""
    admin = kafka.admin()
    _check_known(names, admin, kafka)
    with kafka.errors():
        details = read_details(admin, names)
    show_each(details, output, _show_topic)


def _show_topic(detail: dict[str, Any]) -> None:
    settings = " ".join(f"{name}={value}" for name, value in detail["config"].items())
    print(f"topic {detail['topic']}  id {detail['id']}  {settings}".rstrip())
    show_rows(detail["partitions"], DETAIL_COLUMNS, Output.table)


@app.command()
@with_groups
def alter(
    name: TopicArgument,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number; it can only grow.")
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Set it back to the default."),
    ] = None,
    kafka: KafkaOptions,
) -> None:
    """Change the settings of a topic, or give it more partitions."""
    settings = parse_pairs(config, "--config")
    if partitions is None and not settings and not delete_config:
        raise CliError("nothing to change", "give --partitions, --config or --delete-config", 2)
    admin = kafka.admin()
    _check_known([name], admin, kafka)
    from headrace.client.admin.topics import alter_topic

    with kafka.errors():
        alter_topic(admin, name, settings, delete_config or [], partitions)
    print(f"altered {name}")


@app.command()
@with_groups
def delete(
    names: TopicsArgument,
    *,
    yes: YesOption = False,
    kafka: KafkaOptions,
) -> None:
    """Delete topics and their data."""
    admin = kafka.admin()
    _check_known(names, admin, kafka)
    confirm(f"Delete {', '.join(names)} and all their data?", yes)
    from headrace.client.admin.topics import delete_each

    with kafka.errors():
        for name in delete_each(admin, names):
            print(f"deleted {name}")


def _topics(admin: AdminClient, kafka: KafkaOptions) -> dict[str, Any]:
    with kafka.errors():
        topics: dict[str, Any] = admin.list_topics(timeout=REQUEST_TIMEOUT_SECONDS).topics
        return topics


def _check_known(names: list[str], admin: AdminClient, kafka: KafkaOptions) -> None:
    # Asked for all topics, because asking for one by name could create it.
    known = _topics(admin, kafka)
    for name in names:
        if name not in known:
            raise not_found("topic", name, known, "headrace topic list")
