"""Ctrl-C and SIGTERM: kept until the work can be left; a second one that ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from sonde.core import interrupt


def child(does: Callable[[], None]) -> int:
    """Exit code of a process that does it; 1 when it raises."""
    pid = os.fork()
    if pid == 0:
        try:
            does()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class TestSignals:
    def test_the_handlers_from_before_come_back(self):
        names = (signal.SIGINT, signal.SIGTERM)
        before = [signal.getsignal(name) for name in names]
        came: list[int] = []
        with interrupt.signals(lambda number, _: came.append(number)):
            for name in names:
                os.kill(os.getpid(), name)
        assert came == list(names)
        assert [signal.getsignal(name) for name in names] == before

    def test_what_is_ignored_stays_so(self):
        """As SIGHUP under nohup. Not SIGINT, which a shell ignores for what it starts with &."""
        came: list[int] = []
        before = {name: signal.signal(name, signal.SIG_IGN) for name in (signal.SIGHUP, signal.SIGINT)}
        try:
            with interrupt.signals(lambda number, _: came.append(number), list(before)):
                for name in before:
                    os.kill(os.getpid(), name)
            assert came == [signal.SIGINT]
            assert {signal.getsignal(name) for name in before} == {signal.SIG_IGN}
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    def test_another_thread_changes_none(self):
        before, seen = signal.getsignal(signal.SIGINT), []

        def look() -> None:
            with interrupt.signals(lambda *_: None):
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [before]


class TestPutOff:
    def test_nothing_came(self):
        with interrupt.put_off("gone") as asked:
            asked.leave(1, 2)
        assert not asked.came

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_is_kept_until_the_work_asks(self, number):
        with interrupt.put_off("gone") as asked:
            os.kill(os.getpid(), number)
            assert asked.came
            with pytest.raises(KeyboardInterrupt):
                asked.leave()

    def test_work_that_never_asks_is_done_in_full(self):
        with interrupt.put_off("gone") as asked:
            os.kill(os.getpid(), signal.SIGINT)
        assert asked.came

    def test_a_second_one_ends_the_process_with_its_last_words(self, capfd):
        def twice() -> None:
            with interrupt.put_off("what was measured is in a.run"):
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)

        assert child(twice) == 130
        assert capfd.readouterr().err == "\nwhat was measured is in a.run\n"


class TestOnce:
    def test_the_first_is_an_exception_and_the_second_the_end(self):
        def twice() -> None:
            signal.signal(signal.SIGINT, interrupt.once)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGINT)

        assert child(twice) == 130

    @pytest.mark.parametrize(("ignored", "left"), [(False, "once"), (True, "SIG_IGN")])
    def test_a_command_whose_sigint_is_ignored_keeps_it_so(self, ignored, left):
        script = (
            "import signal, sys\n"
            f"{'signal.signal(signal.SIGINT, signal.SIG_IGN)' if ignored else ''}\n"
            "from sonde.cli import entry\n"
            "def told(words):\n"
            "    handler = signal.getsignal(signal.SIGINT)\n"
            "    print(getattr(handler, 'name', getattr(handler, '__name__', '')))\n"
            "    return 0\n"
            "entry._main = told\n"
            "sys.exit(entry.main())\n"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stdout.strip()) == (0, left), ran.stderr
