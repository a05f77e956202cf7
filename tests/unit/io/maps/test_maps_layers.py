"""Layer maps: what they mean, what is refused, and how they reach the tracer."""

from __future__ import annotations

import re
import struct
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from sonde.core.errors import UsageError
from sonde.io.maps import layers, run_maps, table
from sonde.io.maps.layers import Value

HEAD = 'layer = "lustre"\nlibraries = ["liblustreapi.so*"]\n'


def refused(text: str) -> str:
    with pytest.raises(UsageError) as told:
        layers.parse(text, "own.toml")
    assert told.value.code == "io.bad_map"
    assert told.value.hint
    return told.value.what


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("arg(2)", Value("arg", 2)),
        ("arg(2):i32", Value("arg", 2, 0, "i32")),
        ("ref(0):u32", Value("ref", 0, 0, "u32")),
        ("out(4)", Value("out", 4)),
        ("arg(1) * arg(2)", Value("product", 1, 2)),
        ("arg(3):i32 * mpi(4)", Value("mpi", 3, 4, "i32")),
        ("arg(3) * mpi(4)", Value("mpi", 3, 4)),
        ("ref(2):i32 * mpi_ref(3)", Value("mpi_ref", 2, 3, "i32")),
        ("ref(1):i32", Value("ref", 1, 0, "i32")),
        ("ref(0 + 128)", Value("ref", 0, 128)),
        ("ref(0+24):i32", Value("ref", 0, 24, "i32")),
        ("iov(1, 2)", Value("iov", 1, 2)),
        ("result", Value("result")),
        ("result:i32", Value("result", 0, 0, "i32")),
        ("result * arg(1)", Value("result_product", 1)),
        ("text(0)", Value("text", 0)),
        ("text(1, 6)", Value("counted_text", 1, 6)),
        ("arg(1):i32 * arg(2):i32", Value("product", 1, 2, "i32")),
        ("length(0)", Value("length", 0)),
        ("out_length(0)", Value("out_length", 0)),
        ("1", Value("constant", 1)),
    ],
)
def test_values(text, meant):
    assert layers.value(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "arg",
        "arg(x)",
        "arg(2) + arg(3)",
        "arg(-1)",
        "arg(99)",
        "arg(2):i16",
        "ref(0 + 256)",
        "ref(16 + 2)",
    ],
)
def test_values_that_mean_nothing(text):
    with pytest.raises(UsageError):
        layers.value(text, "own.toml", "functions 1: size")


@pytest.mark.parametrize("text", ["arg(2):i32 * arg(3)", "arg(2) * arg(3):i32", "arg(2):i32 * arg(3):u32"])
def test_factors_have_one_width(text):
    with pytest.raises(UsageError) as told:
        layers.value(text, "own.toml", "functions 1: size")
    assert "two widths" in told.value.what


def test_a_number_fits_into_a_byte():
    with pytest.raises(UsageError) as told:
        layers.value("256", "own.toml", "functions 1: size")
    assert "at most 255" in told.value.hint


def test_a_map_without_functions_or_names_or_libraries_is_refused():
    assert "names no functions" in refused(HEAD)
    assert "functions 1 has no names" in refused(HEAD + "[[functions]]\nkind = 'read'\n")
    assert "is of no library" in refused('layer = "lustre"\n[[functions]]\nnames = ["llapi_*"]\n')


def test_unknown_keys_and_words_name_the_nearest():
    said = refused(HEAD + '[[functions]]\nnames = ["llapi_*"]\noffest = "arg(0)"\n')
    assert "functions 1 (llapi_*): unknown key 'offest' (nearest: offset)" in said
    assert "'writ' (nearest: write)" in refused(HEAD + '[[functions]]\nnames = ["a"]\nkind = "writ"\n')
    assert "unknown key 'libary'" in refused('libary = "x"\n' + HEAD)


@pytest.mark.parametrize(
    "line", ['offset = "result"', 'file = "iov(0, 1)"', 'path = "arg(0)"', 'size = "text(0)"']
)
def test_a_value_of_the_wrong_kind_is_refused(line):
    assert "cannot be" in refused(HEAD + '[[functions]]\nnames = ["a"]\n' + line + "\n")


def test_a_copy_between_files_has_a_source_and_nothing_in_its_place():
    entry = HEAD + '[[functions]]\nnames = ["a"]\nkind = "copy"\nfile = "arg(2):i32"\nsource = "arg(0):i32"\n'
    (function,) = layers.parse(entry, "own.toml").functions
    assert (function.at, function.file) == (Value("arg", 0, 0, "i32"), Value("arg", 2, 0, "i32"))
    for text in (
        entry.replace('kind = "copy"', 'kind = "write"'),
        entry.replace('source = "arg(0):i32"', ""),
        entry + 'offset = "arg(3)"\n',
    ):
        assert "a copy between files has" in refused(text)


