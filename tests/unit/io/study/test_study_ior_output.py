"""Output of ior and of NAS BT-IO, read into the form of sonde-ioload's --json.

The samples are made by hand after the documented forms: of ior 4 and 3.x those of ior.readthedocs.io ("First Steps with
IOR", "Options") and of its FAQ; of ior 3.0 that of its USER_GUIDE; of BT-IO the formats of NPB 3.4, BT/bt.f90 and
common/print_results.f90.
"""

from __future__ import annotations

import pytest

from sonde.core.errors import DataError
from sonde.io.study.ior_output import parse, rates

IOR_4 = """\
IOR-4.0.0: MPI Coordinated Test of Parallel I/O
Began               : Tue May  9 12:14:39 2023
Command line        : /sw/bin/ior -w -r -o "/scratch/my run" -b 192k -t 64k -a MPIIO -c -i 2 -s 3 -C
Machine             : Linux n017
TestID              : 0
StartTime           : Tue May  9 12:14:39 2023
Path                : /scratch/my run
FS                  : 1.1 TiB   Used FS: 0.0%   Inodes: 5.5 Mi   Used Inodes: 0.0%

Options:
api                 : MPIIO
apiVersion          : (3.1)
test filename       : /scratch/my run
access              : single-shared-file
type                : collective
segments            : 3
ordering in a file  : sequential
ordering inter file : constant task offset
task offset         : 1
nodes               : 4
tasks               : 16
clients per node    : 4
repetitions         : 2
xfersize            : 65536 bytes
blocksize           : 196608 bytes
aggregate filesize  : 9 MiB

Results:

access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
write     960.23     15.01      0.831487    192.00     64.00      0.002670   4.26       1.27       4.27       0
read      400.40     6.26       2.46        192.00     64.00      0.000770   10.23      1.03       10.23      0
remove    -          -          -           -          -          -          -          -          0.000564   0
write     972.67     15.20      0.899350    192.00     64.00      0.002018   4.21       1.61       4.21       1
read      395.37     6.18       2.54        192.00     64.00      0.000655   10.36      0.714747   10.36      1
Max Write: 972.67 MiB/sec (1019.92 MB/sec)
Max Read:  400.40 MiB/sec (419.85 MB/sec)

Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) \
Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize \
aggs(MiB)   API RefNum
write         972.67     960.23     966.45       6.22      15.21      14.52      15.00       0.25    4.24000 \
         NA            NA     0     16   4    2   0     1        1         0    0      3   196608    65536 \
      9.0 MPIIO      0
read          400.40     395.37     397.88       2.52       6.26       5.32       5.92       0.33   10.29500 \
         NA            NA     0     16   4    2   0     1        1         0    0      3   196608    65536 \
      9.0 MPIIO      0
Finished            : Tue May  9 12:15:55 2023
"""

IOR_3_0 = """\
IOR-3.0.1: MPI Coordinated Test of Parallel I/O

Began: Thu Jan 16 09:29:20 2014
Command line used: ior -a POSIX -F -t 1m -b 1228m -z
Machine: Linux login1

Test 0 started: Thu Jan 16 09:29:20 2014
Summary:
\tapi                = POSIX
\ttest filename      = testFile
\taccess             = file-per-process
\tordering in a file = random offsets
\tordering inter file= no tasks offsets
\tclients            = 4 (2 per node)
\trepetitions        = 1
\txfersize           = 1 MiB
\tblocksize          = 1.20 GiB
\taggregate filesize = 4.80 GiB

access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ---------- ---------  --------   --------   --------   --------   ----
write     2427.70    1257472    1024.00    0.000054   0.000348   0.000011   2.02       0
mpirun: warning: something that is no row
read      3921.98    1257472    1024.00    0.000030   0.000220   0.000005   1.25       0
remove    -          -          -          -          -          -          0.000071   0

Max Write: 2427.70 MiB/sec (2545.63 MB/sec)
"""

