"""Where `sonde` begins and ends: parse, run, Outcome, render, exit code."""

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
    """How long ago this process was started, s; 0 where the kernel does not tell.

    Source: proc(5), /proc/pid/stat, field 22, counted behind the name, which may hold blanks.
    """
    try:
        with open("/proc/self/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0


@contextmanager
def _libraries_silent(debug: bool) -> Iterator[None]:
    """Warnings of libraries, also those that they log, are for whoever writes programs with them: a user gets Sonde's
    own. --debug, -W and PYTHONWARNINGS let them through.
    """
    if debug or sys.warnoptions:
        yield
        return
    import logging

    silent = logging.NullHandler()  # without any, warnings that are logged go to stderr
    logging.getLogger().addHandler(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger().removeHandler(silent)


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code. words: after the program's name; None: its own."""
    if words is not None:  # the process is another's, and so are its signals
        return _main(words)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, and stays so
        signal.signal(signal.SIGINT, interrupt.once)
    code = _main(None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said: a late Ctrl-C changes no exit code
    return code


def _main(words: Sequence[str] | None) -> int:
    alone = words is None  # else the process is another's, and so is its environment
    loading_s = age_s() if alone else 0.0
    words = list(sys.argv[1:] if words is None else words)
    if alone:
        streams.secure()
    if task := os.environ.get("_SONDE_COMPLETE"):
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, "sonde", "_SONDE_COMPLETE", task)
    if dataset := sys.modules.get("sonde.core.dataset"):  # where main is called more than once
        dataset.begin()
    settings = foreseen(words)
    settings.began -= loading_s
    console = Console(settings)
    try:
        if alone:
            for line in surroundings.make_safe(os.environ):
                settings.say(f"warning: {line}")
        with root.make_context("sonde", words, obj=settings) as context, _libraries_silent(settings.debug):
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
    except streams.ReaderGone:  # while a command prints over and over: `sonde power watch | head`
        return int(Exit.DONE)
    except (Exception, KeyboardInterrupt) as error:
        return console.fail(fault_of(error), error)
