"""Layer maps: which functions of which libraries belong to a layer, and which of their arguments are the bytes, the
offset and the file. Maps are TOML; docs/reference/layer-maps.md is the complete description.

    layer = "mpiio"
    title = "MPI-IO"
    libraries = ["libmpi.so*"]
    fails = "nonzero"                  # of all functions here that say nothing else

    [[functions]]
    names = ["MPI_File_write_at", "MPI_File_write_at_all"]
    kind = "write"
    size = "arg(3):i32 * mpi(4)"
    offset = "arg(1)"
    file = "arg(0)"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonde.core.errors import UsageError, nearest

# Layers that benchmarks call. Calls outside the first of them that a benchmark used are its start-up.
TOPS = ("hdf5", "mpiio")
KINDS = (
    "other",
    "open",
    "close",
    "read",
    "write",
    "sync",
    "meta",
    "seek",
    "communicate",
    "wait",
    "map",
    "copy",
)
DIRECTIONS = ("read", "write")  # of requests that move data; also the order along a dimension
FAILS = ("never", "negative", "nonzero", "null")
WIDTHS = ("i32", "u32", "i64")
MAP_KEYS = ("layer", "title", "after", "serves", "libraries", "fails", "result", "functions", "note")
FUNCTION_KEYS = (
    "names", "kind", "size", "moved", "offset", "request", "file", "source", "copy", "copy_if", "path", "fails",
    "result", "stream", "libraries",
)  # fmt: skip
_MOVED = ("mpi_status", "mpi_ref_status", "later")
MOST_ARGUMENTS = 16
MOST_BYTES = 255  # maximum offset behind a pointer
MOST_CONSTANT = 255

# Forms of a value -> the tracer's name for it (native/io/table.hpp). "N" is the position of an argument.
_FORMS = {
    r"arg\((\d{1,19})\)(?::([A-Za-z_]\w{0,30}))?": "arg",
    r"ref\((\d{1,19})(?: ?\+ ?(\d{1,19}))?\)(?::([A-Za-z_]\w{0,30}))?": "ref",
    r"out\((\d{1,19})(?: ?\+ ?(\d{1,19}))?\)(?::([A-Za-z_]\w{0,30}))?": "out",
    r"arg\((\d{1,19})\)(?::([A-Za-z_]\w{0,30}))? \* arg\((\d{1,19})\)(?::([A-Za-z_]\w{0,30}))?": "product",
    r"arg\((\d{1,19})\)(?::([A-Za-z_]\w{0,30}))? \* mpi\((\d{1,19})\)": "mpi",
    r"ref\((\d{1,19})\)(?::([A-Za-z_]\w{0,30}))? \* mpi_ref\((\d{1,19})\)": "mpi_ref",
    r"iov\((\d{1,19}), ?(\d{1,19})\)": "iov",
    r"result(?::([A-Za-z_]\w{0,30}))?": "result",
    r"result \* arg\((\d{1,19})\)": "result_product",
    r"text\((\d{1,19})\)": "text",
    r"text\((\d{1,19}), ?(\d{1,19})\)": "counted_text",
    r"length\((\d{1,19})\)": "length",
    r"out_length\((\d{1,19})\)": "out_length",
    r"(\d{1,19})": "constant",
    r"hdf5\((\d{1,19})\)": "hdf5",
    r"hdf5_attribute\((\d{1,19})\)": "hdf5_attribute",
    r"mpi_status\((\d{1,19}), ?(\d{1,19})\)": "mpi_status",
    r"mpi_ref_status\((\d{1,19}), ?(\d{1,19})\)": "mpi_ref_status",
    r"later": "later",
}
EXAMPLES = (
    "arg(2), arg(2):i32, ref(1), ref(0 + 24), out(4), out(0 + 4), arg(1) * arg(2), arg(1):i32 * arg(2):i32, "
    "arg(3):i32 * mpi(4), ref(2):i32 * mpi_ref(3), iov(1, 2), result, result * arg(1), text(0), text(1, 6), "
    "length(0), out_length(0), hdf5(0), hdf5_attribute(0), 1, mpi_status(5, 4), mpi_ref_status(5, 4), later"
)


@dataclass(frozen=True)
class Value:
    """The source of a number or a name: `how` as in native/io/table.hpp, arguments a and b, with `ref` b bytes behind
    the pointer in argument a; width of the value."""

    how: str = "none"
    a: int = 0
    b: int = 0
    width: str = "i64"


NOTHING = Value()


@dataclass(frozen=True)
class Function:
    """Functions with the same arguments. names : globs of symbols; libraries : globs of file names."""

    names: tuple[str, ...]
    libraries: tuple[str, ...]
    kind: str = "other"
    fails: str = "never"
    result: str = "i64"
    size: Value = NOTHING
    moved: Value = NOTHING  # what came, if the size is what was asked for
    offset: Value = NOTHING
    request: Value = NOTHING  # instead of an offset: a record has room for only one of them
    file: Value = NOTHING
    source: Value = NOTHING  # for a copy between files: the handle of the file that is read
    path: Value = NOTHING
    copy: Value = NOTHING  # a second handle of the file, which the call makes,
    copy_if: Value = NOTHING  # if this value
    copy_is: tuple[int, ...] = ()  # is one of these; always if `copy_if` is NOTHING
    stream: bool = False  # its handles are sockets, pipes and the like, no files

    @property
    def amount(self) -> Value:
        """The value stored as the size of a record: the size, or the handle that the call makes."""
        return self.size if self.copy == NOTHING else self.copy

    @property
    def at(self) -> Value:
        """The value stored as the offset of a record: the offset, a request number, the handle of a source, or the
        value of `copy_if`."""
        if self.copy != NOTHING:
            return self.copy_if
        if self.source != NOTHING:
            return self.source
        return self.offset if self.request == NOTHING else self.request

    @property
    def named(self) -> Value:
        """The value stored in the place of a name: the name, or how the bytes that came are counted."""
        return self.path if self.moved == NOTHING else self.moved

    @property
    def copies(self) -> list[int] | None:
        """The values of `copy_if` for which a call makes a handle, [] for any; None if it never makes one."""
        return None if self.copy == NOTHING else list(self.copy_is)


@dataclass(frozen=True)
class Layer:
    """One layer's map. after : layers that call this one, nearest last; they determine the order of layers. serves :
    for a layer of servers, the layer of their clients, else "". note : a remark for readers of the map."""

    name: str
    title: str
    functions: tuple[Function, ...]
    after: tuple[str, ...] = ()
    serves: str = ""
    source: str = ""
    note: str = ""
    shipped: bool = False


def parse(text: str, source: str) -> Layer:
    """Parse a layer map.

    Parameters
    ----------
    text : TOML; source : the file's name, for errors

    Raises
    ------
    UsageError  io.bad_map: no TOML, an unknown key or value, a function without names or libraries; the message names
    it and the allowed values.
    """
    from sonde.core.config import toml

    try:
        table = toml(text)
    except ValueError as error:
        raise _bad(source, f"no TOML: {error}", "not valid TOML: {error}") from None
    _known(table, MAP_KEYS, source, "")
    name = table.get("layer")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
        raise _bad(
            source, f"layer is {name!r}, not a name", 'as layer = "lustre": small letters, digits and _'
        )
    common = _words(table.get("libraries", []), source, "libraries")
    entries = table.get("functions", [])
    if not isinstance(entries, list) or not entries:
        raise _bad(source, "it names no functions", "add [[functions]] with names = [...]")
    functions = tuple(
        _function(entry, f"functions {number}", source, common, table)
        for number, entry in enumerate(entries, 1)
    )
    after = _words(table.get("after", []), source, "after")
    serves = table.get("serves", "")
    if not isinstance(serves, str) or serves == name:
        raise _bad(source, f"serves is {serves!r}", 'name the layer of its clients, as serves = "pvfs"')
    title, note = str(table.get("title", name)), str(table.get("note", ""))
    return Layer(name, title, functions, after, serves, source, note)


def _function(
    entry: Any, where: str, source: str, common: tuple[str, ...], table: Mapping[str, Any]
) -> Function:
    if not isinstance(entry, dict):
        raise _bad(source, f"{where} is no table", "write [[functions]]")
    names = _words(entry.get("names", []), source, f"{where}: names")
    if names:
        where = f"{where} ({names[0]})"
    _known(entry, FUNCTION_KEYS, source, where)
    if not names:
        raise _bad(source, f"{where} has no names", 'as names = ["llapi_*"]')
    libraries = _words(entry.get("libraries", []), source, f"{where}: libraries") or common
    if not libraries:
        raise _bad(
            source, f"{where} is of no library", 'as libraries = ["liblustreapi.so*"], above all or here'
        )
    chosen = {
        key: _one_of(str(entry.get(key, table.get(key, default))), allowed, source, f"{where}: {key}")
        for key, default, allowed in (
            ("kind", "other", KINDS),
            ("fails", "never", FAILS),
            ("result", "i64", WIDTHS),
        )
    }
    values = {
        key: value(str(entry[key]), source, f"{where}: {key}")
        for key in ("size", "moved", "offset", "request", "file", "source", "copy", "path")
        if key in entry
    }
    more: dict[str, Any] = {}
    if "copy_if" in entry:
        asked, *listed = given if isinstance(given := entry["copy_if"], list) and given else [""]
        if not isinstance(asked, str) or not listed or not all(type(one) is int for one in listed):
            raise _bad(
                source,
                f"{where}: copy_if is {given!r}",
                'an argument and what it may be: ["arg(1):i32", 0, 1030]',
            )
        values["copy_if"] = value(asked, source, f"{where}: copy_if")
        more["copy_is"] = tuple(listed)
    if "copy" in values and (lost := {"size", "offset", "request", "path"} & set(values)):
        raise _bad(
            source,
            f"{where}: it has a copy and {' and '.join(sorted(lost))}",
            "leave out what is not the handles",
        )
    if ("copy" in values and "file" not in values) or ("copy_if" in values and "copy" not in values):
        raise _bad(source, f"{where}: a copy of nothing", 'as file = "arg(0):i32" and copy = "result:i32"')
    if ("source" in values) != (chosen["kind"] == "copy") or (
        "source" in values and {"offset", "request", "copy"} & set(values)
    ):
        raise _bad(
            source,
            f'{where}: a copy between files has kind = "copy" and a source, and no offset, request or copy',
            'as copy_file_range: file = "arg(2):i32", source = "arg(0):i32"',
        )
    if "offset" in values and "request" in values:
        raise _bad(
            source, f"{where}: it has an offset and a request", "leave one out: there is room for one of them"
        )
    for key, allowed in (
        ("moved", _MOVED),
        ("offset", ("arg", "ref")),
        ("request", ("arg", "ref")),
        ("file", ("arg", "ref", "out", "result")),
        ("source", ("arg",)),
        ("copy", ("out", "result")),
        ("copy_if", ("arg",)),
        ("path", ("text", "counted_text")),
    ):
        if key in values and values[key].how not in allowed:
            raise _bad(
                source, f"{where}: {key} cannot be {entry[key]!r}", f"it is one of {', '.join(allowed)}"
            )
    if "moved" in values and "path" in values:
        raise _bad(source, f"{where}: it has moved and path", "leave one out: there is room for one of them")
    more["stream"] = entry.get("stream", False)
    if type(more["stream"]) is not bool or (more["stream"] and "file" not in values):
        raise _bad(
            source,
            f"{where}: stream is {entry['stream']!r}, of {values.get('file', 'no file')}",
            'as file = "result:i32" and stream = true',
        )
    if "size" in values and values["size"].how in ("text", "counted_text", *_MOVED):
        raise _bad(source, f"{where}: size cannot be {entry['size']!r}", f"it is one of {EXAMPLES}")
    return Function(names, libraries, **chosen, **values, **more)  # type: ignore[arg-type]


def value(text: str, source: str = "", where: str = "") -> Value:
    """Parse "arg(3):i32 * mpi(4)". UsageError io.bad_map if it is invalid."""
    for form, how in _FORMS.items():
        if (match := re.fullmatch(form, text.strip())) is None:
            continue
        numbers = [int(group) for group in match.groups() if group and group.isdigit()]
        widths = [group for group in match.groups() if group and not group.isdigit()]
        if how == "constant" and numbers[0] > MOST_CONSTANT:
            raise _bad(source, f"{where}: {text!r} is too large", f"a number is at most {MOST_CONSTANT}")
        places = [] if how == "constant" else numbers[:1] if how in ("ref", "out") else numbers
        if any(number >= MOST_ARGUMENTS for number in places):
            raise _bad(source, f"{where}: {text!r} names an argument that no function has", "the first is 0")
        if any(number > MOST_BYTES for number in numbers):
            raise _bad(
                source, f"{where}: {text!r} is too far behind the pointer", f"{MOST_BYTES} B are allowed"
            )
        width = widths[0] if widths else "i64"
        _one_of(width, WIDTHS, source, where)
        if how == "product" and widths not in ([], [width, width]):
            raise _bad(
                source,
                f"{where}: {text!r} has two widths",
                f"both are of one: arg(1):{width} * arg(2):{width}",
            )
        a, b = (*numbers, 0, 0)[:2]
        return Value(how, a, b, width)
    raise _bad(source, f"{where}: {text!r} means nothing", f"as {EXAMPLES}")


def _known(table: Mapping[str, Any], keys: tuple[str, ...], source: str, where: str) -> None:
    for key in table:
        if key not in keys:
            place = f"{where}: " if where else ""
            raise _bad(
                source, f"{place}unknown key '{key}'{nearest(key, keys)}", f"known are {', '.join(keys)}"
            )


def _one_of(word: str, allowed: tuple[str, ...], source: str, where: str) -> str:
    if word not in allowed:
        raise _bad(
            source, f"{where} is '{word}'{nearest(word, allowed)}", f"it is one of {', '.join(allowed)}"
        )
    return word


def _words(given: Any, source: str, where: str) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or not all(isinstance(word, str) and word for word in given):
        raise _bad(source, f"{where} is no list of names", 'as ["libmpi.so*"]')
    return tuple(given)


def _bad(source: str, what: str, hint: str) -> UsageError:
    return UsageError("io.bad_map", f"{source}: {what}", hint)


def ordered(layers: Iterable[Layer]) -> list[Layer]:
    """Layers from the application down: layers in `after` come first; otherwise the given order stays.

    Raises
    ------
    UsageError  io.bad_map: two layers have one name, or layers call each other in a circle.
    """
    left = list(layers)
    names = [layer.name for layer in left]
    for layer in left:
        if names.count(layer.name) > 1:
            raise _bad(
                layer.source, f"a second map of the layer '{layer.name}'", "give one of them another name"
            )
    done: list[Layer] = []
    while left:
        waiting = {layer.name for layer in left}
        ready = next((layer for layer in left if not waiting & set(layer.after)), None)
        if ready is None:
            raise _bad(
                left[0].source,
                f"the layers {', '.join(sorted(waiting))} are after each other",
                "correct `after`",
            )
        left.remove(ready)
        done.append(ready)
    return done


def table_of(layers: Sequence[Layer]) -> tuple[dict[str, Any], ...]:
    """Layers in the form of a run's plan; the tracer's own work is the last."""
    return (
        *({"name": layer.name, "title": layer.title, "serves": layer.serves} for layer in layers),
        {"name": "tracer", "title": "Sonde's tracer"},
    )
