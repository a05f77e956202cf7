"""NetCDF-3, the classic format: whether a file is whole, and how to write one so that a full disk is an error.

netCDF-C does the reading, but not the writing. If closing a file fails, as on a full disk, netCDF-C frees the file but
still treats it as open. It frees it again when Python releases it, which ends the process (seen with 4.10.1).

Source: the NetCDF classic format specification, with its 64-bit offset and 64-bit data variants.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from sonde.core.errors import DataError

_DIMENSION, _VARIABLE, _ATTRIBUTE = 0x0A, 0x0B, 0x0C
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
_TYPE_OF = {"i1": 1, "S1": 2, "i2": 3, "i4": 4, "f4": 5, "f8": 6}
_MOST_HEADER_BYTES = 16 << 20
_LARGEST_U4 = 2**32 - 1


def _padded(count: int) -> int:
    return -(-count // 4) * 4


# ---- writing -------------------------------------------------------------------------------------


@dataclass
class _Place:
    """The layout of a variable: shape, type as numpy writes it, first byte, and the size of one record."""

    shape: tuple[int, ...]
    dtype: np.dtype
    begin: int
    own_bytes: int
    is_record: bool


class ClassicWriter:
    """A NetCDF-3 file with 64-bit offsets (CDF-2), written to a stream as its values come.

    Parameters
    ----------
    stream : an empty file, seekable, opened for writing in binary
    dims : name and length; None for the unlimited one
    variables : name, type (i1 S1 i2 i4 f4 f8, with or without byte order), dims by name
    attributes : by variable, "" for global ones: texts, numbers, lists of numbers
    records : length of the unlimited dim

    The bytes are those that netCDF-C writes. Values that are never written are zeros.

    Raises
    ------
    OSError  from the stream. DataError  net.clustbench_range (a type or a length that the format lacks).
    """

    def __init__(
        self,
        stream: BinaryIO,
        dims: Sequence[tuple[str, int | None]],
        variables: Sequence[tuple[str, str, tuple[str, ...]]],
        attributes: Mapping[str, Mapping[str, Any]],
        records: int,
    ) -> None:
        self._stream = stream
        lengths = {name: records if length is None else length for name, length in dims}
        unlimited = {name for name, length in dims if length is None}
        self._places: dict[str, _Place] = {}
        for name, kind, names in variables:
            plain = kind.lstrip("<>=|")
            if plain not in _TYPE_OF:
                raise DataError(
                    "net.clustbench_range",
                    f"variable {name} has type {kind}; NetCDF-3 has {', '.join(_TYPE_OF)}",
                    "the dataset was imported from a file that clustbench did not write; use that file",
                )
            shape = tuple(lengths[dim] for dim in names)
            is_record = bool(names) and names[0] in unlimited
            own = _TYPE_BYTES[_TYPE_OF[plain]] * math.prod(shape[1:] if is_record else shape)
            self._places[name] = _Place(shape, np.dtype(plain).newbyteorder(">"), 0, own, is_record)
        self._check_lengths()

        per_record = [place for place in self._places.values() if place.is_record]
        alone = len(per_record) == 1  # in this case records are not padded
        self._record_bytes = sum(p.own_bytes if alone else _padded(p.own_bytes) for p in per_record)
        at = len(self._header(dims, variables, attributes, records))
        for wanted in (False, True):
            for place in self._places.values():
                if place.is_record == wanted:
                    place.begin = at
                    at += _padded(place.own_bytes)
        stream.write(self._header(dims, variables, attributes, records))
        self._extend(records, per_record)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a variable."""
        return self._places[name].shape

    def put(self, name: str, start: Sequence[int], values: np.ndarray) -> None:
        """Write a block of values whose first has the position `start`; it has as many dims as the variable.

        Fewer dims of `values` mean leading ones of length 1. Raises OSError from the stream.
        """
        place = self._places[name]
        block = np.ascontiguousarray(values, place.dtype)
        block = block.reshape((1,) * (len(place.shape) - block.ndim) + block.shape)
        for first, many, length in zip(start, block.shape, place.shape):
            if first < 0 or first + many > length:
                raise IndexError(f"{name}[{first}:{first + many}] is beyond {length}")
        if not block.size:
            return
        # From `outer` on only the first dim is not whole: one stretch of the file. Records are separate.
        outer = max(len(place.shape) - 1, 0)
        while outer > 0 and block.shape[outer] == place.shape[outer]:
            outer -= 1
        outer = max(outer, int(place.is_record))
        for index in np.ndindex(*block.shape[:outer]):
            where = [s + i for s, i in zip(start, index)] + list(start[outer:])
            self._stream.seek(self._offset(place, where))
            self._stream.write(block[(*index, ...)].tobytes())  # a scalar would lose its byte order

    def _offset(self, place: _Place, where: Sequence[int]) -> int:
        begin = place.begin
        inner, shape = list(where), place.shape
        if place.is_record:
            begin += inner[0] * self._record_bytes
            inner, shape = inner[1:], shape[1:]
        flat = 0
        for position, length in zip(inner, shape):
            flat = flat * length + position
        return begin + flat * place.dtype.itemsize

    def _check_lengths(self) -> None:
        """Lengths are 4 B wide. Only the last variable may exceed them: its length is not needed."""
        last = {place.is_record: name for name, place in self._places.items()}
        for name, place in self._places.items():
            if place.own_bytes > _LARGEST_U4 - 3 and name != last[max(last)]:
                raise DataError(
                    "net.clustbench_range",
                    f"{name} takes {place.own_bytes / 2**30:.1f} GiB; this file format allows less than 4 GiB",
                    "store it in a dataset: sonde net slice --to sonde",
                )

    def _extend(self, records: int, per_record: Sequence[_Place]) -> None:
        """Give the file its full length, so that it is whole even if zeros are never written."""
        fixed = [place for place in self._places.values() if not place.is_record]
        end = max((place.begin + _padded(place.own_bytes) for place in fixed), default=0)
        if per_record and records:
            end = max(end, per_record[0].begin + records * self._record_bytes)
        if end > self._stream.tell():
            self._stream.truncate(end)

    def _header(
        self,
        dims: Sequence[tuple[str, int | None]],
        variables: Sequence[tuple[str, str, tuple[str, ...]]],
        attributes: Mapping[str, Mapping[str, Any]],
        records: int,
    ) -> bytes:
        names = [name for name, _ in dims]
        out = b"CDF\2" + _u4(records)
        out += _list(_DIMENSION, [_name(name) + _u4(length or 0) for name, length in dims])
        out += _attributes(attributes.get("", {}))
        described = []
        for name, _, its_dims in variables:
            place = self._places[name]
            described.append(
                _name(name)
                + _u4(len(its_dims))
                + b"".join(_u4(names.index(dim)) for dim in its_dims)
                + _attributes(attributes.get(name, {}))
                + _u4(_TYPE_OF[place.dtype.str[1:]])
                + _u4(min(_padded(place.own_bytes), _LARGEST_U4))
                + struct.pack(">q", place.begin)
            )
        return out + _list(_VARIABLE, described)