def test_an_offset_and_a_request_have_one_place():
    both = '[[functions]]\nnames = ["a"]\noffset = "arg(0)"\nrequest = "arg(1)"\n'
    assert "it has an offset and a request" in refused(HEAD + both)
    assert "request cannot be 'result'" in refused(
        HEAD + '[[functions]]\nnames = ["a"]\nrequest = "result"\n'
    )


def test_a_copy_is_a_second_handle_of_a_file():
    text = '[[functions]]\nnames = ["dup"]\nfile = "arg(0):i32"\ncopy = "result:i32"\n'
    (always,) = layers.parse(HEAD + text, "own.toml").functions
    (asked,) = layers.parse(HEAD + text + 'copy_if = ["arg(1):i32", 0, 1030]\n', "own.toml").functions
    (none,) = layers.parse(HEAD + '[[functions]]\nnames = ["a"]\nsize = "arg(1)"\n', "own.toml").functions
    assert (always.copies, asked.copies, none.copies) == ([], [0, 1030], None)
    assert always.amount == asked.amount == Value("result", 0, 0, "i32")
    assert (always.at, asked.at) == (Value(), Value("arg", 1, 0, "i32"))
    assert (none.amount, none.at) == (Value("arg", 1), Value())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('copy = "arg(1)"', "copy cannot be 'arg(1)'"),
        ('copy = "result"\nsize = "arg(1)"', "it has a copy and size"),
        ('copy = "result"\nrequest = "arg(1)"\npath = "text(0)"', "it has a copy and path and request"),
        ('copy_if = ["arg(1)", 0]', "a copy of nothing"),
        ('copy = "result"\ncopy_if = "arg(1)"', "copy_if is 'arg(1)'"),
        ('copy = "result"\ncopy_if = ["arg(1)"]', "copy_if is ['arg(1)']"),
        ('copy = "result"\ncopy_if = ["arg(1)", true]', "copy_if is ['arg(1)', True]"),
        ('copy = "result"\ncopy_if = ["result", 1]', "copy_if cannot be"),
    ],
)
def test_copies_that_make_no_sense(lines, said):
    assert said in refused(HEAD + f'[[functions]]\nnames = ["a"]\nfile = "arg(0)"\n{lines}\n')
    assert "a copy of nothing" in refused(HEAD + '[[functions]]\nnames = ["a"]\ncopy = "result"\n')


def test_a_layer_that_serves_names_its_clients():
    text = '[[functions]]\nnames = ["a"]\n'
    assert layers.parse('serves = "pvfs"\n' + HEAD + text, "own.toml").serves == "pvfs"
    assert "serves is 'lustre'" in refused('serves = "lustre"\n' + HEAD + text)
    assert "serves is ['pvfs']" in refused('serves = ["pvfs"]\n' + HEAD + text)


def test_no_toml_and_no_name():
    assert "no TOML" in refused("layer = ")
    assert "layer is 'A B'" in refused('layer = "A B"\n[[functions]]\nnames=["a"]\nlibraries=["b"]\n')


