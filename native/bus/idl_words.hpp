#pragma once
/// The letters of IDL, for those who read and write it: keywords, escapes. Any-thread.

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace sonde::bus::idl {

inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// OMG IDL 4.2, table 7-6: no name may be one of these, in whatever capitals, unless escaped by '_'.
inline constexpr std::string_view keywords[] = {
    "abstract", "any", "alias", "attribute", "bitfield", "bitmask", "bitset", "boolean", "case", "char", "component", "connector", "const",
    "consumes", "context", "custom", "default", "double", "emits", "enum", "eventtype", "exception", "factory", "false", "finder", "fixed",
    "float", "getraises", "getter", "home", "import", "in", "inout", "interface", "local", "long", "manages", "map", "mirrorport", "module",
    "multiple", "native", "object", "octet", "oneway", "out", "port", "porttype", "primarykey", "private", "provides", "public", "publishes",
    "raises", "readonly", "sequence", "setraises", "setter", "short", "string", "struct", "supports", "switch", "true", "truncatable", "typedef",
    "typeid", "typename", "typeprefix", "union", "unsigned", "uses", "valuebase", "valuetype", "void", "wchar", "wstring", "int8", "uint8",
    "int16", "uint16", "int32", "uint32", "int64", "uint64"};

inline bool keyword(std::string_view word) {
  const std::string small = lower(word);
  return std::find(std::begin(keywords), std::end(keywords), small) != std::end(keywords);
}

/// A name as IDL may spell it.
inline std::string escaped(std::string_view name) { return std::string(keyword(name) ? 1 : 0, '_').append(name); }

inline std::string escape_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

inline std::string indented(std::string_view text, std::size_t blanks) {
  std::string out;
  for (bool begins = true; const char c : text) {
    if (begins && c != '\n') out.append(blanks, ' ');
    out += c;
    begins = c == '\n';
  }
  return out;
}

}  // namespace sonde::bus::idl