STONEWALLED = """\
IOR-3.3.0: MPI Coordinated Test of Parallel I/O

Options:
api                 : POSIX
access              : single-shared-file
type                : independent
segments            : 1
tasks               : 2
xfersize            : 1 MiB
blocksize           : 1 TiB
aggregate filesize  : 2 TiB
stonewallingTime    : 5

Results:

access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
write     100.00     100.00     0.02        1073741824 1024.00    0.001      5.00       0.001      5.00       0
"""

BT_IO = """\


 NAS Parallel Benchmarks 3.4 -- BT Benchmark

 No input file inputbt.data. Using compiled defaults
 Size:   64x  64x  64  (class A)
 Iterations:  200    dt:   0.0008000
 Total number of processes:      4

 BTIO -- FULL MPI-IO write interval:   5

 Time step    1
 Writing data set, time step           5
 Time step  200
 Writing data set, time step         200
 Verification being performed for class A

 BTIO -- statistics:
   I/O timing in seconds   :           3.21
   I/O timing percentage   :           7.73
   I/O timing in verify    :           0.52
   Total data written (MB) :         419.43
   I/O data rate  (MB/sec) :         130.66


 BT Benchmark Completed.
 Class           =                        A
 Size            =             64x  64x  64
 Iterations      =                      200
 Time in seconds =                    41.50
 Total processes =                        4
 Active processes=                        4
 Mop/s total     =                  4054.55
 Mop/s/process   =                  1013.64
 Operation type  =           floating point
 Verification    =               SUCCESSFUL
 Version         =                      3.4
 Compile date    =              01 Jan 2020
"""


def test_ior_4_with_its_summary():
    ran = parse(IOR_4)
    assert (ran["schema"], ran["program"], ran["version"], ran["workload"]) == (
        "ioload/1",
        "ior",
        "4.0.0",
        "ior",
    )
    assert ran["command"][:5] == ["/sw/bin/ior", "-w", "-r", "-o", "/scratch/my run"]
    assert (ran["host"], ran["tasks"], ran["nodes"], ran["tasks_per_node"]) == ("n017", 16, 4, 4)
    options = ran["options"]
    assert options["api"] == "MPIIO"
    assert options["file"] == "/scratch/my run"
    assert (options["transfer_B"], options["block_B"], options["segments"]) == (65536, 196608, 3)
    assert options["aggregate_B"] == 3 * 196608 * 16
    assert (options["collective"], options["file_per_process"], options["random"]) == (True, False, False)
    assert (options["shift_tasks"], options["shift_nodes"]) == (True, 1)
    rows = ran["iterations"]
    assert [(row["access"], row["iteration"]) for row in rows] == [
        ("write", 0),
        ("read", 0),
        ("write", 1),
        ("read", 1),
    ]
    assert rows[1] == {
        "access": "read",
        "iteration": 0,
        "bandwidth_MiB_per_s": 400.40,
        "transfers_per_s": 6.26,
        "latency_s": 2.46,
        "open_s": 0.00077,
        "move_s": 10.23,
        "close_s": 1.03,
        "total_s": 10.23,
        "bytes": 3 * 196608 * 16,
    }
    assert [row["access"] for row in ran["summary"]] == ["write", "read"]
    assert ran["summary"][0]["sd_MiB_per_s"] == 6.22
    assert ran["summary"][1]["mean_s"] == 10.295


def test_ior_3_0_has_neither_iops_nor_latency():
    ran = parse(IOR_3_0)
    assert (ran["version"], ran["tasks"], ran["tasks_per_node"], ran["nodes"]) == ("3.0.1", 4, 2, None)
    assert ran["options"]["random"] is True
    assert ran["options"]["file_per_process"] is True
    assert ran["options"]["shift_tasks"] is False
    assert ran["options"]["block_B"] == round(1.2 * 2**30)
    assert [row["bandwidth_MiB_per_s"] for row in ran["iterations"]] == [2427.70, 3921.98]
    assert ran["iterations"][0]["transfers_per_s"] is None
    assert ran["summary"] == []