def _u4(number: int) -> bytes:
    return struct.pack(">I", number)


def _bytes(data: bytes) -> bytes:
    return data.ljust(_padded(len(data)), b"\0")


def _name(name: str) -> bytes:
    data = name.encode()
    return _u4(len(data)) + _bytes(data)


def _list(tag: int, items: Sequence[bytes]) -> bytes:
    return _u4(tag if items else 0) + _u4(len(items)) + b"".join(items)


def _attributes(attributes: Mapping[str, Any]) -> bytes:
    items = []
    for name, value in attributes.items():
        if isinstance(value, str):
            data = value.encode()
            items.append(_name(name) + _u4(_TYPE_OF["S1"]) + _u4(len(data)) + _bytes(data))
            continue
        values = np.atleast_1d(np.asarray(value))
        whole = values.dtype.kind in "biu" and bool((np.abs(values.astype(float)) < 2**31).all())
        kind = "i4" if whole else "f8"
        data = values.astype(f">{kind}").tobytes()
        items.append(_name(name) + _u4(_TYPE_OF[kind]) + _u4(len(values)) + _bytes(data))
    return _list(_ATTRIBUTE, items)


# ---- whether a file is whole ----------------------------------------------------------------------


def check_whole(stream: BinaryIO, length: int, name: str) -> None:
    """Check that a NetCDF-3 file is as long as its header promises. Other formats pass: they check themselves.

    The NetCDF library reads the missing part of a truncated NetCDF-3 file as zeros, without an error.

    Parameters
    ----------
    stream : the file, opened for reading in binary, at its start
    length : its length in B

    Raises
    ------
    DataError  net.truncated (too short), net.damaged_header (a header that no program writes).

    Source: the NetCDF classic format specification with 64-bit offset and 64-bit data variants.
    """
    start = stream.read(4)
    if start[:3] != b"CDF" or start[3:4] not in (b"\1", b"\2", b"\5"):
        return
    try:
        promised = _ClassicHeader(stream, start[3]).length()
    except EOFError:
        raise _truncated(name, f"its header ends after {length} B") from None
    except ValueError as error:
        raise DataError(
            "net.damaged_header",
            f"{name} has a damaged NetCDF header: {error}",
            "copy it again from where it was measured",
        ) from None
    if length < promised:
        raise _truncated(name, f"it has {length} of the {promised} B that its header promises")


