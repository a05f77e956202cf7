"""The functions of all traced processes under one numbering, and what is special about each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.io.maps.layers import KINDS
from sonde.io.trace.collectives import ASKING, SYNCHRONISING, plain
from sonde.io.trace.events import ENTRY_ONLY, FAILED, OWN, THROWN, UNFINISHED, UNKNOWN, folded
from sonde.io.trace.opened_files import Copy
from sonde.io.trace.schema import ENGINES, OWN_NAME

if TYPE_CHECKING:
    from sonde.io.trace.collectives import Calls

_NUMBERS = 1 << 16  # a process numbers its functions from 0 to this


@dataclass(frozen=True)
class OwnNumbers:
    """The functions of one process, by its own numbers: (65536,) arrays.

    settled: numbers of the dataset; -1 for functions that were never called. The others are masks. requests: functions
    that record a request number in place of an offset. sources: functions that read a second file. copies: functions
    that record a second handle in place of a size. numbered: functions whose handles are numbers, 0 among them.
    """

    settled: np.ndarray
    requests: np.ndarray
    sources: np.ndarray
    copies: np.ndarray
    numbered: np.ndarray


# layer, kind, whether an offset is a request number, offsets with which it copies a handle, whether a file that it
# opens has a name, whether its handles are numbers, whether they are no files but sockets, pipes and the like
_Rule = tuple[int, int, int, list[int] | None, int, int, int]


class Functions:
    """The functions of all processes under one numbering: by layer, then in the order in which they were found."""

    def __init__(self, plan: Mapping[str, Any], headers: Mapping[str, Mapping[str, Any]]) -> None:
        # Earlier versions stored shorter rules: first without streams, before that without names and numbers, before
        # that without copies, before that without requests.
        rules = ((*rule, *(0, None, 1, 0, 0)[len(rule) - 2 :])[:7] for rule in plan["rules"])
        self.rules: list[_Rule] = [*rules, (plan.get("own", 0), 0, 0, None, 1, 0, 0)]
        self.layer_count = len(plan["layers"])
        self.tables: dict[str, list[tuple[int, int, str, str]]] = {}
        self.watched_by_kernel = {name for name in headers if headers[name].get("watched")}
        self.called: dict[str, np.ndarray] = {}
        for name in headers:
            self.tables[name] = [*self._table(plan, headers, name), (OWN, len(self.rules) - 1, OWN_NAME, "")]
            self.called[name] = np.zeros(_NUMBERS, bool)
        self._order: list[tuple[int, int, str, str, int]] = []  # layer, kind, symbol, library, engine
        self._masks: dict[tuple[str, str], np.ndarray] = {}
        self._synchronising: dict[str, np.ndarray] = {}

    def _table(
        self, plan: Mapping[str, Any], headers: Mapping[str, Mapping[str, Any]], name: str
    ) -> list[tuple[int, int, str, str]]:
        """The meaning of a process's numbers: its own, after those that it inherited from the process it was forked
        from."""
        if headers[name].get("watched"):
            return _numbered(plan, "watch")
        parent, count = headers[name].get("inherits", ""), int(headers[name].get("inherited", 0))
        own = _numbered(plan, name)
        if parent and parent != name:
            theirs = self._table(plan, headers, parent) if parent in headers else _numbered(plan, parent)
            return [entry for entry in theirs if entry[0] < count] + own
        return own

    def count(self, name: str, calls: np.ndarray) -> None:
        self.called[name][calls["function"]] = True

    def hear(self, name: str, calls: np.ndarray, to: Calls) -> None:
        """Collect a process's collective calls, which align the clocks of hosts."""
        if name not in self._synchronising:
            found = np.full(_NUMBERS, -1, np.int8)
            for own, _, symbol, _ in self.tables[name]:
                plain_name = plain(symbol)
                if plain_name in SYNCHRONISING:
                    found[own] = SYNCHRONISING.index(plain_name)
                elif plain_name == ASKING:
                    found[own] = len(SYNCHRONISING)
            self._synchronising[name] = found
        which = self._synchronising[name][calls["function"]]
        ended = (calls["flags"] & (FAILED | THROWN | ENTRY_ONLY | UNFINISHED)) == 0
        asked = calls[(which == len(SYNCHRONISING)) & ended]
        to.ranks.update(zip(asked["offset"].tolist(), asked["file"].tolist()))
        mine = (which >= 0) & (which < len(SYNCHRONISING)) & ended & (calls["size"] != 0)
        if mine.any():
            to.add(calls[mine], which[mine])

    def of_kind(self, name: str, kind: str) -> np.ndarray:
        """A mask of a process's function numbers, for functions of a kind such as "open" or "close"."""
        return self._where(name, kind, lambda rule: rule[1] == KINDS.index(kind))

    def requests(self, name: str) -> np.ndarray:
        """A mask as `OwnNumbers.requests`."""
        return self._where(name, "(request)", lambda rule: bool(rule[2]))

    def sources(self, name: str) -> np.ndarray:
        """A mask as `OwnNumbers.sources`."""
        return self.of_kind(name, "copy")

    def copies(self, name: str) -> np.ndarray:
        """A mask as `OwnNumbers.copies`."""
        return self._where(name, "(copies)", lambda rule: rule[3] is not None)

    def numbered(self, name: str) -> np.ndarray:
        """A mask as `OwnNumbers.numbered`."""
        return self._where(name, "(numbered)", lambda rule: bool(rule[5]))

    def streams(self, name: str) -> np.ndarray:
        """A mask of functions whose handles are sockets, pipes and the like."""
        return self._where(name, "(streams)", lambda rule: bool(rule[6]))

    def copied(self, name: str, process: int, calls: np.ndarray) -> list[Copy]:
        """The second handles that calls made."""
        made = (calls["flags"] & (FAILED | THROWN | ENTRY_ONLY | UNFINISHED)) == 0
        made &= self.copies(name)[calls["function"]] & ~self.streams(name)[calls["function"]]
        calls = calls[made & (calls["size"] != UNKNOWN)]
        if not len(calls):
            return []
        of_number = {number: rule for number, rule, _, _ in self.tables[name]}
        columns = (calls[key].tolist() for key in ("begin", "end", "file", "function", "offset"))
        return [
            Copy(begin, end, process, layer, old, new)
            for begin, end, old, number, asked, new in zip(*columns, folded(calls["size"]).tolist())
            for layer, _, _, only, *_ in (self.rules[of_number[number]],)
            if not only or asked in only
        ]

    def nameless(self, name: str, layer: int | None) -> dict[int, str]:
        """Functions of a layer, by a process's numbers, that open a file without a name -> the name that is shown
        instead."""
        opens = KINDS.index("open")
        return {
            number: f"({symbol})"
            for number, rule, symbol, _ in self.tables[name]
            if rule < len(self.rules) and self.rules[rule][:2] == (layer, opens) and not self.rules[rule][4]
        }

    def of_layer(self, name: str, layer: int | None) -> np.ndarray:
        """A mask of the process's functions of a layer."""
        return self._where(name, f"(layer {layer})", lambda rule: rule[0] == layer)

    def of_name(self, name: str, *symbols: str) -> np.ndarray:
        """A mask of the process's functions with one of these names."""
        found = np.zeros(_NUMBERS, bool)
        found[[number for number, _, symbol, _ in self.tables[name] if symbol in symbols]] = True
        return found

    def _where(self, name: str, what: str, holds: Callable[[_Rule], bool]) -> np.ndarray:
        """A mask of a process's function numbers whose rule holds. what: the name under which it is kept."""
        if (name, what) not in self._masks:
            found = np.zeros(_NUMBERS, bool)
            for number, rule, _, _ in self.tables[name]:
                found[number] = rule < len(self.rules) and holds(self.rules[rule])
            self._masks[name, what] = found
        return self._masks[name, what]

    def layer(self, name: str, number: int) -> int:
        for own, rule, _, _ in self.tables[name]:
            if own == number and rule < len(self.rules):
                return self.rules[rule][0]
        return -1

    def settled(self) -> dict[str, OwnNumbers]:
        """For each process, its own functions, after all calls were counted."""
        found: dict[tuple[int, int, str, str, int], None] = {}
        for name, table in self.tables.items():
            for number, rule, symbol, library in table:
                if self.called[name][number] and rule < len(self.rules):
                    layer, kind, *_ = self.rules[rule]
                    found.setdefault((layer, kind, symbol, library, self._engine(name, library)))
        self._order = sorted(found, key=lambda entry: entry[0])
        place = {entry: k for k, entry in enumerate(self._order)}
        return {
            name: OwnNumbers(
                self._placed(name, place),
                self.requests(name),
                self.sources(name),
                self.copies(name),
                self.numbered(name),
            )
            for name in self.tables
        }

    def _placed(self, name: str, place: Mapping[tuple[int, int, str, str, int], int]) -> np.ndarray:
        """The dataset's number of each function of a process."""
        mine = np.full(_NUMBERS, -1, np.int16)
        for number, rule, symbol, library in self.tables[name]:
            if rule < len(self.rules):
                layer, kind, *_ = self.rules[rule]
                mine[number] = place.get((layer, kind, symbol, library, self._engine(name, library)), -1)
        return mine

    def layers(self) -> np.ndarray:
        return np.array([entry[0] for entry in self._order], np.int16)

    def _engine(self, name: str, library: str) -> int:
        """The engine that recorded the calls of a function of a process."""
        if name not in self.watched_by_kernel:
            return ENGINES.index("interposition")
        return ENGINES.index("tracepoint" if library == "kernel" else "uprobe")

    def kinds(self) -> np.ndarray:
        return np.array([entry[1] for entry in self._order], np.int8)

    def columns(self) -> dict[str, np.ndarray]:
        return {
            "function_name": texts(entry[2] for entry in self._order),
            "function_library": texts(entry[3] for entry in self._order),
            "function_layer": self.layers(),
            "function_kind": self.kinds(),
            "function_engine": np.array([entry[4] for entry in self._order], np.int8),
        }

    def watched(self) -> np.ndarray:
        """The number of functions of each layer that were found in any process."""
        found = {
            (self.rules[rule][0], symbol, library)
            for table in self.tables.values()
            for own, rule, symbol, library in table
            if rule < len(self.rules) and own != OWN
        }
        return np.bincount([layer for layer, _, _ in found], minlength=self.layer_count).astype(np.int32)


def _numbered(plan: Mapping[str, Any], name: str) -> list[tuple[int, int, str, str]]:
    table = plan.get("table_of", {}).get(name)
    if table is None:
        return []
    return [(int(own), int(rule), symbol, library) for own, rule, symbol, library in plan["tables"][table]]


def texts(words: Iterable[Any]) -> np.ndarray:
    """Words as an array of objects, as netCDF's strings are written."""
    return np.array(list(words), dtype=object)
