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
}

TEST_CASE("printable: JSON is valid UTF-8, whatever bytes a name holds") {
  CHECK(json_quote("caf\u00e9 \U0001f600") == "\"caf\u00e9 \U0001f600\"");
  CHECK(json_quote("n\xff") == R"("n\\xff")");
  CHECK(json_quote("\xe2\x80") == R"("\\xe2\\x80")");
  CHECK(json_quote("\x9b\xc3") == R"("\\x9b\\xc3")");
  CHECK(json_quote("\xc0\xaf") == R"("\\xc0\\xaf")");                               // overlong, of 2 bytes
  CHECK(json_quote("\xe0\x9f\xbf") == R"("\\xe0\\x9f\\xbf")");                      // overlong, of 3 bytes
  CHECK(json_quote("\xf0\x8f\xbf\xbf") == R"("\\xf0\\x8f\\xbf\\xbf")");             // overlong, of 4 bytes
  CHECK(json_quote("\xed\xa0\x80") == R"("\\xed\\xa0\\x80")");                      // a surrogate
  CHECK(json_quote("\xf4\x90\x80\x80") == R"("\\xf4\\x90\\x80\\x80")");             // above U+10FFFF
  CHECK(json_quote("\xed\x9f\xbf\xee\x80\x80") == "\"\xed\x9f\xbf\xee\x80\x80\"");  // next to the surrogates
  CHECK(json_quote("\xf4\x8f\xbf\xbf") == "\"\xf4\x8f\xbf\xbf\"");                  // U+10FFFF
  CHECK(JsonLine().add("n\xff", "\xfe").text() == R"({"n\\xff":"\\xfe"})");
}

TEST_CASE("printable: two names are two JSON strings") {
  CHECK(json_name("n\xff") == R"("n\\xff")");
  CHECK(json_name(R"(n\xff)") == R"("n\\x5cxff")");
  CHECK(json_name("\\\xff") == R"("\\\\xff")");
  CHECK(json_name(R"(\\xff)") == R"("\\\\x5cxff")");
  CHECK(json_name(R"(n\u202e)") == R"("n\\x5cu202e")");
  CHECK(json_name(R"(n\xFF\xf\n\u20\)") == R"("n\\xFF\\xf\\n\\u20\\")");
  CHECK(JsonLine().add_name("host", "\xff").text() == R"({"host":"\\xff"})");
}
