#pragma once
/// The lexical rules of IDL, for its readers and writers: keywords, escapes. Any-thread.

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

/// OMG IDL 4.2, table 7-6, and annex A's integers of stated width: no name may be one of these, in upper or lower case,
/// unless escaped by '_'.
inline constexpr std::string_view keywords_of_types[] = {
    "any",    "bitfield", "bitmask",  "bitset", "boolean",  "case",   "char",   "const",  "default", "double",
    "enum",   "false",    "fixed",    "float",  "int16",    "int32",  "int64",  "int8",   "long",    "map",
    "module", "octet",    "sequence", "short",  "string",   "struct", "switch", "true",   "typedef", "uint16",
    "uint32", "uint64",   "uint8",    "union",  "unsigned", "void",   "wchar",  "wstring"};
/// Keywords of IDL besides those of types. Existing IDL files use them as names, which is harmless here; other tools
/// refuse them.
inline constexpr std::string_view other_keywords[] = {
    "abstract",    "alias",     "attribute", "component",  "connector", "consumes",  "context",    "custom",
    "emits",       "eventtype", "exception", "factory",    "finder",    "getraises", "getter",     "home",
    "import",      "in",        "inout",     "interface",  "local",     "manages",   "mirrorport", "multiple",
    "native",      "object",    "oneway",    "out",        "port",      "porttype",  "primarykey", "private",
    "provides",    "public",    "publishes", "raises",     "readonly",  "setraises", "setter",     "supports",
    "truncatable", "typeid",    "typename",  "typeprefix", "uses",      "valuebase", "valuetype"};

inline bool type_keyword(std::string_view word) {
  return std::find(std::begin(keywords_of_types), std::end(keywords_of_types), lower(word)) !=
         std::end(keywords_of_types);
}
inline bool keyword(std::string_view word) {
  return type_keyword(word) ||
         std::find(std::begin(other_keywords), std::end(other_keywords), lower(word)) != std::end(other_keywords);
}

/// A name with its escape in IDL, if it needs one.
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
