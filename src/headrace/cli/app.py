"""All verbs on one typer application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from headrace.cli.bench import verbs as bench
from headrace.cli.broker.options import BrokerOptions
from headrace.cli.common.option_groups import with_groups
from headrace.cli.delay import verbs as delay
from headrace.cli.dispatch import verbs as dispatch
from headrace.cli.dlq import verbs as dlq
from headrace.cli.doctor import verbs as doctor
from headrace.cli.group import verbs as group
from headrace.cli.half import verbs as half
from headrace.cli.inbox import verbs as inbox
from headrace.cli.lag import verbs as lag
from headrace.cli.large import verbs as large
from headrace.cli.log import verbs as log
from headrace.cli.outbox import verbs as outbox
from headrace.cli.pipeline import verbs as pipeline
from headrace.cli.producer import verbs as producer
from headrace.cli.records import consume, produce
from headrace.cli.retry import verbs as retry
from headrace.cli.run import verbs as running
from headrace.cli.service import verbs as service
from headrace.cli.settings import verbs as settings
from headrace.cli.topic import verbs as topic
from headrace.cli.txn import verbs as txn

app = typer.Typer(
    help="An event-streaming platform: a broker that speaks the Kafka protocol, and its tools.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command() -> Callable[..., Any]:
    """The application as a callable that takes arguments."""
    return typer.main.get_command(app)


def _show_version(asked: bool) -> None:
    if asked:
        from headrace.cli.common.version import version

        print(f"headrace {version()}")
        raise typer.Exit


@app.callback()
def _headrace(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options of the tool itself."""


@app.command()
@with_groups
def up(*, options: BrokerOptions) -> None:
    """Start the platform on this machine and print what runs where; Ctrl-C stops it."""
    from headrace.cli.broker.up import run_up

    run_up(options.to_serve())


@app.command()
@with_groups
def broker(*, options: BrokerOptions) -> None:
    """Run one broker in the foreground; prints a ready line once clients may connect."""
    from headrace.cli.broker.broker import run_broker

    run_broker(options.to_serve())


app.command()(produce.produce)
app.command()(consume.consume)
app.command()(running.run)
app.command()(service.service)
app.add_typer(producer.app, name="producer")
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.add_typer(lag.app, name="lag")
app.add_typer(log.app, name="log")
app.add_typer(large.app, name="large")
app.add_typer(inbox.app, name="inbox")
app.add_typer(outbox.app, name="outbox")
app.add_typer(retry.app, name="retry")
app.add_typer(dlq.app, name="dlq")
app.add_typer(delay.app, name="delay")
app.add_typer(half.app, name="half")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(dispatch.app, name="dispatch")
app.command()(settings.settings)
app.command()(doctor.doctor)
app.add_typer(bench.app, name="bench")
