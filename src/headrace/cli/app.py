"""All verbs on one typer application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import (
    bench,
    consume,
    delay,
    dispatch,
    dlq,
    doctor,
    group,
    half,
    inbox,
    lag,
    large,
    log,
    outbox,
    pipeline,
    produce,
    producer,
    retry,
    running,
    service,
    settings,
    topic,
    txn,
)
from headrace.cli.serve_options import (
    ConfigOption,
    DataDirOption,
    InsecureOption,
    ListenOption,
    SetOption,
)

if TYPE_CHECKING:
    from headrace.cli.serving import ServeOptions

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
        from headrace.cli.version import version

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
def up(
    *,
    listen: ListenOption = None,
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    allow_insecure_listen: InsecureOption = False,
) -> None:
    """Start the platform on this machine and say what runs where; Ctrl-C stops it."""
    from headrace.cli.up import run_up

    run_up(_serve_options(listen, data_dir, config, set_, allow_insecure_listen))


@app.command()
def broker(
    *,
    listen: ListenOption = None,
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    allow_insecure_listen: InsecureOption = False,
) -> None:
    """Run one broker in the foreground; prints a ready line once clients may connect."""
    from headrace.cli.broker import run_broker

    run_broker(_serve_options(listen, data_dir, config, set_, allow_insecure_listen))


def _serve_options(
    listen: ListenOption,
    data_dir: DataDirOption,
    config: ConfigOption,
    pairs: SetOption,
    allow_insecure_listen: InsecureOption,
) -> ServeOptions:
    from headrace.cli.serving import ServeOptions

    return ServeOptions(
        listen=listen,
        data_dir=data_dir,
        config=config,
        set=tuple(pairs or ()),
        allow_insecure_listen=allow_insecure_listen,
    )


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
