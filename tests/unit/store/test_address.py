from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import UsageError
from sonde.store.address import KINDS, Address, parse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kv:runs/42/input", Address("kv", b"runs", b"42/input")),
        ("runs/42", Address("kv", b"runs", b"42")),
        ("object:fields/pressure", Address("object", b"fields", b"pressure")),
        ("item:results/a:b", Address("item", b"results", b"a:b")),
        ("kv:runs/%00%ff%25", Address("kv", b"runs", b"\x00\xff%")),
        ("kv:a%2Fb/c", Address("kv", b"a/b", b"c")),
        ("kv:a//", Address("kv", b"a", b"/")),
        ("kv:größe/µ", Address("kv", "größe".encode(), "µ".encode())),
    ],
)
def test_an_address_is_read(text, address):
    assert parse(text) == address


@pytest.mark.parametrize("text", ["kv:runs", "kv:runs/"])
def test_a_list_may_name_a_whole_space(text):
    assert parse(text, whole_space=True) == Address("kv", b"runs", b"")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no space"),
        ("kv:", "names no space"),
        ("kv:/x", "names no space"),
        ("runs", "names a space only"),
        ("runs/", "ends after its space"),
        ("objekt:a/b", "nearest: object"),
        ("kv:a/100%", "'%' without two hexadecimal digits"),
        ("kv:a/%zz", "'%zz'"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(text, why):
    with pytest.raises(UsageError, match=why) as caught:
        parse(text)
    assert caught.value.code == "store.bad_address"
    assert caught.value.hint


@given(
    st.sampled_from([kind for kind in KINDS if kind != "hdf5"]),  # which has a space and names of its own
    st.binary(min_size=1, max_size=63).filter(lambda s: b"\0" not in s),
    st.binary(min_size=1, max_size=100),
)
def test_every_address_is_read_back_as_it_is_shown(kind, space, name):
    address = Address(kind, space, name)
    shown = str(address)
    assert parse(shown) == address
    assert shown.isprintable()
    assert " " not in shown


def test_a_name_from_a_list_may_be_no_text():
    listed = b"\xff\x00a".decode("utf-8", "surrogateescape")
    assert parse("kv:s/", whole_space=True).at(listed) == Address("kv", b"s", b"\xff\x00a")


def test_an_hdf5_file_has_an_absolute_name_and_no_space():
    file = parse("hdf5:/home/a b/%25.h5".replace(" ", "%20"))
    assert (file.kind, file.space, file.name) == ("hdf5", b"h5.files", b"/home/a b/%.h5")
    assert str(file) == "hdf5:/home/a%20b/%25.h5"
    assert parse(str(file)) == file
    assert parse("hdf5:", whole_space=True).name == b""
    assert str(parse("hdf5:", whole_space=True)) == "hdf5:"
    for text in ("hdf5:", "hdf5:a.h5"):
        with pytest.raises(UsageError, match="names no HDF5 file"):
            parse(text)
    with pytest.raises(UsageError, match="only HDF5 programs"):
        parse("hdf5:/a.h5", kinds=("kv", "object"))


def test_the_hint_names_the_forms_that_are_taken():
    with pytest.raises(UsageError) as told:
        parse("kv:s", kinds=("kv", "object"))
    assert told.value.hint == "write kv:SPACE/KEY or object:SPACE/NAME"
    with pytest.raises(UsageError) as told:
        parse("s", kinds=("table",))
    assert told.value.hint == "write SPACE/TABLE"


def test_a_space_that_is_too_long_is_reported_with_its_limit():
    assert parse(f"kv:{'s' * 63}/a").space == b"s" * 63
    assert parse(f"item:{'s' * 70}/a").space == b"s" * 70
    for text in (f"kv:{'s' * 70}/a", f"object:{'s' * 64}/a", f"{'s' * 62}%C3%A4/a"):
        with pytest.raises(UsageError, match=r"the name of the space .* allowed: 63 B"):
            parse(text)
