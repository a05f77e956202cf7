"""The modes and the kinds of sample; the table itself is native/net/mode_table.cpp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sonde.core.errors import UsageError, nearest


@dataclass(frozen=True)
class Mode:
    """One way of exchanging messages.

    pattern: "pairs" (several at once if harmless), "one_pair" (others make noise), "everyone", "rooted".
    value: the default meaning of a sample. by_receiver: whether the receiver takes the samples of (src, dst).
    value_choice: whether --value may ask for another kind.
    """

    name: str
    text: str
    pattern: str
    value: str
    by_receiver: bool
    value_choice: bool

    def sample(self, value: str | None) -> tuple[str, str]:
        """The meaning of a sample and the rank that takes it ("src" or "dst") for a given `value`."""
        kind = value if value and self.value_choice else self.value
        return kind, "dst" if self.by_receiver or kind in ("one_way", "recv_duration") else "src"


VALUES = {
    "rtt_half": "half a round trip",
    "one_way": "one-way delay on synchronised clocks",
    "recv_duration": "time the receiver stood in MPI_Recv, as clustbench records",
    "completion": "time from the start of the exchange to this message's completion",
}
CHOICES = ("rtt_half", "one_way", "recv_duration")  # the values of --value


@cache
def modes() -> dict[str, Mode]:
    """Every mode by name, in the order of the help."""
    from sonde import _core

    return {row["name"]: Mode(**row) for row in _core.net_modes()}


def read_modes(text: str) -> tuple[Mode, ...]:
    """The modes of a comma-separated list; "all" means every one.

    Raises
    ------
    UsageError  net.unknown_mode, which names the nearest known one; net.mode_twice.
    """
    known = modes()
    if text.strip() == "all":
        return tuple(known.values())
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(
                "net.unknown_mode",
                f"there is no mode '{name}'{nearest(name, list(known))}; modes: {', '.join(known)}",
                "sonde net modes describes each",
            )
        if names.count(name) > 1:
            raise UsageError("net.mode_twice", f"mode '{name}' is given twice", "give each mode once")
    return tuple(known[name] for name in names)