class TestShipped:
    def test_all_parse_and_are_in_order(self):
        names = [layer.name for layer in run_maps.shipped()]
        assert names.index("hdf5") < names.index("mpiio") < names.index("romio") < names.index("posix")
        assert names.index("mpiio") < names.index("ompio") < names.index("mpi")
        assert {"gfapi", "pvfs"} < set(names)

    def test_writes_and_reads_of_mpi_io_tell_their_bytes_and_file(self):
        (mpiio,) = (layer for layer in run_maps.shipped() if layer.name == "mpiio")
        for function in mpiio.functions:
            if function.kind in ("read", "write"):
                assert function.size.how in ("mpi", "mpi_ref"), function.names
                assert function.file.how in ("arg", "ref"), function.names
                at = [name for name in function.names if "_at" in name.lower()]
                assert bool(at) == (function.offset.how != "none"), function.names
                assert at in ([], list(function.names))
            if any(name.endswith("_c") for name in function.names):
                assert function.size.width == "i64"

    def test_no_name_is_in_two_places_of_one_layer(self):
        for layer in run_maps.shipped():
            names = [name for function in layer.functions for name in function.names]
            assert len(names) == len(set(names)), layer.name

    def test_the_store_s_functions_are_those_of_its_header(self):
        header = (Path(__file__).parents[4] / "native" / "store" / "trace.hpp").read_text()
        points = {f"sonde_store_{name}" for name in re.findall(r"point\((\w+)\)", header)} - {
            "sonde_store_name"
        }
        store = [layer for layer in run_maps.shipped() if layer.name.startswith("store")]
        assert [layer.name for layer in store] == [
            "store",
            "store_transport",
            "store_server",
            "store_backend",
        ]
        assert [layer.serves for layer in store] == ["", "", "store", ""]
        assert {name for layer in store for function in layer.functions for name in function.names} == points

    def test_a_user_s_map_takes_the_place_of_a_shipped_one(self, tmp_path):
        own = tmp_path / "own.toml"
        own.write_text('layer = "posix"\nlibraries = ["libc.so.6"]\n[[functions]]\nnames = ["read"]\n')
        assert [layer.source for layer in run_maps.chosen(["posix"], [own])] == [str(own)]

    def test_a_layer_that_is_not_there_names_the_nearest(self):
        with pytest.raises(UsageError, match=r"no layer 'possix'.*posix"):
            run_maps.chosen(["possix"])

    def test_a_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(UsageError) as told:
            run_maps.chosen([], [tmp_path / "nowhere.toml"])
        assert told.value.code == "io.no_map"
        (tmp_path / "binary").write_bytes(b"\xff\xfe")
        with pytest.raises(UsageError, match="is not text"):
            run_maps.chosen([], [tmp_path / "binary"])


def test_layers_that_are_after_each_other_are_refused():
    def layer(name: str, after: str) -> layers.Layer:
        head = f'layer = "{name}"\nafter = ["{after}"]\nlibraries = ["x"]\n'
        return layers.parse(head + '[[functions]]\nnames = ["f"]\n', f"{name}.toml")

    with pytest.raises(UsageError, match="a, b are after each other"):
        layers.ordered([layer("a", "b"), layer("b", "a")])
    with pytest.raises(UsageError, match="a second map"):
        layers.ordered([layer("a", "b"), layer("a", "c")])


class TestTable:
    def test_a_request_s_number_stands_where_else_the_offset_does(self):
        made = [
            table.compiled(
                [layers.parse(HEAD + f'[[functions]]\nnames = ["a"]\n{key} = "arg(3)"\n', "own.toml")]
            )
            for key in ("offset", "request")
        ]
        assert made[0] == made[1]

    def test_it_is_laid_out_as_the_header_says(self):
        text = HEAD + (
            '[[functions]]\nnames = ["llapi_open", "llapi_*"]\nkind = "open"\nfails = "negative"\n'
            'result = "i32"\nsize = "arg(3):i32 * mpi(4)"\noffset = "ref(1)"\nfile = "result:i32"\npath = "text(0)"\n'
        )
        layer = layers.parse(text, "own.toml")
        made = table.compiled([layer], most_bytes=1 << 30)
        magic, version, rules, text_bytes, zero, most = struct.unpack_from("<8sIIIIQ", made)
        assert (magic, version, rules, zero, most) == (b"SONDELYR", 1, 2, 0, 1 << 30)
        assert len(made) == 32 + 32 * rules + text_bytes
        words = made[32 + 32 * rules :]

        def word(at: int) -> str:
            return words[at : words.index(b"\0", at)].decode()

        for number, name in enumerate(("llapi_open", "llapi_*")):
            fields = struct.unpack_from("<IIHBBB3x4B4B4B4B", made, 32 + 32 * number)
            assert (word(fields[0]), word(fields[1])) == ("liblustreapi.so*", name)
            assert fields[2:6] == (0, 1, 1, 0)
            assert fields[6:] == (5, 3, 4, 0, 2, 1, 0, 2, 8, 0, 0, 0, 10, 0, 0, 2)
        assert words.endswith(b"\0")

    def test_each_name_of_each_library_is_a_rule_of_its_layer(self):
        shipped = run_maps.shipped()
        made = table.compiled(shipped)
        of = [number for number, _, _, _ in table.rule_names(shipped)]
        assert struct.unpack_from("<I", made, 12)[0] == len(of)
        numbers = [struct.unpack_from("<H", made, 32 + 32 * k + 8)[0] for k in range(len(of))]
        assert numbers == of

    def test_earlier_layers_come_first_where_globs_meet(self):
        shipped = run_maps.shipped()
        first = next(
            layer.name
            for layer in shipped
            for function in layer.functions
            if any(fnmatchcase("ADIOI_GEN_WriteContig", name) for name in function.names)
        )
        assert first == "romio"
