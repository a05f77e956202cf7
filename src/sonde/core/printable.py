"""The filter for every text that goes to a terminal: text of others cannot move the cursor, or deceive the reader.

A name of a file, program or host may hold any byte but NUL. In texts that must be UTF-8 (datasets, JSON, pages), a byte
that is no text becomes its number, `\\xff`. If a stream cannot hold all of Unicode (LC_ALL, PYTHONIOENCODING), a
missing character is spelt (`u` for µ) or becomes its number, `\\u65e5`. Two names never become one text.
"""

from __future__ import annotations

import codecs
import os
import re
import shlex
from collections.abc import Iterable

# Controls of both sets (ISO 6429: ESC and CSI are among them) except line break and tab; soft hyphens; characters that
# are invisible or reverse the order of the following text (Unicode's format characters, "Trojan Source",
# CVE-2021-42574); line and paragraph separators; surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


_HALF = re.compile("[\ud800-\udfff]")
_BYTE = re.compile("[\udc80-\udcff]")
_ANY = re.compile(".", re.DOTALL)
# A backslash that would be read as the beginning of a number.
_LIKE_A_NUMBER = re.compile(rb"\\(?=x[0-9a-f]{2}|u[0-9a-f]{4})")

SPELT = "sonde.spelt"
"""Name of an error handler for streams, for `io.TextIOWrapper`: it does not replace all characters with one mark."""

_SPELLING = {
    **dict(zip("µ×÷–—−·›→✓✗─░█²³", "ux/---.>>+x-.#23")),
    **{"±": "+-", "≥": ">=", "≤": "<=", "…": "...", "∞": "inf"},
}


def printable(text: str) -> str:
    """The text in which characters that a terminal would obey, or not show, are replaced by a backslash and their
    number: `\\x1b`, `\\u202e`; a byte that is no text by `\\xff`.
    """
    return _UNSAFE.sub(_number, _joined(text))


def one_line(text: str) -> str:
    """The same for a name that has its own line or table cell: line breaks and tabs are replaced too."""
    return printable(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def encodable(text: str) -> str:
    """The text in a form that UTF-8 can hold: a surrogate, which stands for a byte that is no text, becomes its
    number.
    """
    return _HALF.sub(_number, _joined(text))


def encodable_within(value: object) -> object:
    """The same for all texts in lists and dicts of JSON."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable_within(key): encodable_within(item) for key, item in value.items()}
    return [encodable_within(item) for item in value] if isinstance(value, list | tuple) else value


def name_text(name: str | bytes) -> str:
    """A name as text that UTF-8 can hold: `\\xff` for a byte that is no text, and `\\x5c` for a backslash in the name
    itself that would look like the beginning of such a number. Two names give two texts.
    """
    raw = name if isinstance(name, bytes) else os.fsencode(name)
    return _LIKE_A_NUMBER.sub(rb"\\x5c", raw).decode("utf-8", "backslashreplace")


def command_line(arguments: Iterable[object]) -> str:
    """A command to copy, in one line, with shell quoting. An argument with control characters or bytes that are no text
    is written in the form that bash and zsh read: `$'a\\nb\\xff'`.
    """
    return " ".join(_quoted(str(argument)) for argument in arguments)


def _quoted(argument: str) -> str:
    if "\n" not in argument and "\t" not in argument and not _UNSAFE.search(argument):
        return shlex.quote(argument)
    text = argument.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"$'{_UNSAFE.sub(lambda found: _bytes_numbered(found[0]), text)}'"


def _bytes_numbered(char: str) -> str:
    raw = char.encode("utf-8", "surrogateescape" if _is_byte(char) else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw)


def printable_json(text: str) -> str:
    """The same for a text in JSON, which already has JSON's escapes: its value stays the same."""
    return _UNSAFE.sub(lambda found: _code_units(found[0]), text)


def _joined(text: str) -> str:
    """The text in which bytes that form valid characters are joined: a locale without them splits a name."""
    if not _BYTE.search(text):
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # it also holds other surrogates
        return text


def _is_byte(char: str) -> bool:
    """Whether a character stands for a byte that is no text, by PEP 383, as in names of files and arguments."""
    return "\udc80" <= char <= "\udcff"


def _number(found: re.Match[str]) -> str:
    """`\\x1b` for ASCII, `\\xff` for a byte that is no text, `\\u0085` for any other character."""
    code = ord(found[0])
    if code < 0x80 or _is_byte(found[0]):
        return f"\\x{code & 0xFF:02x}"
    return _code_units(found[0])


def _code_units(char: str) -> str:
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_SPELLING.get(char) or _ANY.sub(_number, char) for char in lacking), error.end


codecs.register_error(SPELT, _spelt)
