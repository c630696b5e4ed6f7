"""The `everloop` command. Owns arguments, printing and exit codes; the work is elsewhere, imported when a command needs it.

Exit codes: 0 done, 1 an error that was explained in one line, 2 wrong usage, 130 interrupted.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from flows import data_commands
from flows.terminal import make_console, read_settings
from infra.settings import Settings
from pipelines.errors import ConfigError, EverloopError

if TYPE_CHECKING:
    from infra.stack.state import StackState

COLOURS = {"up": "green", "ok": "green", "warning": "yellow", "failed": "red", "gone": "red"}


class Commands(TyperGroup):
    """Turns every end of a command into one line and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except SystemExit as end:
            if end.code == 130:
                _say(f"interrupted; the same command continues where it stopped: {' '.join(['everloop', *sys.argv[1:]])}")
            raise
        except EverloopError as error:
            _say(f"error: {error}")
        except OSError as error:
            _say(f"error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        except Exception as error:
            # The last boundary: a defect keeps its traceback, but the last word tells the reader what it means.
            traceback.print_exc()
            _say(f"error: unexpected {type(error).__name__}: {error}; a defect in Everloop; please report the lines above")
        sys.exit(1)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Turn an agent's failed runs into a better model: ingest, reward, train, evaluate, promote.",
    epilog="Settings are environment variables [cyan]EVERLOOP_*[/] (or a [cyan].env[/] file); state is in [cyan].everloop/[/].",
)


app.command(
    "ingest",
    epilog="[bold]Examples[/]\n\n[cyan]everloop ingest --dry-run traces/*.jsonl[/]\n\n[cyan]everloop ingest --dry-run[/]  the lake's inbox",
)(data_commands.ingest)
app.add_typer(data_commands.cases, name="cases")
app.add_typer(data_commands.quarantine, name="quarantine")


@app.command(
    epilog="[bold]Examples[/]\n\n[cyan]everloop up[/]\n\n[cyan]EVERLOOP_MLFLOW_PORT=5001 everloop up[/]  when port 5000 is taken",
)
def up(
    serve: Annotated[bool, typer.Option(help="Serve the base model with vLLM when nothing else is declared for serving.")] = True,
) -> None:
    """Start the local stack and wait until every part answers. It survives the terminal; [cyan]everloop down[/] stops it."""
    from infra.champion import ensure_champion
    from infra.lake import open_lake
    from infra.stack.lifecycle import start_stack

    settings = read_settings()
    console = make_console()
    progress = _Progress(console)
    with console.status("starting") as spinner:
        start = start_stack(settings, serve=serve, watch=lambda state: spinner.update(progress.show(state)))
        if serve:
            spinner.update("pointing the gateway at the champion")
            ensure_champion(settings, open_lake(settings))
    console.print("[bold]Already up.[/]" if start.already_up else f"[bold]Up[/] in {start.wall_s:.0f} s.")
    console.print(_places(settings), highlight=False)


@app.command(epilog="[bold]Example[/]\n\n[cyan]everloop down[/]")
def down() -> None:
    """Stop exactly what [cyan]everloop up[/] started. Databases, models and the lake stay."""
    from infra.stack.lifecycle import stop_stack

    stop = stop_stack(read_settings())
    if not stop.was_running:
        make_console().print("Nothing was running.")
    elif stop.num_leftovers:
        make_console().print(f"Down; {stop.num_leftovers} processes were left without a supervisor and were ended too.")
    else:
        make_console().print("Down.")


@app.command(
    epilog="[bold]Examples[/]\n\n[cyan]everloop demo[/]  (about ten minutes on two cores)\n\n"
    "[cyan]EVERLOOP_HOME=.everloop-1 everloop demo --seed 1[/]  the same with other customers, from the base model"
)
def demo(seed: Annotated[int, typer.Option(min=0, help="Seed of the customers' requests and of training.")] = 0) -> None:
    """Run one whole cycle on a small support agent, from production traffic to the promoted model, and print what it gained."""
    settings = read_settings()
    _point_clients_at_the_stack(settings)
    from flows.demo import run_demo

    run_demo(settings, seed=seed)