def _truncated(name: str, what: str) -> DataError:
    return DataError(
        "net.truncated", f"{name} is cut off: {what}", "copy it again from where it was measured"
    )


class _ClassicHeader:
    """The header of a NetCDF-3 file, as far as it determines the file's length."""

    def __init__(self, stream: BinaryIO, version: int) -> None:
        self._stream = stream
        self._count_bytes = 8 if version == 5 else 4
        self._offset_bytes = 4 if version == 1 else 8
        self._read = 4

    def length(self) -> int:
        """The smallest length of the file in B. Raises EOFError if the header ends early, ValueError."""
        records = self._count()
        being_written = (1 << 8 * self._count_bytes) - 1
        dims = [self._dimension() for _ in self._list(_DIMENSION)]
        if dims.count(0) > 1:
            raise ValueError("it has two unlimited dimensions")
        self._attributes()
        fixed_end, per_record = 0, []
        for _ in self._list(_VARIABLE):
            shape, begin, width = self._variable(dims)
            if shape[:1] == [0]:
                per_record.append((begin, width * math.prod(shape[1:])))
            else:
                fixed_end = max(fixed_end, begin + width * math.prod(shape))
        end = max(fixed_end, self._read)
        if not per_record or records in (0, being_written):
            return end
        # The values of one record are padded to 4 B each, unless there is only one record variable.
        step = per_record[0][1] if len(per_record) == 1 else sum(-(-own // 4) * 4 for _, own in per_record)
        return max(end, *(begin + (records - 1) * step + own for begin, own in per_record))

    def _variable(self, dims: list[int]) -> tuple[list[int], int, int]:
        self._name()
        ids = [self._count() for _ in range(self._few("dimensions of a variable", 1024))]
        if any(i >= len(dims) for i in ids):
            raise ValueError(f"a variable has dimension {max(ids)} of {len(dims)}")
        shape = [dims[i] for i in ids]
        if 0 in shape[1:]:
            raise ValueError("the unlimited dimension of a variable is not its first")
        self._attributes()
        width = self._type()
        self._count()  # the length of its data, which is limited to 4 GiB
        return shape, self._number(self._offset_bytes), width

    def _list(self, tag: int) -> Iterator[None]:
        found, count = self._number(4), self._count()
        if found != tag and (found or count):
            raise ValueError(f"{found} is in the place of list {tag}")
        for _ in range(count):
            yield None

    def _attributes(self) -> None:
        for _ in self._list(_ATTRIBUTE):
            self._name()
            width = self._type()
            self._skip(width * self._count())

    def _dimension(self) -> int:
        self._name()
        return self._count()

    def _name(self) -> None:
        count = self._count()
        try:
            self._bytes(-(-count // 4) * 4)[:count].decode("utf-8")
        except UnicodeDecodeError:  # the library would fail on it
            raise ValueError("a name in it is not text") from None

    def _type(self) -> int:
        kind = self._number(4)
        if kind not in _TYPE_BYTES:
            raise ValueError(f"type {kind} is unknown")
        return _TYPE_BYTES[kind]

    def _few(self, what: str, most: int) -> int:
        count = self._count()
        if count > most:
            raise ValueError(f"it has {count} {what}")
        return count

    def _count(self) -> int:
        return self._number(self._count_bytes)

    def _skip(self, count: int) -> None:
        self._bytes(-(-count // 4) * 4)

    def _number(self, width: int) -> int:
        return int.from_bytes(self._bytes(width), "big")

    def _bytes(self, count: int) -> bytes:
        self._read += count
        if self._read > _MOST_HEADER_BYTES:
            raise ValueError(f"it does not end within {_MOST_HEADER_BYTES} B")
        data = self._stream.read(count)
        if len(data) != count:
            raise EOFError
        return data
