"""The entry point `ouzel`: the commands, and what holds for all of them."""

from __future__ import annotations

from typing import Annotated

import typer

import ouzel
from ouzel.cli import console, failure
from ouzel.cli.chat import EPILOG as CHAT_EPILOG
from ouzel.cli.chat import chat
from ouzel.cli.content import OrderedCommand
from ouzel.cli.convert import EPILOG as CONVERT_EPILOG
from ouzel.cli.convert import convert
from ouzel.cli.environment import environment
from ouzel.cli.families import families
from ouzel.cli.golden import golden
from ouzel.cli.inspect import EPILOG as INSPECT_EPILOG
from ouzel.cli.inspect import inspect
from ouzel.cli.manifest import EPILOG as MANIFEST_EPILOG
from ouzel.cli.manifest import manifest
from ouzel.cli.run import EPILOG as RUN_EPILOG
from ouzel.cli.run import run
from ouzel.cli.verify import EPILOG as VERIFY_EPILOG
from ouzel.cli.verify import verify

EPILOG = """Examples:

ouzel run --image receipt.png

ouzel chat --model Qwen/Qwen3-VL-2B-Instruct

ouzel inspect ./Qwen3-0.6B

Exit codes: 0 done, 1 the work failed, 2 something given cannot be used, 130 stopped by Ctrl-C, 141 the reader of the output went away."""

app = typer.Typer(
    name="ouzel",
    help="Ouzel runs small vision-language models on ordinary machines, without PyTorch.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        console.write_line(f"ouzel {ouzel.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, show_default=False, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", show_default=False, help="Print the traceback of an error, for reports of bugs.")
    ] = False,
) -> None:
    """Common options, before the command."""
    failure.set_debug(debug)


app.command("run", cls=OrderedCommand, epilog=RUN_EPILOG)(run)
app.command("chat", cls=OrderedCommand, epilog=CHAT_EPILOG)(chat)
app.command("convert", epilog=CONVERT_EPILOG)(convert)
app.command("inspect", epilog=INSPECT_EPILOG)(inspect)
app.command("verify", epilog=VERIFY_EPILOG)(verify)
app.add_typer(golden)
app.command("manifest", epilog=MANIFEST_EPILOG)(manifest)
app.command("families")(families)
app.command("env")(environment)


def main() -> None:
    """Runs the command line."""
    console.use_utf8()
    app(prog_name="ouzel")


if __name__ == "__main__":
    main()
