"""The beginning and the end of `sonde`: parse, run, Outcome, render, exit code."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from sonde.cli import streams
from sonde.cli.commands import root
from sonde.cli.console import Console, foreseen
from sonde.cli.faults import fault_of
from sonde.core import interrupt, surroundings
from sonde.core.errors import Exit
from sonde.core.outcome import Outcome


def age_s() -> float:
    """The age of this process, s; 0 if the kernel does not report it.

    Source: proc(5), /proc/pid/stat, field 22, counted after the name, which may hold blanks.
    """
    try:
        with open("/proc/self/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0


@contextmanager
def _libraries_silent(debug: bool) -> Iterator[None]:
    """Hide warnings of libraries, also logged ones: they are for programmers, and a user gets Sonde's own warnings.
    --debug, -W and PYTHONWARNINGS show them.
    """
    if debug or sys.warnoptions:
        yield
        return
    import logging

    silent = logging.NullHandler()  # without a handler, logged warnings go to stderr
    logging.getLogger().addHandler(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger().removeHandler(silent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. arguments: those after the program's name; None: its own."""
    if arguments is not None:  # the process belongs to the caller, and so do its signals
        return _main(arguments)
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # otherwise it is ignored, and stays ignored
        signal.signal(signal.SIGINT, interrupt.once)
    code = _main(None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the output is complete: a late Ctrl-C changes no exit code
    return code


def _main(arguments: Sequence[str] | None) -> int:
    alone = arguments is None  # otherwise the process belongs to the caller, and so does its environment
    loading_s = age_s() if alone else 0.0
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if alone:
        streams.secure()
    if task := os.environ.get("_SONDE_COMPLETE"):
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, "sonde", "_SONDE_COMPLETE", task)
    if dataset := sys.modules.get("sonde.core.dataset"):  # if main is called more than once
        dataset.begin()
    settings = foreseen(arguments)
    settings.began -= loading_s
    console = Console(settings)
    try:
        if alone:
            for line in surroundings.make_safe(os.environ):
                settings.say(f"warning: {line}")
        with (
            root.make_context("sonde", arguments, obj=settings) as context,
            _libraries_silent(settings.debug),
        ):
            outcome = root.invoke(context)
        if not isinstance(outcome, Outcome):
            line = " ".join(["sonde", *settings.command])
            raise TypeError(f"'{line}' returned {type(outcome).__name__}, not an Outcome")
        with _libraries_silent(settings.debug):
            return console.show(outcome)
    except click.exceptions.NoArgsIsHelpError as bare:
        return console.help(bare.format_message())
    except click.exceptions.Exit as done:  # --help and --version have printed
        return console.close(done.exit_code)
    except streams.ReaderGone:  # while a command prints repeatedly: `sonde power watch | head`
        return int(Exit.DONE)
    except (Exception, KeyboardInterrupt) as error:
        return console.fail(fault_of(error), error)
