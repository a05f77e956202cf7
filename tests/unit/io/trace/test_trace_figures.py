import numpy as np
import pytest
import xarray as xr

import io_traces as traces
from io_traces import KIB, MIB, US, Call
from sonde.core.errors import DataError
from sonde.core.figure import Kind
from sonde.io.trace import figures, tables
from sonde.io.trace.analyse import analyse
from sonde.io.trace.schema import OWN_NAME
from sonde.report import collect, prepare, render_html

RANKS, ROUNDS = 4, 3


@pytest.fixture(scope="module")
def summary():
    return analyse(traces.collective(RANKS, ROUNDS))


@pytest.fixture(scope="module")
def section():
    return figures.section(traces.tree(traces.collective(RANKS, ROUNDS)), "app.nc")


def named(section, name):
    (figure,) = [figure for figure in section.figures if figure.id == name]
    return figure


def alone(*calls, **more):
    """/summary of one process without a rank."""
    return analyse(traces.raw([(0, list(calls))], [-1], **more))


# ---- the section ----


def test_the_section_holds_everything_in_reading_order(section):
    assert [figure.id for figure in section.figures] == [
        "io-paths",
        "io-sizes",
        "io-timeline",
        "io-ranks",
        "io-durations",
    ]
    assert [figure.kind for figure in section.figures[:4]] == [
        Kind.ICICLE,
        Kind.STACK,
        Kind.STACK,
        Kind.STACK,
    ]
    for figure in section.figures:
        prepare.check(figure)
        assert len(figure.caption) > 80, "a caption says what to read from a figure"
    assert section.title == "I/O of app"
    assert section.verdict.startswith("4 ranks spent ")
    assert section.verdict.endswith(".")
    assert [table.title.split(",")[0] for table in section.tables] == ["Layers", "Files"]
    assert [table.title.split(",")[0] for table in section.numbers] == ["Functions", "Processes"]
    assert section.runs == {"traced command": "mpirun -n 4 app", "its exit status": "0"}
    assert section.untold == ("seed",)  # nothing is drawn
    assert section.doubt == ""


def test_calls_that_were_lost_are_a_doubt():
    raw = traces.collective(2, 1)
    raw["process_dropped"][1] = 7
    section = figures.section(traces.tree(raw))
    assert section.doubt == "calls are missing"
    assert section.numbers[-1].rows[1][-1] == "7"


def test_a_trace_without_a_summary_is_refused_with_what_to_type():
    with pytest.raises(DataError) as refused:
        figures.section(traces.tree(traces.collective(1, 1), summed=False), "a b.nc")
    assert refused.value.code == "core.no_summary"
    assert refused.value.hint == "sonde data validate 'a b.nc'"


def test_a_trace_of_nothing_has_no_figures_and_is_reported():
    section = figures.section(traces.tree(traces.raw([], [0])))
    assert section.figures == []
    assert "1 rank made 0 traced calls" in section.verdict


def test_a_program_that_reads_and_writes_nothing_has_its_other_figures():
    section = figures.section(
        traces.tree(traces.raw([(0, [Call("open", 0, 10 * US), Call("lseek", 20 * US, US)])], [-1]))
    )
    assert [figure.id for figure in section.figures] == ["io-paths", "io-timeline"]
    assert [table.title for table in section.tables] == ["Layers, from the program down"]


def test_figures_are_made_of_the_summary_alone():
    tree = traces.tree(traces.collective(2, 1))
    whole = figures.section(tree)
    without = xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs=tree.attrs), "/summary": tree["summary"].to_dataset()}
    )
    made = figures.section(without)
    assert [f.id for f in made.figures] == [f.id for f in whole.figures]
    for one, other in zip(made.figures, whole.figures):
        xr.testing.assert_identical(one.data, other.data)


