"""The tables of /summary of a study: those of any run, and the results of the study."""

from __future__ import annotations

from sonde.core.described import Described
from sonde.core.described import optional as _of
from sonde.noise.detector import summary

_VARIANT, _GROUP = ("variant",), ("group",)

ALONE: dict[str, Described] = {
    "alone_p": _of(
        _VARIANT, "1", "p of a run of this level alone, adjusted for all its looks; median of the hands"
    ),
    "alone_s": _of(
        _VARIANT, "s", "time in which a run of this level alone detects it; NaN: not within alone_limit"
    ),
    "alone_source_s": _of(
        _VARIANT, "s", "time after which the two intervals of the source thesis are disjoint; NaN: never"
    ),
    "alone_separated_s": _of(
        _VARIANT, "s", "time after which they are the thesis's several seconds apart; NaN: never"
    ),
    "alone_limit": _of(_VARIANT, "s", "time that all pairs of a run of this level alone take"),
}
"""Results of a sensitivity."""

OF_GROUP: dict[str, Described] = {
    "group_mean": _of(_GROUP, "s", "mean time of an iteration over the means of a group's blocks"),
    "group_sd": _of(_GROUP, "s", "standard deviation of the means of a group's blocks"),
    "group_blocks": _of(_GROUP, "1", "blocks of a group"),
    "group_low": _of(_GROUP, "s", "99 % interval of a group's mean (Student), low end"),
    "group_high": _of(_GROUP, "s", "99 % interval of a group's mean (Student), high end"),
}
STEADINESS: dict[str, Described] = {
    **OF_GROUP,
    "groups_p": _of((), "1", "p of equal levels in all groups (Kruskal-Wallis)"),
    "autocorrelation": _of((), "1", "correlation of a block's mean with the mean of the next block"),
    "effective": _of((), "1", "independent blocks that give the mean as exactly"),
    "clean_mde": _of(
        (), "1", "shortest burst each second, as a share, that a run of 60 s detects with power 0.9"
    ),
    "clean_mde_searched": _of(
        (),
        "1",
        "share of the search for clean_mde that --budget had time for; below 1, clean_mde may be too long",
    ),
    "changed": _of(("block",), "1", "1 where the level of blocks changed", "|i1"),
}
"""Results of a stability."""

SUMMARY: dict[str, Described] = {**summary.SUMMARY, **ALONE, **STEADINESS}
