"""The client for Python from several threads. What crashes or stands still does so in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("sonde._bus", reason="the bus is not built")

from claimed import a_domain
from sonde.bus import client as bus

BEGIN = """
import faulthandler, sys, threading, time
from sonde.bus import client as bus
from sonde.core.errors import SondeError
faulthandler.enable()
IDL = "module site { struct Node { @key string name; double power_w; }; struct Plain { long number; }; };"
"""


def run(tmp_path, program):
    """Its last words. It has to end by itself, and in order."""
    (tmp_path / "program.py").write_text(BEGIN + program)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-4000:])
    return done.stdout.split()


CLOSES = """
open("site.idl", "w").write(IDL)
here = bus.open(idl="site.idl", topics={"Power": "site::Node"}, implementation="null", domain=7)
strange = []

def within(begun, do):
    def run():
        try:
            while True:
                begun.set()
                do()
        except SondeError as error:
            if error.code != "bus.closed":
                strange.append(error)
        except Exception as error:
            strange.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    return thread

def iterate(reader):
    for sample in reader.samples():
        sample["power_w"]

def ask(client):
    try:
        client.call(b"", target="nobody", timeout_s=30)
    except TimeoutError:
        pass

for round in range(60):
    reader, writer = here.reader("Power"), here.writer("Power")
    client = here.client("Ask")
    waiting, silent = here.reader("Power"), here.writer("Power")
    calls = [
        (reader, lambda: iterate(reader)),
        (waiting, lambda: waiting.wait_matched(99)),
        (waiting, lambda: waiting.status()),
        (writer, lambda: writer.write(name="n1", power_w=1)),
        (writer, lambda: (writer.flush(), writer.status(), writer._native.matched())),
        (silent, lambda: silent.wait_matched(99)),
        (silent, lambda: silent.wait_acknowledged(0)),
        (client, lambda: ask(client)),
        (client, lambda: client.wait_for_server()),
        (client, lambda: client.counts()),
    ]
    begun = [threading.Event() for _ in calls]
    threads = [within(event, do) for event, (_, do) in zip(begun, calls)]
    for event in begun:
        event.wait()
    time.sleep(0.001 * (round % 8))
    for one in (reader, writer, client, waiting, silent):
        one.close()
    for thread in threads:
        thread.join()
    assert not strange, strange
here.close()
print("ended")
"""


def test_what_is_closed_beside_other_threads_calls_ends_them_and_harms_nobody(tmp_path):
    assert run(tmp_path, CLOSES) == ["ended"]


ENDS = """
open("site.idl", "w").write(IDL)
here = bus.open(idl="site.idl", topics={"Power": "site::Node"}, implementation="null", domain=8)
reader, writer = here.reader("Power"), here.writer("Power")
assert writer.wait_matched(1, 5)
writer.write(name="n1", power_w=1)
came, first = [], threading.Event()

def read():
    for sample in reader.samples():
        came.append(sample["name"])
        first.set()
    came.append("end")

thread = threading.Thread(target=read)
thread.start()
first.wait()
reader.close()
thread.join()
try:
    next(reader.samples())
except SondeError as error:
    came.append(error.code)
print(*came)
"""


def test_an_iteration_ends_when_its_reader_is_closed_and_none_begins_afterwards(tmp_path):
    assert run(tmp_path, ENDS) == ["n1", "end", "bus.closed"]


@pytest.mark.skipif("cyclonedds" not in bus.implementations(), reason="no Cyclone DDS is here")
def test_asking_a_writer_that_waits_for_place_does_not_keep_the_reader_from_taking(tmp_path):
    """Cyclone holds the writer's lock meanwhile; the reader is a thread of the same Python."""
    program = f"""
open("site.idl", "w").write(IDL)
here = bus.open_text(
    '<sonde-bus version="1"><profile name="p" domain="{a_domain()}" implementation="cyclonedds">'
    '<types idl="site.idl"/>'
    '<topic name="Plain" type="site::Plain" history="keep-all" max-samples="4" max-blocking="60 s"/>'
    "</profile></sonde-bus>"
)
reader, writer = here.reader("Plain"), here.writer("Plain")
assert writer.wait_matched(1, 30)
written, told, wrong = [], [], []

def guarded(do):
    def run():
        try:
            do()
        except BaseException as error:
            wrong.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    return thread

def write():
    for number in range(50):
        writer.write(number=number)
        written.append(number)

def ask():
    told.append(writer.status()["matched"])
    writer._native.matched()
    writer._native.assert_liveliness()

writing = guarded(write)
while len(written) < 4:
    time.sleep(0.01)
before = -1
while before != len(written):
    before = len(written)
    time.sleep(0.5)
assert before < 50, before
asking = [guarded(ask) for _ in range(3)]
time.sleep(0.5)
came = []
while len(came) < 50 and not wrong:
    came += [sample["number"] for sample in reader.take()]
    time.sleep(0.001)
for thread in (writing, *asking):
    thread.join()
assert not wrong, wrong
assert came == list(range(50)), came
print(*told)
"""
    assert run(tmp_path, program) == ["1", "1", "1"]
