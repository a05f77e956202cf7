#include <doctest/doctest.h>

#include <string>

#include "core/json.hpp"
#include "core/printable.hpp"
#include "core/text.hpp"

using namespace sonde;

TEST_CASE("printable: what turns text around, is drawn as nothing, or moves the cursor is shown as its number") {
  CHECK(printable("caf\u00e9 \u4e2d\n\tend") == "caf\u00e9 \u4e2d\n\tend");
  CHECK(printable("\x1b[31m\x7f\r") == "\\x1b[31m\\x7f\\x0d");
  CHECK(printable("\u0085\u00ad") == "\\x85\\xad");
  for (const char* turned : {"\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069",
                             "\u200e", "\u200f", "\u061c", "\u200b", "\ufeff", "\u2028"}) {
    CHECK(printable(turned).starts_with("\\u"));
    CHECK(printable(turned).size() == 6);
    CHECK(shown(turned) == "'?'");
    CHECK(json_quote(turned) == '"' + printable(turned) + '"');
  }
  CHECK(printable("a\u202eb") == "a\\u202eb");
  CHECK(printable("\U000e0041") == "\\udb40\\udc41");
  CHECK(printable("\U0001f600") == "\U0001f600");
}

TEST_CASE("printable: bytes that are no character stay, unless they are a control of Latin-1") {
  CHECK(printable("\xe2\x80") == "\xe2\\x80");
  CHECK(printable("\xff\xc3") == "\xff\xc3");
  CHECK(printable("\x9b") == "\\x9b");
  CHECK(printable("") == "");
}

TEST_CASE("printable: a JSON text is the same value, whatever its characters are") {
  CHECK(json_quote("a\"\\\n\u00e9") == "\"a\\\"\\\\\\u000a\u00e9\"");
  CHECK(json_quote("\u202e\x7f") == "\"\\u202e\\u007f\"");
  CHECK(json_quote("\xe2\x80") == "\"\xe2\x80\"");
}