@app.command(
    epilog="[bold]Examples[/]\n\n[cyan]everloop run[/]\n\n[cyan]everloop run --config cycle.yaml[/]\n\n"
    "The same command after an interruption continues the same cycle.",
)
def run(
    config: Annotated[
        Path | None, typer.Option(help="Run config as YAML; without it, the defaults.", exists=True, dir_okay=False)
    ] = None,
) -> None:
    """Run one cycle now: ingest, build rewards, post-train, evaluate, promote."""
    from pipelines.config import RunConfig, read_run_config

    settings = read_settings()
    run_config = read_run_config(config) if config else RunConfig()
    _point_clients_at_the_stack(settings)
    from flows.close_loop import run_cycle

    record = run_cycle(settings, run_config)
    make_console().print(f"Cycle {record['cycle']}: [bold]{record['outcome']}[/]; `everloop status --json` has the whole record.")


@app.command(epilog="[bold]Examples[/]\n\n[cyan]everloop status[/]\n\n[cyan]everloop status --json | jq .cycle.decision[/]")
def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Show the parts of the stack and the latest cycle."""
    import orjson

    from infra.cycles import latest_cycle
    from infra.lake import open_lake
    from infra.stack.lifecycle import observe_stack
    from pipelines.artifacts import to_plain

    settings = read_settings()
    state = observe_stack(settings)
    cycle = latest_cycle(open_lake(settings))
    if as_json:
        document = {"stack": None if state is None else to_plain(state), "cycle": cycle}
        sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    _print_parts(settings, state)
    _print_cycle(cycle)


@app.command(epilog="[bold]Example[/]\n\n[cyan]everloop doctor[/]")
def doctor() -> None:
    """Check this machine: Python, torch, vLLM, bubblewrap, disk, memory, ports, lake. Exit code 1 when something needs fixing."""
    from infra.doctor import CheckResult, diagnose

    console = make_console()

    def show(result: CheckResult) -> None:
        _print_line(console, result.outcome, result.name, result.detail)
        if result.fix:
            console.print(f"{'':<27}fix: {result.fix}", markup=False, highlight=False)

    results = diagnose(read_settings(), report=show)
    if failed := [result.name for result in results if not result.ok]:
        raise ConfigError(f"{len(failed)} of {len(results)} checks failed: {', '.join(failed)}; see the fixes above")


class _Progress:
    """Prints each part once when it is up, and says what is still awaited."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: set[str] = set()

    def show(self, state: "StackState") -> str:
        """Print what is new; returns the text for the spinner."""
        for name, part in state.parts.items():
            if part.status == "up" and name not in self._shown:
                self._shown.add(name)
                _print_line(self._console, part.status, name, f"port {part.port}" if part.port else "")
        awaited = [name for name in state.parts if name not in self._shown]
        return f"waiting for {', '.join(awaited)}" if awaited else "waiting"


def _point_clients_at_the_stack(settings: Settings) -> None:
    """Prefect and MLflow read their addresses from the environment when they are imported: set them before that."""
    from infra.stack.environment import client_environment

    os.environ.update(client_environment(settings))


def _places(settings: Settings) -> str:
    return (
        f"  Prefect UI  http://{settings.host}:{settings.prefect_port}\n"
        f"  MLflow UI   {settings.mlflow_url}\n"
        f"  Gateway     {settings.gateway_url}  (endpoint {settings.endpoint})\n"
        f"  Logs        {settings.root / 'logs'}"
    )


def _print_parts(settings: Settings, state: "StackState | None") -> None:
    console = make_console()
    if state is None:
        console.print("The stack is down; [cyan]everloop up[/] starts it.")
        return
    for part in state.parts.values():
        port = f"port {part.port}" if part.port else ""
        pid = f"pid {part.process.pid}" if part.process else ""
        restarts = f"restarted {part.restarts} times" if part.restarts else ""
        _print_line(console, part.status, part.name, "  ".join(text for text in (port, pid, restarts, part.detail) if text))
    console.print(_places(settings), highlight=False)


def _print_line(console: Console, status: str, name: str, detail: str) -> None:
    console.print(f"[{COLOURS.get(status, 'yellow')}]{status:<10}[/] [bold]{name:<16}[/]", end="", highlight=False)
    console.print(detail, markup=False, highlight=False)


def _print_cycle(cycle: Any) -> None:
    console = make_console()
    if cycle is None:
        console.print("No cycle yet; [cyan]everloop run[/] runs one, [cyan]everloop demo[/] a complete example.")
        return
    console.print("\n[bold]Latest cycle[/]")
    console.print_json(data=cycle)


def _say(message: str) -> None:
    sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app()