def test_what_is_of_the_trace_is_not_reported_as_of_the_machine():
    tree = traces.tree(
        traces.collective(1, 1), max_trace=1 << 30, began_utc_ns=1795338780663381134, cpu="A CPU"
    )
    assert collect.machine(tree) == {"Hosts": "n[001-002]", "CPU": "A CPU"}
    assert collect.run("a.nc", tree, figures.section(tree))["traced command"] == "mpirun -n 4 app"


@pytest.mark.parametrize("text", ["<b>app</b>", "</script>", "@ink", "$HOME"])
def test_what_a_trace_says_stays_text(text):
    raw = traces.collective(2, 1)
    for name in ("path", "function_name", "layer_title", "process_program", "process_host"):
        raw[name][:] = text
    for figure in figures.section(traces.tree(raw)).figures:
        spec = render_html.draw(figure).spec
        assert "<b>app" not in str({key: spec[key] for key in ("traces", "layout", "frames")})


# ---- paths ----


def test_paths_begin_with_all_calls_and_come_in_colours_of_layers(section, summary):
    data = named(section, "io-paths").data
    label, parent, hue = (data[name].values.tolist() for name in ("label", "parent", "hue"))
    value = data["value"].values
    assert (label[0], parent[0], hue[0]) == ("all traced calls", -1, -1)
    assert value[0] == pytest.approx(float(summary["traced_time"].sum()))
    assert label.count("H5Dwrite") == label.count("pwrite") == 1
    at = {name: k for k, name in enumerate(label)}
    path = [at["pwrite"]]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    assert [label[k] for k in path[::-1]] == [
        "all traced calls",
        "H5Dwrite",
        "MPI_File_write_at_all",
        "ADIOI_GEN_WriteStridedColl",
        "pwrite",
    ]
    assert [hue[k] for k in path[::-1]] == [-1, 0, 1, 2, 4]
    labels = named(section, "io-paths").axes["hue"].labels
    assert labels == ("HDF5", "MPI-IO", "ROMIO (ADIO)", "MPI messages", "POSIX and C library")
    assert float(data["calls"][at["pwrite"]]) == 64 * RANKS * ROUNDS
    assert float(data["bytes"][at["pwrite"]]) == 4 * MIB * RANKS * ROUNDS
    assert np.isnan(data["bytes"][at["MPI_Waitall"]]), "bytes that are not known are not told"


def test_what_is_in_a_path_itself_is_what_is_not_within_it(section):
    data = named(section, "io-paths").data
    within = np.zeros(data.sizes["node"])
    np.add.at(within, data["parent"].values[1:], data["value"].values[1:])
    own = data["own"].values
    known = np.isfinite(own)
    np.testing.assert_allclose((data["value"].values - within)[known], own[known], atol=1e-9)
    assert known.sum() >= 10


def test_small_paths_are_one_and_a_single_one_keeps_its_name():
    calls = [Call("H5Dwrite", 0, 10_000 * US)]
    calls += [Call(name, (11_000 + 100 * k) * US, US) for k, name in enumerate(("open", "lseek", "pread"))]
    data = figures.paths(alone(*calls)).data
    assert data["label"].values.tolist() == ["all traced calls", "H5Dwrite", "3 others"]
    assert float(data["value"][2]) == pytest.approx(3e-6)
    assert float(data["calls"][2]) == 3
    assert int(data["hue"][2]) == -1, "they may be of several layers"
    assert figures.paths(alone(*calls[:2])).data["label"].values.tolist()[-1] == "open"


