"""Texts from others, such as host names and commands, made harmless for plotly, HTML and scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from markupsafe import Markup

from sonde.core.printable import printable


def plain(text: str) -> str:
    """Text that plotly must not read as its HTML subset; host names and commands come from others."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "&#64;" + safe[1:] if safe.startswith("@") else safe  # "@" would begin a theme token


def shown(value: Any) -> Any:
    """A value in whose texts characters that reverse or hide text are replaced by a backslash and a number.

    On the page as on a terminal, the name of one host must not look like another's.
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {shown(key): shown(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [one if isinstance(one, (int, float)) else shown(one) for one in value]
    return value


def embed(value: Any) -> Markup:
    """JSON that is safe inside a script element, for any texts."""
    text = json.dumps(shown(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def options(text: str) -> Markup:
    """A sentence in which no option ("--budget 5min") and no number with its unit is broken over two lines."""
    text = printable(text)
    text = re.sub(r"(?<=\d) (?=(?:%|[nµm]?s\b|min\b|[KMG]?i?B\b))", "\u00a0", text)
    whole = Markup('<span class="nobreak">{}</span>')
    parts = re.split(r"(--[a-z][a-z-]*(?: [a-z]*:?\d[\w.:%]*)?)", text)
    return Markup("").join(whole.format(part) if k % 2 else part for k, part in enumerate(parts))


def script(text: str) -> tuple[Markup, str]:
    """A script and the Content-Security-Policy source that allows only this script."""
    safe = text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = base64.b64encode(hashlib.sha256(safe.encode("utf-8")).digest()).decode("ascii")
    return Markup(safe), f"'sha256-{digest}'"
