"""The filter through which every text goes to a terminal: what others wrote cannot move its cursor, or lie with it.

A name of a file, program or host may hold any byte but NUL. Where a text has to be UTF-8 (datasets, JSON, pages), a
byte that is no text stands as its number, `\\xff`. Where a stream has less than Unicode (LC_ALL, PYTHONIOENCODING), a
character that it lacks is spelt (`u` for µ) or stands as its number, `\\u65e5`. Two names never become one text.
"""

from __future__ import annotations

import codecs
import os
import re
import shlex
from collections.abc import Iterable

# Controls of both sets (ISO 6429: ESC and CSI are among them) but for line break and tab; soft hyphens; what is drawn
# as nothing, or turns the order of what follows around (Unicode's format characters, "Trojan Source", CVE-2021-42574);
# line and paragraph separators; halves of characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


_HALF = re.compile("[\ud800-\udfff]")
_BYTE = re.compile("[\udc80-\udcff]")
_ANY = re.compile(".", re.DOTALL)
# A backslash that would be read as the begin of a number; the same where JSON has escaped it.
_LIKE_A_NUMBER = re.compile(rb"\\(?=x[0-9a-f]{2}|u[0-9a-f]{4})")
_JSON_ESCAPE = re.compile(rb"\\(?:(\\)(?=x[0-9a-f]{2}|u[0-9a-f]{4})|.)", re.DOTALL)

SPELT = "sonde.spelt"
"""Name of an error handler for streams, as `io.TextIOWrapper` takes it: nothing is replaced by a mark that fits all."""

_SPELLING = {
    **dict(zip("µ×÷–—−·›→✓✗─░█²³", "ux/---.>>+x-.#23")),
    **{"±": "+-", "≥": ">=", "≤": "<=", "…": "...", "∞": "inf"},
}


def printable(text: str) -> str:
    """The text with what a terminal would obey, or not show, as a backslash and its number: `\\x1b`, `\\u202e`; a byte
    that is no text as `\\xff`.
    """
    return _UNSAFE.sub(_number, _joined(text))


def one_line(text: str) -> str:
    """The same of a name that stands in a line of its own or in a table's cell: line breaks and tabs, too."""
    return printable(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: a half of a character, which stands for a byte that is no text, as its number."""
    return _HALF.sub(_number, _joined(text))


def encodable_within(value: object) -> object:
    """The same of all texts in lists and dicts of JSON."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable_within(key): encodable_within(item) for key, item in value.items()}
    return [encodable_within(item) for item in value] if isinstance(value, list | tuple) else value


def name_text(name: str | bytes) -> str:
    """A name as text that UTF-8 can hold: `\\xff` for a byte that is no text, and `\\x5c` for a backslash of the name's
    own that would read like the begin of such a number. Two names are two texts.
    """
    raw = name if isinstance(name, bytes) else os.fsencode(name)
    return _LIKE_A_NUMBER.sub(rb"\\x5c", raw).decode("utf-8", "backslashreplace")


def json_names(raw: bytes) -> str:
    """JSON of a program of Sonde's, in whose texts names are as bytes: the same with names as `name_text` has them."""
    raw = _JSON_ESCAPE.sub(lambda found: rb"\\x5c" if found[1] else found[0], raw)
    return _HALF.sub(lambda found: f"\\{_number(found)}", raw.decode("utf-8", "surrogateescape"))


def command_line(words: Iterable[object]) -> str:
    """A command to copy, in one line: words that a shell would take apart are quoted, and one with control characters
    or bytes that are no text as bash and zsh read it: `$'a\\nb\\xff'`.
    """
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    if "\n" not in word and "\t" not in word and not _UNSAFE.search(word):
        return shlex.quote(word)
    text = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"$'{_UNSAFE.sub(lambda found: _bytes_numbered(found[0]), text)}'"


def _bytes_numbered(char: str) -> str:
    raw = char.encode("utf-8", "surrogateescape" if _is_byte(char) else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw)


def printable_json(text: str) -> str:
    """The same of a text in JSON, whose own escapes are given: it stays the same value."""
    return _UNSAFE.sub(lambda found: _code_units(found[0]), text)


def _joined(text: str) -> str:
    """The same with bytes that are text after all as that: a locale without its characters takes a name apart."""
    if not _BYTE.search(text):
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # it holds other halves as well
        return text


def _is_byte(char: str) -> bool:
    """Whether it stands for a byte that is no text, as PEP 383 has it in names of files and arguments."""
    return "\udc80" <= char <= "\udcff"


def _number(found: re.Match[str]) -> str:
    """`\\x1b` of ASCII, `\\xff` of a byte that is no text, `\\u0085` of any other character."""
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
