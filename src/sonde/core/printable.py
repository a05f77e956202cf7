"""The filter through which every text goes to a terminal: what others wrote cannot move its cursor, or lie with it."""

from __future__ import annotations

import re

# Controls of both sets (ISO 6429: ESC and CSI are among them) but for line break and tab; soft hyphens; what is drawn
# as nothing, or turns the order of what follows around (Unicode's format characters, "Trojan Source", CVE-2021-42574);
# line and paragraph separators; halves of characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with what a terminal would obey, or not show, as a backslash and its number: `\\x1b`, `\\u202e`."""
    return _UNSAFE.sub(lambda found: _numbered(found[0], "\\x"), text)


def one_line(text: str) -> str:
    """The same of a name that stands in a line of its own or in a table's cell: line breaks and tabs, too."""
    return printable(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: halves of characters, which stand for bytes that are no text, as U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def printable_json(text: str) -> str:
    """The same of a text in JSON, whose own escapes are given: it stays the same value."""
    return _UNSAFE.sub(lambda found: _numbered(found[0], "\\u00"), text)


def _numbered(char: str, short: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"{short}{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