@pytest.mark.parametrize(
    "line", ["stonewallingTime    : 5", "\tUsing stonewalling = 5 second(s)", "stonewalling time   : 5.00 s"]
)
def test_with_stonewalling_the_bytes_come_from_rate_and_time(line):
    ran = parse(STONEWALLED.replace("stonewallingTime    : 5", line))
    assert ran["options"]["stonewall_s"] == 5
    assert ran["iterations"][0]["bytes"] == 500 * 2**20


def test_bt_io():
    ran = parse(BT_IO)
    assert (ran["program"], ran["version"], ran["workload"], ran["tasks"]) == ("bt-io", "3.4", "bt-io", 4)
    assert ran["options"] == {"class": "A", "mode": "full", "points": 64, "steps": 200, "interval_steps": 5}
    assert ran["bytes"] == 40 * 40 * 64**3
    assert (ran["io_s"], ran["verify_s"], ran["total_s"]) == (3.21, 0.52, 41.5)
    assert (ran["rate_MB_per_s"], ran["verification"]) == (130.66, "SUCCESSFUL")


@pytest.mark.parametrize(
    ("words", "mode"), [("SIMPLE MPI-IO", "simple"), ("EPIO", "epio"), ("FORTRAN IO", "fortran")]
)
def test_every_mode_of_bt_io(words, mode):
    assert parse(BT_IO.replace("FULL MPI-IO", words))["options"]["mode"] == mode


def test_bt_io_of_npb_3_3_has_no_time_of_verifying_and_a_field_may_overflow():
    text = "\n".join(line for line in BT_IO.splitlines() if "in verify" not in line and "Active" not in line)
    text = text.replace("        130.66", "**************").replace("SUCCESSFUL", "UNSUCCESSFUL")
    ran = parse(text)
    assert ran["verify_s"] is None
    assert ran["rate_MB_per_s"] is None
    assert ran["verification"] == "UNSUCCESSFUL"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it begins with ''"),
        ("hello\nworld\n", "it begins with 'hello'"),
        (IOR_4[: IOR_4.index("access    bw")], "it ends before the first result"),
        (IOR_4[: IOR_4.index("write     960")], "has no row"),
        (IOR_4 + IOR_4, "2 tests"),
        (BT_IO[: BT_IO.index(" BTIO -- statistics")], "it ends before the first result"),
    ],
)
def test_what_cannot_be_read_is_refused(text, told):
    with pytest.raises(DataError) as refused:
        parse(text)
    assert told in refused.value.what
    assert refused.value.code == "io.bad_output"
    assert refused.value.hint


class TestRates:
    def ior(self, *rows):
        names = ("access", "bytes", "total_s")
        return {"workload": "ior", "iterations": [dict(zip(names, row)) for row in rows]}

    def test_of_several_repetitions_all_bytes_in_all_their_time(self):
        told = rates(self.ior(("write", 100, 1.0), ("read", 100, 0.5), ("write", 100, 3.0)))
        assert (told.write, told.read, told.io_s) == (50.0, 200.0, 4.5)

    def test_what_was_not_done_is_not_known(self):
        told = rates(self.ior(("write", 100, 1.0)))
        assert (told.read, told.io_s) == (None, 1.0)
        assert rates(self.ior(("write", None, 1.0))).write is None
        assert rates(self.ior()).io_s is None

    def test_bt_io_reads_when_it_verifies(self):
        told = rates({"workload": "bt-io", "bytes": 1000, "io_s": 2.0, "verify_s": 0.5, "wrong_words": 0})
        assert (told.write, told.read, told.io_s) == (500.0, 2000.0, 2.5)
        assert rates({"workload": "bt-io", "bytes": None, "io_s": None}).io_s is None

    def test_of_real_output(self):
        told = rates(parse(IOR_4))
        assert told.write == pytest.approx(2 * 9 * 2**20 / (4.27 + 4.21), rel=1e-6)

    def test_wrong_data_are_no_rate(self):
        with pytest.raises(DataError) as caught:
            rates({"workload": "ior", "iterations": [], "wrong_words": 3})
        assert caught.value.code == "io.wrong_data"
