"""Arrays and repeated texts in the form in which the page embeds them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from sonde.report import prepare


def pack(values: Any, precise: bool = False) -> dict[str, Any]:
    """An array in the form for plotly.js, {"dtype", "bdata": base64, "shape"}, in the smallest suitable type.

    values: numeric array; whole numbers become integers, others f4, or f8 if `precise`. The page reads it back.
    """
    a = np.asarray(values)
    flat = a.ravel()
    if flat.dtype.kind == "b":
        flat = flat.astype(np.int8)
    if flat.dtype.kind == "f":
        whole = (
            flat.size
            and np.isfinite(flat).all()
            and (flat == np.trunc(flat)).all()
            and np.abs(flat).max() < 2**31
        )
        flat = flat.astype(np.int64) if whole else flat.astype("<f8" if precise else "<f4")
    if flat.dtype.kind in "iu":
        low, high = (int(flat.min()), int(flat.max())) if flat.size else (0, 0)
        for code, dtype in (
            ("i1", np.int8),
            ("u1", np.uint8),
            ("i2", np.int16),
            ("u2", np.uint16),
            ("i4", np.int32),
        ):
            info = np.iinfo(dtype)
            if info.min <= low and high <= info.max:
                flat = flat.astype("<" + code if code[1] != "1" else code)
                break
        else:
            flat = flat.astype("<f8")
    out: dict[str, Any] = {
        "dtype": flat.dtype.kind + str(flat.dtype.itemsize),
        "bdata": base64.b64encode(flat.tobytes()).decode("ascii"),
    }
    if a.ndim == 2:
        out["shape"] = f"{a.shape[0]}, {a.shape[1]}"
    return out


def pack_axis(values: np.ndarray) -> dict[str, Any]:
    """An array of positions: f4 if that preserves its steps, else f8."""
    a = np.asarray(values, float)
    finite = a[np.isfinite(a)]
    if finite.size > 1:
        gaps = np.abs(np.diff(finite))
        gaps = gaps[gaps > 0]
        fine = gaps.size == 0 or np.abs(finite).max() * 2**-24 < 0.02 * float(np.quantile(gaps, 0.05))
        return pack(a, precise=not fine)
    return pack(a)


def pack_texts(texts: Sequence[str]) -> dict[str, Any]:
    """Texts with repetitions: the different texts, and the index of each position."""
    different = list(dict.fromkeys(texts))
    index = {t: k for k, t in enumerate(different)}
    return {"words": different, "at": pack(np.array([index[t] for t in texts], dtype=np.int64))}


def pack_extra(extra: prepare.Extra) -> dict[str, Any]:
    """A further variable of cells or nodes, as the page shows it."""
    numeric = all(v.dtype.kind in "iufb" for v in extra.values)
    return {
        "label": extra.label,
        "unit": extra.unit,
        "words": list(extra.words),
        "frames": [pack(v) if numeric else pack_texts([str(t) for t in v.ravel()]) for v in extra.values],
    }