def test_small_is_meant_of_the_path_around_not_of_all():
    inner = [Call("pread", 20_001 * US, 8 * US), Call("lseek", 20_009 * US, US // 2)]
    deep = Call("H5Dread", 20_000 * US, 10 * US, within=inner)
    data = figures.paths(alone(Call("H5Dwrite", 0, 1000 * US), deep)).data
    assert sorted(data["label"].values) == ["H5Dread", "H5Dwrite", "all traced calls", "lseek", "pread"]
    assert figures.NARROW * 1000 > 0.5, "of all calls lseek would be too small"


def test_layers_that_no_library_has_are_named(section):
    assert named(section, "io-paths").caption.endswith("or hidden in it: GlusterFS client (libgfapi).")


# ---- sizes ----


def test_four_mebibytes_become_pieces_of_64_kib(section):
    figure = named(section, "io-sizes")
    data = figure.data
    assert data["part"].values.tolist() == ["HDF5", "MPI-IO", "ROMIO (ADIO)", "POSIX and C library"]
    assert data["x"].values.tolist() == ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB", "2 MiB", "4 MiB"]
    assert data["direction"].values.tolist() == ["writes", "reads"]
    for way in range(2):
        y = data["y"].isel(direction=0, way=way).values
        np.testing.assert_allclose(y[:3], np.eye(7)[[6, 6, 6]] * 100)
        np.testing.assert_allclose(y[3], np.eye(7)[0] * 100)
    requests = 64 * RANKS * ROUNDS
    heading = data["heading"].isel(direction=0, way=0).values.tolist()
    assert heading[1] == f"MPI-IO: {RANKS * ROUNDS} × 4 MiB, {4 * RANKS * ROUNDS} MiB"
    assert heading[3] == f"POSIX and C library: {requests} × 64 KiB, {4 * RANKS * ROUNDS} MiB"
    assert str(data["text"][3, 0, 0, 0].values) == f"{requests} writes, {4 * RANKS * ROUNDS} MiB in all"


def test_shares_by_number_and_by_bytes_differ_where_sizes_do():
    calls = [Call("pwrite", k * 10 * US, US, 1 if k else MIB - 1) for k in range(4)]
    calls.append(Call("pread", 90 * US, US, 0))
    data = figures.sizes(alone(*calls)).data
    assert data["x"].values.tolist()[:3] == ["0 B", "1 B", "2 B"]
    assert data["x"].values.tolist()[-1] == "512 KiB", "one byte less than 1 MiB"
    writes = data["y"].sel(direction="writes").values[0]
    np.testing.assert_allclose(writes[1], [75, 100 * 3 / (MIB + 2)], rtol=1e-6)
    np.testing.assert_allclose(writes[-1], [25, 100 * (MIB - 1) / (MIB + 2)], rtol=1e-6)
    reads = data["y"].sel(direction="reads").values[0]
    np.testing.assert_allclose(reads[0], [100, 0]), "nothing was moved, and that is no error"


def test_a_layer_without_requests_of_a_direction_says_so():
    inner = Call("pwrite", 2 * US, US, 100)
    calls = [Call("H5Dwrite", 0, 10 * US, 100, within=[inner]), Call("pread", 20 * US, US, 50)]
    heading = (
        figures.sizes(alone(*calls)).data["heading"].sel(direction="reads", way="number").values.tolist()
    )
    assert heading == ["HDF5: no reads", "POSIX and C library: 1 × 50 B, 50 B"]


def test_layers_whose_requests_tell_no_size_are_named():
    inner = Call("pwrite", 2 * US, US, 100)
    figure = figures.sizes(alone(Call("H5Dwrite", 0, 10 * US, within=[inner])))
    assert figure.data["part"].values.tolist() == ["POSIX and C library"]
    assert figure.caption.endswith("The sizes of requests to HDF5 are unknown.")


# ---- over time, by rank ----


def test_the_timeline_counts_threads_and_begins_with_all_ranks(section, summary):
    data = named(section, "io-timeline").data
    assert data["process"].values.tolist() == ["all ranks", "rank 0", "rank 1", "rank 2", "rank 3"]
    assert data["part"].values.tolist()[0] == "POSIX and C library", "the lowest layer lies undermost"
    np.testing.assert_allclose(data["y"][:, :, 0], data["y"][:, :, 1:].sum("process"), atol=1e-9)
    assert float(data["y"].sum("part").max()) <= RANKS + 1e-6
    width = float(data["x"][1] - data["x"][0])
    total = float(data["y"][:, :, 0].sum()) * width
    assert total == pytest.approx(float(summary["traced_time"].sum()), rel=1e-6)
    assert float(data["x"][0]) == 0


def test_of_very_many_processes_those_with_most_and_least_time_can_be_chosen(monkeypatch):
    monkeypatch.setattr(figures, "CHOICES", 4)
    threads = [(k, [Call("pwrite", 0, (k + 1) * US, 1)]) for k in range(9)]
    figure = figures.timeline(analyse(traces.raw(threads, list(range(9)))))
    assert figure.data["process"].values.tolist() == ["all ranks", "rank 0", "rank 1", "rank 7", "rank 8"]
    assert "You can choose the 2 with the most and the 2 with the least time" in figure.caption


def test_one_process_has_no_choice_and_no_ranks():
    one = alone(Call("pwrite", 0, 10 * US, 1), Call("pwrite", 20 * US, 10 * US, 1))
    assert figures.by_rank(one) is None
    figure = figures.timeline(one)
    prepare.check(figure)
    assert figure.controls == ()


def test_time_by_rank_shows_who_did_the_work_and_who_waited(section, summary):
    figure = named(section, "io-ranks")
    assert figure.title == "Time in each layer, by rank"
    y = figure.data["y"]
    posix, messages = (y.sel(part=part).values for part in ("POSIX and C library", "MPI messages"))
    assert figure.data["x"].values.tolist() == ["0", "1", "2", "3"]
    assert posix[0] > 100 * posix[1:].max()
    assert messages[1:].min() > 10 * messages[0]
    np.testing.assert_allclose(y.sum("part"), summary["traced_time"].values, rtol=1e-6)


def test_processes_without_a_rank_go_by_their_program_each_name_once():
    threads = [(k, [Call("pwrite", 0, US, 1)]) for k in range(4)]
    programs = ["/usr/bin/tar", "/usr/bin/gzip", "/usr/bin/gzip", "/usr/bin/gzip"]
    raw = traces.raw(threads, [-1] * 4, programs=programs)
    raw["process_pid"][:] = 7
    figure = figures.by_rank(analyse(raw))
    assert figure.title == "Time in each layer, by process"
    assert figures.timeline(analyse(raw)).data["process"].values[0] == "all processes"
    assert figure.data["x"].values.tolist() == ["tar", "gzip", "gzip 7", "gzip 7 on n001"]


def test_colours_are_those_of_layers_in_every_figure(section):
    hue = {}
    for name, dim in (("io-sizes", "part"), ("io-timeline", "part"), ("io-ranks", "part")):
        data = named(section, name).data
        for part, k in zip(data[dim].values, data["hue"].values):
            assert hue.setdefault(str(part), int(k)) == int(k), name
    labels = named(section, "io-paths").axes["hue"].labels
    assert all(labels[k] == part for part, k in hue.items())


# ---- functions, files, facts ----


def test_distributions_of_durations_end_each_class_where_it_ends():
    calls = [Call("pwrite", k * 10 * US, 100 if k < 3 else 3000, 1) for k in range(4)]
    figure = figures.durations(alone(*calls, Call("open", 90 * US, 5)))
    assert figure.data["series"].values.tolist() == ["pwrite (posix)"], "one call is no distribution"
    curve = prepare.chart(figure).frames[0][0]
    np.testing.assert_allclose(curve.x, 2.0 ** np.arange(6, 13) * 1e-3)  # µs
    np.testing.assert_allclose(curve.y, [0, 0.75, 0.75, 0.75, 0.75, 0.75, 1])


def test_calls_that_took_no_time_have_a_place_in_the_distribution():
    calls = [Call("lseek", k * 10 * US, 0) for k in range(4)] + [
        Call("pread", 90 * US, US),
        Call("pread", 99 * US, US),
    ]
    figure = figures.durations(alone(*calls))
    for curve in prepare.chart(figure).frames[0]:
        assert (curve.y[0], curve.y[-1]) == (0, 1)
        assert (curve.x > 0).all()


def test_the_function_table_holds_every_function_with_its_library(section, summary):
    table = section.numbers[0]
    assert len(table.rows) == summary.sizes["function"]
    assert table.rows[0][0] == "MPI_Waitall"
    (row,) = [row for row in table.rows if row[0] == "pwrite"]
    assert row[1:3] == ("posix", str(64 * RANKS * ROUNDS))
    assert row[4] == "48 MiB"
    assert row[-1] == "libposix.so.1"
    assert table.note == ""


def test_tables_that_are_cut_say_what_they_leave_out(monkeypatch):
    monkeypatch.setattr(tables, "NUMBERS", 2)
    section = figures.section(traces.tree(traces.collective(3, 1)))
    assert [len(table.rows) for table in section.numbers] == [2, 2]
    assert (
        section.numbers[0].note == "And 9 more functions with less time: sonde data convert writes them all."
    )
    assert section.numbers[1].note == "And 1 more processes: sonde data convert writes them all."


def test_the_table_of_files_tells_what_each_layer_was_asked_for(section):
    table = section.tables[1]
    assert table.columns == ("", "hdf5", "mpiio", "romio", "posix", "file")
    assert table.rows == [
        ("written", "12 × 4 MiB", "12 × 4 MiB", "12 × 4 MiB", "768 × 64 KiB", "/scratch/out.h5"),
        ("read", "4 × 4 MiB", "4 × 4 MiB", "4 × 4 MiB", "256 × 64 KiB", "/scratch/out.h5"),
    ]


def test_datasets_of_hdf5_are_no_files():
    inner = [Call("pwrite", 2 * US, US, 8 * KIB, "/scratch/out.h5")]
    calls = [
        Call("H5Dwrite", 0, 10 * US, 4 * KIB, path="/temperature", within=inner),
        Call("H5Dwrite", 20 * US, 10 * US, 3 * KIB, path="/pressure"),
        Call("H5Dread", 40 * US, 10 * US, 2 * KIB, path="/pressure"),
    ]
    section = figures.section(traces.tree(traces.raw([(0, calls)], [-1])))
    files, datasets = section.tables[1:3]
    assert files.rows == [("written", "1 × 8 KiB", "/scratch/out.h5")]
    assert datasets.title == "Datasets of HDF5, by name"
    assert datasets.rows == [
        ("written", "1 × 4 KiB", "/temperature"),
        ("written", "1 × 3 KiB", "/pressure"),
        ("read", "1 × 2 KiB", "/pressure"),
    ]


def test_code_that_a_program_reads_is_none_of_its_files():
    code = [
        Call("pread", k * 10 * US, US, 9999, f"/home/x/.venv/lib/python3.13/site-packages/a/{k}.pyc")
        for k in range(40)
    ]
    section = figures.section(
        traces.tree(traces.raw([(0, [*code, Call("pwrite", 500 * US, US, 10, "data")])], [-1]))
    )
    assert section.tables[1].rows == [("written", "1 × 10 B", "data")]
    assert "40 files of the system or of code" in section.tables[1].note


def test_files_with_most_bytes_come_first_and_the_rest_behind_the_figures():
    calls = [Call("pwrite", k * 10 * US, US, k * KIB, f"/tmp/{k}") for k in range(1, 21)]
    section = figures.section(traces.tree(traces.raw([(0, calls)], [-1])))
    assert [row[-1] for row in section.tables[1].rows[:2]] == ["/tmp/20", "/tmp/19"]
    assert len(section.tables[1].rows) == figures.FILES
    assert section.tables[1].note.endswith("All numbers, below, have more.")
    assert len(section.numbers[1].rows) == 20


def test_facts_tell_time_layers_bytes_and_balance(section):
    told = {fact.name: fact for fact in section.facts}
    assert told["in MPI messages itself"].value.endswith("%")
    assert told["written through POSIX and C library"].value == "48 MiB"
    assert told["written through POSIX and C library"].note == "768 × 64 KiB"
    assert told["traced time, largest over mean of ranks"].note == "all ranks spent as much"
    threads = [(k, [Call("pwrite", 0, (1 + 3 * (k == 2)) * US, 1)]) for k in range(3)]
    uneven = figures.facts(analyse(traces.raw(threads, [0, 1, 2])))[-1]
    assert (uneven.value, uneven.note) == ("2.00", "rank 2 spent most")


def test_the_tracers_own_work_is_reported_and_counted_nowhere():
    own = [Call(OWN_NAME, (200 + 50 * k) * US, 40 * US) for k in range(3)]
    writes = [Call("pwrite", 0, 30 * US, 10), Call("pwrite", 60 * US, 30 * US, 10)]
    threads = [(0, writes), (1, [*writes, *own])]
    summary = analyse(traces.raw(threads, [0, 1]))
    told = figures.facts(summary)
    assert (told[0].value, told[0].note) == ("120 µs", "4 calls, 30.0 µs each")
    assert [fact.name for fact in told if "itself" in fact.name] == ["in POSIX and C library itself"]
    assert (told[-1].value, told[-1].note) == ("1.00", "all ranks spent as much")
    assert figures.durations(summary).data["series"].values.tolist() == ["pwrite (posix)"]
    table = tables.functions_table(summary)
    assert {row[0]: row[7] for row in table.rows}["pwrite"] == "100 %"
    figure = figures.paths(summary)
    assert "Left out, here as in all totals: 120 µs in the work of Sonde's tracer." in figure.caption
    assert OWN_NAME not in figure.data["label"].values
    assert float(figure.data["value"][0]) == pytest.approx(120e-6)
    assert float(figure.data["calls"][0]) == 4
    assert "tracer" not in figures.paths(analyse(traces.raw(threads[:1], [0]))).caption


def test_what_is_beside_the_programs_io_fills_no_figure_and_totals_agree():
    """Two ranks start for seconds, and write for a moment."""
    start = Call(
        "MPI_Init", 0, 2_000_000 * US, within=[Call("pread", 10 * US, 500_000 * US, 99, "/sys/devices/x")]
    )
    end = Call("pread", 2_100_000 * US, 900_000 * US, 99, "/proc/self/maps")
    of = [[start, Call("pwrite", 2_050_000 * US, each * US, 4096, "data"), end] for each in (3000, 1000)]
    summary = analyse(traces.raw([(0, of[0]), (1, of[1])], [0, 1]))
    data = figures.paths(summary)
    assert data.data["label"].values.tolist() == ["all traced calls", "pwrite"]
    assert float(data.data["value"][0]) == pytest.approx(4e-3)
    assert float(data.data["calls"][0]) == 2
    assert "5.80 s in start-up and system files" in data.caption
    (told, *_) = figures.facts(summary)
    assert (told.value, told.note) == ("4.00 ms", "2 calls, 2.00 ms each")
    assert figures.sizes(summary).data["part"].values.tolist() == ["POSIX and C library"]
    bars = figures.by_rank(summary).data
    assert bars["part"].values.tolist() == ["POSIX and C library"]
    assert bars["y"].values[0] == pytest.approx([3e-3, 1e-3])
    table = tables.processes_table(summary)
    assert [row[4:6] for row in table.rows] == [("1", "3.00 ms"), ("1", "1.00 ms")]
    shares = {row[0]: row[7] for row in tables.functions_table(summary).rows}
    assert (shares["pwrite"], shares["MPI_Init"]) == ("100 %", "–")


def test_a_program_that_only_starts_has_its_start_for_a_figure():
    figure = figures.paths(alone(Call("pread", 0, 500 * US, 99, "/proc/self/maps")))
    assert figure.data["label"].values.tolist() == ["all traced calls", "pread"]
    assert "of which there is none" in figure.caption


def test_what_a_script_runs_before_its_rank_is_no_other_rank():
    """mpirun starts a script, which has the rank as well as what it calls, and ends as the program."""
    calls = [[Call("pwrite", 10 * US, each * US, 1, "data")] for each in (100, 104)]
    small = [Call("pread", 0, US, 1, "/tmp/x")]
    threads = [(0, small), (1, calls[0]), (2, small), (3, calls[1]), (4, small)]
    programs = ["/usr/bin/dirname", "/home/x/app", "/usr/bin/readlink", "/home/x/app", "/usr/bin/mpirun"]
    summary = analyse(traces.raw(threads, [0, 0, 1, 1, -1], programs=programs))
    assert figures.program(summary) == "app"
    told = figures.facts(summary)[-1]
    assert (told.name, told.value, told.note) == (
        "traced time, largest over mean of ranks", "1.02", "rank 1 spent most",
    )  # fmt: skip
    bars = figures.by_rank(summary).data
    assert bars["x"].values.tolist() == ["0", "1", "mpirun"]
    assert bars["y"].values.sum(axis=0) == pytest.approx([101e-6, 105e-6, 1e-6])
    names = figures.timeline(summary).data["process"].values.tolist()
    assert names == ["all processes", "rank 0", "rank 1", "mpirun"]


def test_findings_stand_in_the_section(section):
    (found,) = [
        one for one in section.findings if one.code == "io.collective_exchange" and "writes" in one.text
    ]
    assert found.next.startswith("try ")


def test_controls_have_positions_that_can_be_asked_for(section):
    figure = prepare.at(named(section, "io-timeline"), {"process": "rank 2"})
    assert prepare.start_frame(figure) == 3
    figure = prepare.at(named(section, "io-sizes"), {"direction": "reads", "way": "bytes"})
    assert prepare.start_frame(figure) == 3


def test_what_was_read_and_written_is_reported_of_the_programs_own_files():
    summary = alone(
        Call("pwrite", 0, 50 * US, 4096, "data"), Call("pread", 100 * US, 50 * US, 11, "/sys/devices/x")
    )
    told = {fact.name: fact.value for fact in figures.facts(summary)}
    assert told["written through POSIX and C library"] == "4 KiB"
    assert not any("Start-up" in name for name in told)


# ---- servers ----


def test_servers_have_tables_a_figure_and_a_method_of_their_own():
    each = [
        (name, {"WRITE": [8, mean, 0.5e-3, 4e-3], "RELEASE": [1, None, None, None]})
        for name, mean in (("a:/b", 1e-3), ("c:/b", 3e-3))
    ]
    raw = traces.with_servers(traces.collective(RANKS, ROUNDS), *each)
    section = figures.section(traces.tree(raw), "app.nc")
    assert [table.title.split(":")[0] for table in section.tables[1:4]] == [
        "Requests of POSIX and C library, and what servers got",
        "Servers",
        "Operations of the servers, by the time in them",
    ]
    figure = named(section, "io-servers")
    prepare.check(figure)
    assert figure.data["operation"].values.tolist() == ["WRITE"]  # RELEASE has no durations
    assert figure.data["bar"].values.tolist() == ["a", "c"]
    assert np.allclose(figure.data["y"].values[:, 0], [1e-3, 3e-3])
    assert np.allclose(figure.data["low"].values[:, 0], 0.5e-3)
    sizes = named(section, "io-sizes").data
    assert sizes["part"].values[-1] == "Servers, by their own counters"
    assert str(sizes["heading"].values[-1, 0, 0]).endswith(": 16 × 1 KiB, 16 KiB")
    assert str(sizes["heading"].values[-1, 1, 0]).endswith(": no reads")
    assert section.method[-1].name == "Servers' counters"
    assert "Servers' counters" not in [method.name for method in figures.METHODS]
    assert section.verdict == figures.section(traces.tree(traces.collective(RANKS, ROUNDS))).verdict
