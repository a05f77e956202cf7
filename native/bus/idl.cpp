// Long because: one recursive-descent parser of one grammar; its rules call each other.
#include "bus/idl.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "bus/idl_words.hpp"
#include "core/nearest.hpp"

namespace sonde::bus {

namespace {

constexpr int most_parentheses = 32;

/// Thrown and caught only in this file.
struct Wrong {
  Error error;
};

struct Place {
  int file = 0, line = 1;
};

enum class Sort : std::uint8_t { end, name, integer, real, text, character, punctuation, keylist };
struct Token {
  Sort sort = Sort::end;
  std::string text;  ///< names without the escaping '_'; texts without quotes and escapes
  Place place;
  bool escaped = false;  ///< a name that may be a keyword
  std::uint64_t number = 0;
  bool glued =
      false;  ///< punctuation that directly follows the same character: '>' '>' can be a shift or two ends of sequences
};

std::string shown(const Token& token) {
  switch (token.sort) {
    case Sort::end: return "the end of the file";
    case Sort::text: return '"' + token.text + '"';
    case Sort::keylist: return "#pragma keylist";
    default: return std::string(1, '\'').append(token.text) + '\'';
  }
}

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

/// Files, and all their tokens in one sequence; tokens of an included file are where it is included.
class Text {
 public:
  /// `file`: its name in errors. Without `folder` nothing can be included.
  void read(std::string_view text, std::string_view file, const std::optional<std::filesystem::path>& folder) {
    if (files_.size() >= limit::idl_files)
      wrong({static_cast<int>(files_.size()) - 1, 1},
            "more than " + std::to_string(limit::idl_files) + " files are included", "");
    files_.emplace_back(file);
    const int number = static_cast<int>(files_.size()) - 1;
    bytes_ += text.size();
    if (bytes_ > limit::idl_bytes)
      wrong({number, 1}, "there are more than " + std::to_string(limit::idl_bytes >> 20) + " MiB of IDL", "");
    Scan scan{text, 0, {number, 1}, folder};
    std::vector<Condition> conditions;
    for (;;) {
      const bool begins_line = blanks(scan);
      if (scan.at >= text.size()) break;
      if (text[scan.at] == '#') {
        if (!begins_line)
          wrong(scan.place, "'#' is not at the beginning of the line", "begin the line with the directive");
        directive(scan, conditions);
      } else if (std::any_of(conditions.begin(), conditions.end(), [](const Condition& c) { return !c.taken; })) {
        skip_line(scan);
      } else {
        tokens_.push_back(token(scan));
      }
    }
    if (!conditions.empty()) wrong(conditions.back().place, "#ifndef or #ifdef without #endif", "");
  }

  void load(const std::filesystem::path& path, const std::string& shown_as, const std::optional<Place>& from) {
    std::error_code failed;
    const auto real = std::filesystem::canonical(path, failed);
    if (!failed && std::filesystem::is_directory(real, failed))
      failed = std::make_error_code(std::errc::is_a_directory);
    std::ifstream in;
    if (!failed) {
      if (!loaded_.insert(real).second) return;
      in.open(real, std::ios::binary);
    }
    if (failed || !in) {
      const std::string what = "the IDL file " + shown_as + " cannot be read" + (failed ? ": " + failed.message() : "");
      throw Wrong{{"bus.no_file", (from ? at(*from) : "") + what,
                   from ? "an included file must be in the folder of the file that includes it: " + path.string()
                        : "give the path of an IDL file"}};
    }
    std::string text(limit::idl_bytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    text.shrink_to_fit();  // it stays in memory while included files are read
    read(text, shown_as, real.parent_path());
  }

  [[noreturn]] void wrong(Place place, std::string what, std::string hint) const {
    throw Wrong{{"bus.bad_idl", at(place) + what, std::move(hint)}};
  }
  std::string at(Place place) const {
    const std::string& file = files_[static_cast<std::size_t>(place.file)];
    return (file.empty() ? "line " : file + ":") + std::to_string(place.line) + ": ";
  }

  std::vector<Token> take() {
    Token end;
    end.place = tokens_.empty() ? Place{} : tokens_.back().place;
    tokens_.push_back(end);
    return std::move(tokens_);
  }

 private:
  struct Scan {
    std::string_view text;
    std::size_t at;
    Place place;
    const std::optional<std::filesystem::path>& folder;

    char next(std::size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }
  };
  struct Condition {
    bool taken;
    Place place;
  };

  /// Whether a line begins after them.
  bool blanks(Scan& scan) {
    bool begins = scan.at == 0;
    while (scan.at < scan.text.size()) {
      const char c = scan.next();
      if (c == '\n') {
        ++scan.place.line;
        begins = true;
        ++scan.at;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
        ++scan.at;
      } else if (c == '/' && scan.next(1) == '/') {
        skip_line(scan);
      } else if (c == '/' && scan.next(1) == '*') {
        const Place begin = scan.place;
        const std::size_t end = scan.text.find("*/", scan.at + 2);
        if (end == std::string_view::npos) wrong(begin, "the comment that begins here does not end", "end it with */");
        scan.place.line += static_cast<int>(std::count(scan.text.begin() + static_cast<std::ptrdiff_t>(scan.at),
                                                       scan.text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
        scan.at = end + 2;
      } else if (scan.at == 0 && scan.text.starts_with("\xef\xbb\xbf")) {
        scan.at = 3;
      } else {
        break;
      }
    }
    return begins;
  }

  void skip_line(Scan& scan) { scan.at = std::min(scan.text.find('\n', scan.at), scan.text.size()); }

  void directive(Scan& scan, std::vector<Condition>& conditions) {
    const Place place = scan.place;
    const std::size_t begin = scan.at + 1;
    skip_line(scan);
    std::string_view rest = scan.text.substr(begin, scan.at - begin);
    rest = rest.substr(0, rest.find("//"));
    std::vector<std::string> words;
    std::istringstream in{std::string(rest)};
    for (std::string word; in >> word;) words.push_back(word);
    const std::string what = words.empty() ? "" : words[0];
    static constexpr const char* allowed =
        "allowed are #include \"file\", #ifndef, #ifdef, #define NAME, #else, #endif, #pragma once, #pragma keylist";
    const auto need = [&](std::size_t n) {
      if (words.size() != n)
        wrong(place,
              "#" + what + " has " + std::to_string(words.size() - 1) + " words after it, not " + std::to_string(n - 1),
              allowed);
    };
    const bool skipping =
        std::any_of(conditions.begin(), conditions.end(), [](const Condition& c) { return !c.taken; });
    if (what == "ifndef" || what == "ifdef") {
      need(2);
      if (conditions.size() >= limit::depth)
        wrong(place, "#" + what + " within " + std::to_string(limit::depth) + " others", "");
      conditions.push_back({defined_.contains(words[1]) == (what == "ifdef"), place});
    } else if (what == "else" || what == "endif") {
      if (conditions.empty()) wrong(place, "#" + what + " without #ifndef or #ifdef", "");
      if (what == "else") conditions.back().taken = !conditions.back().taken;
      else conditions.pop_back();
    } else if (skipping) {
      return;
    } else if (what == "define") {
      if (words.size() > 2)
        wrong(place, "#define with a value: macros are not supported", "write const long NAME = value;");
      need(2);
      defined_.insert(words[1]);
    } else if (what == "include") {
      const std::size_t open = rest.find('"'), close = rest.rfind('"');
      if (open == std::string_view::npos || close <= open + 1)
        wrong(place, "#include without a file in quotes", allowed);
      const std::string name(rest.substr(open + 1, close - open - 1));
      if (!scan.folder)
        wrong(place, "#include \"" + name + "\": this IDL text is not a file, so it has no folder",
              "write it to a file, or put all declarations here");
      load(*scan.folder / name, name, place);
    } else if (what == "pragma" && words.size() == 2 && words[1] == "once") {
      return;
    } else if (what == "pragma" && words.size() >= 3 && words[1] == "keylist") {
      Token token;
      token.sort = Sort::keylist;
      token.place = place;
      for (std::size_t k = 2; k < words.size(); ++k) token.text += (k > 2 ? " " : "") + words[k];
      tokens_.push_back(std::move(token));
    } else {
      wrong(place, "#" + (words.size() > 1 && what == "pragma" ? what + " " + words[1] : what) + " is not known",
            allowed);
    }
  }

  Token token(Scan& scan) {
    Token token;
    token.place = scan.place;
    const char c = scan.next();
    if (begins_name(c)) {
      token.sort = Sort::name;
      token.escaped = c == '_';
      if (token.escaped) ++scan.at;
      while (in_name(scan.next())) token.text += scan.text[scan.at++];
      if (token.text.empty() || token.text[0] == '_' || (token.text[0] >= '0' && token.text[0] <= '9'))
        wrong(token.place, "'_" + token.text + "' is not a name",
              "names begin with a letter; a leading '_' escapes a keyword");
      if (token.text.size() > limit::name_bytes)
        wrong(token.place, "a name has " + std::to_string(token.text.size()) + " letters",
              std::to_string(limit::name_bytes) + " are allowed");
    } else if ((c >= '0' && c <= '9') || (c == '.' && scan.next(1) >= '0' && scan.next(1) <= '9')) {
      literal(scan, token);
    } else if (c == '"' || c == '\'') {
      quoted(scan, token);
    } else if (c == ':' && scan.next(1) == ':') {
      token.sort = Sort::punctuation;
      token.text = "::";
      scan.at += 2;
    } else if (std::string_view("{}()[]<>,;:=@+-*/%&|^~").find(c) != std::string_view::npos) {
      token.sort = Sort::punctuation;
      token.text = c;
      token.glued = scan.at > 0 && scan.text[scan.at - 1] == c;
      ++scan.at;
    } else {
      char code[8];
      std::snprintf(code, sizeof code, "0x%02x", static_cast<unsigned char>(c));
      wrong(scan.place,
            std::string("the byte ") + (c > 0x20 && c < 0x7f ? std::string(1, '\'') + c + "'" : code) +
                " has no meaning in IDL",
            "characters beyond ASCII are allowed only in comments and strings");
    }
    return token;
  }

  void literal(Scan& scan, Token& token) {
    // A sign is part of a number only after an exponent.
    while (in_name(scan.next()) || scan.next() == '.' ||
           ((scan.next() == '+' || scan.next() == '-') && !token.text.empty() &&
            (token.text.back() == 'e' || token.text.back() == 'E') && !token.text.starts_with("0x")))
      token.text += scan.text[scan.at++];
    const std::string_view text = token.text;
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    const int base = hex ? 16 : text.size() > 1 && text[0] == '0' ? 8 : 10;
    const char *begin = text.data() + (hex ? 2 : 0), *end = text.data() + text.size();
    const auto [last, failed] = std::from_chars(begin, end, token.number, base);
    if (failed == std::errc{} && last == end) {
      token.sort = Sort::integer;
      return;
    }
    double real;
    const char* tail =
        text.ends_with('f') || text.ends_with('F') || text.ends_with('d') || text.ends_with('D') ? end - 1 : end;
    const auto [stop, bad] = std::from_chars(begin, tail, real);
    const bool looks_real = !hex && text.find_first_of(".eE") != std::string_view::npos;
    if (!looks_real || bad != std::errc{} || stop != tail)
      wrong(token.place,
            "'" + token.text + "' is not a number" + (failed == std::errc::result_out_of_range ? " of 64 bits" : ""),
            "write integers like 12, 0x1f or 017, and others like 1.5 or 1e-3");
    token.sort = Sort::real;
  }

  void quoted(Scan& scan, Token& token) {
    const char quote = scan.text[scan.at++];
    token.sort = quote == '"' ? Sort::text : Sort::character;
    for (;;) {
      const char c = scan.next();
      if (scan.at >= scan.text.size() || c == '\n')
        wrong(token.place, "the text that begins here does not end on its line", std::string("end it with ") + quote);
      ++scan.at;
      if (c == quote) break;
      if (c != '\\') {
        token.text += c;
        continue;
      }
      static constexpr std::string_view letters = "ntvbrfa\\?'\"", means = "\n\t\v\b\r\f\a\\?'\"";
      const std::size_t which = letters.find(scan.next());
      if (scan.next() == '\0' || which == std::string_view::npos)
        wrong(scan.place, std::string("the escape \\") + scan.next() + " is not supported",
              "allowed: \\n \\t \\v \\b \\r \\f \\a \\\\ \\? \\' \\\"");
      token.text += means[which];
      ++scan.at;
    }
    if (quote == '\'' && token.text.size() != 1)
      wrong(token.place, "'" + token.text + "' is not a single character", "write texts in double quotes");
  }

  std::vector<std::string> files_;
  std::vector<Token> tokens_;
  std::set<std::filesystem::path> loaded_;
  std::set<std::string> defined_;
  std::size_t bytes_ = 0;
};

class Parser {
 public:
  explicit Parser(Text& text) : text_(text), tokens_(text.take()) {}

  std::map<std::string, TypePtr> run() {
    while (peek().sort != Sort::end) {
      if (is("}")) wrong("'}' without a matching '{'", "");
      definition();
    }
    std::map<std::string, TypePtr> out;
    for (auto& [lower, symbol] : symbols_) {
      if (symbol.what == What::announced)
        text_.wrong(symbol.place, "struct " + symbol.spelled + " is declared forward but never defined",
                    "define it, or remove the line");
      if (symbol.what == What::type) out.emplace(symbol.spelled, symbol.type);
    }
    return out;
  }

 private:
  enum class What : std::uint8_t { module, type, announced, alias, constant, enumerator };
  struct Symbol {
    What what = What::module;
    std::string spelled;
    Place place;
    TypePtr type;                       ///< type, alias
    std::shared_ptr<Type> structure;    ///< the same, if a keylist may still change it
    std::optional<std::int64_t> value;  ///< constant (none: not an integer), enumerator
  };
  struct Annotation {
    std::string name;
    std::vector<Token> given;
    Place place;
  };

  // --- tokens

  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(std::string_view sign) const { return peek().sort == Sort::punctuation && peek().text == sign; }
  bool is_word(std::string_view word) const {
    return peek().sort == Sort::name && !peek().escaped && peek().text == word;
  }
  bool took(std::string_view sign) {
    if (!is(sign)) return false;
    take();
    return true;
  }
  bool took_word(std::string_view word) {
    if (!is_word(word)) return false;
    take();
    return true;
  }
  void expect(std::string_view sign, std::string_view where) {
    if (!took(sign))
      wrong("expected '" + std::string(sign) + "' " + std::string(where) + ", found " + shown(peek()), "");
  }
  [[noreturn]] void wrong(std::string what, std::string hint) const {
    text_.wrong(peek().place, std::move(what), std::move(hint));
  }

  std::string name(std::string_view of_what) {
    const Token& token = peek();
    if (token.sort != Sort::name)
      wrong("expected the name of " + std::string(of_what) + ", found " + shown(token),
            "names have letters, digits and '_', and begin with a letter");
    if (!token.escaped && idl::type_keyword(token.text))
      wrong("the name of " + std::string(of_what) + " is " + shown(token) + ", a keyword of IDL (upper or lower case)",
            "write _" + token.text + " to use it as a name");
    return take().text;
  }

  // --- names

  std::string scoped(const std::string& own) const {
    std::string out;
    for (const std::string& module : scope_) out += module + "::";
    out += own;
    if (out.size() > limit::name_bytes)
      wrong("the name " + out.substr(0, 32) + "… has " + std::to_string(out.size()) + " letters",
            std::to_string(limit::name_bytes) + " are allowed");
    return out;
  }

  static std::string_view called(What what) {
    static constexpr std::string_view names[] = {"a module",  "a type",     "a structure",
                                                 "a typedef", "a constant", "an enumerator"};
    return names[static_cast<int>(what)];
  }

  void declare(const std::string& own, Symbol symbol, Place place) {
    symbol.spelled = scoped(own);
    symbol.place = place;
    const auto [at, first] = symbols_.emplace(idl::lower(symbol.spelled), symbol);
    if (first) return;
    Symbol& other = at->second;
    if (other.spelled == symbol.spelled) {
      if (other.what == symbol.what && (symbol.what == What::module || symbol.what == What::announced)) return;
      if (other.what == What::announced && symbol.structure) {
        other = std::move(symbol);
        return;
      }
    }
    std::string said = text_.at(other.place);
    said.resize(said.size() - 2);
    text_.wrong(place,
                "'" + symbol.spelled + "' is already declared as " + std::string(called(other.what)) +
                    (other.spelled == symbol.spelled ? "" : " spelled '" + other.spelled + "'") + ", at " + said,
                "IDL ignores upper and lower case, and enumerators have the scope of their enumeration");
  }

  /// "a::b" or "::a::b", not looked up.
  std::string scoped_name(std::string_view of_what) {
    std::string out = took("::") ? "::" : "";
    out += name(of_what);
    while (is("::")) {
      take();
      out += "::" + name(of_what);
      if (out.size() > limit::name_bytes + 2)
        wrong("the name " + out.substr(0, 32) + "… has more than " + std::to_string(limit::name_bytes) + " letters",
              "");
    }
    return out;
  }

  Symbol& find(const std::string& name, Place place) {
    const bool from_top = name.starts_with("::");
    for (std::size_t levels = from_top ? 0 : scope_.size();; --levels) {
      std::string full;
      for (std::size_t k = 0; k < levels; ++k) full += scope_[k] + "::";
      full += from_top ? name.substr(2) : name;
      if (const auto at = symbols_.find(idl::lower(full)); at != symbols_.end()) {
        if (at->second.spelled != full)
          text_.wrong(place, "'" + full + "' is spelled '" + at->second.spelled + "' in its declaration", "");
        return at->second;
      }
      if (levels == 0) break;
    }
    std::vector<std::string> known;
    for (const auto& [lower, symbol] : symbols_)
      if (symbol.what != What::module && known.size() < 1000) {
        known.push_back(symbol.spelled);
        if (const auto cut = symbol.spelled.rfind("::");
            cut != std::string::npos && name.find("::") == std::string::npos)
          known.push_back(symbol.spelled.substr(cut + 2));
      }
    text_.wrong(place, "'" + name + "' is not declared here" + nearest(name, known),
                "declare it above, or include the file that declares it");
  }

  // --- annotations

  std::vector<Annotation> annotations() {
    std::vector<Annotation> out;
    while (is("@")) {
      Annotation a;
      a.place = take().place;
      if (peek().sort != Sort::name) wrong("expected an annotation's name after '@', found " + shown(peek()), "");
      if (is_word("annotation")) wrong("declarations of annotations are not supported", "");
      a.name = take().text;
      if (took("(")) {
        for (int open = 1;;) {
          if (peek().sort == Sort::end) text_.wrong(a.place, "the parentheses of @" + a.name + " are not closed", "");
          if (is("(")) ++open;
          if (is(")") && --open == 0) break;
          a.given.push_back(take());
        }
        take();
        // "value = x" is the long form of "x".
        if (a.given.size() > 2 && a.given[0].text == "value" && a.given[1].text == "=")
          a.given.erase(a.given.begin(), a.given.begin() + 2);
      }
      out.push_back(std::move(a));
    }
    return out;
  }

  [[noreturn]] void refuse(const Annotation& a, std::string_view before,
                           const std::vector<std::string>& allowed) const {
    std::string list;
    for (const std::string& one : allowed) list += (list.empty() ? "@" : ", @") + one;
    const std::string hint =
        allowed.empty() ? "no annotation is allowed here" : "allowed before " + std::string(before) + ": " + list;
    if (a.name == "mutable" || a.name == "appendable" || a.name == "extensibility")
      text_.wrong(a.place, "@" + a.name + " is not supported: structures are final", hint);
    if (a.name == "optional") text_.wrong(a.place, "@optional is not supported: every sample has every field", hint);
    text_.wrong(a.place, "@" + a.name + " is not known before " + std::string(before) + nearest(a.name, allowed), hint);
  }
  void none(const std::vector<Annotation>& given, std::string_view before) const {
    if (!given.empty()) refuse(given[0], before, {});
  }
  void plain(const Annotation& a) const {
    if (!a.given.empty()) text_.wrong(a.place, "@" + a.name + " has no parameters", "");
  }

  // --- definitions

  void definition() {
    if (peek().sort == Sort::keylist) return keylist();
    const auto given = annotations();
    const Token& token = peek();
    if (took_word("module")) {
      none(given, "modules");
      return module();
    }
    if (took_word("struct")) structure(given);
    else if (took_word("enum")) enumeration(given);
    else if (took_word("typedef")) {
      none(given, "typedefs");
      alias();
    } else if (took_word("const")) {
      none(given, "constants");
      constant();
    } else {
      static const std::set<std::string> others{"union",     "bitset",    "bitmask",  "interface", "valuetype",
                                                "exception", "native",    "abstract", "local",     "component",
                                                "porttype",  "eventtype", "import",   "typeid"};
      const bool known = token.sort == Sort::name && others.contains(token.text);
      wrong("expected a declaration, found " + shown(token) + (known ? ", which is not supported" : ""),
            "module, struct, enum, typedef and const are allowed");
    }
    expect(";", "after the declaration");
  }

  void module() {
    const Place place = peek().place;
    const std::string own = name("a module");
    declare(own, {}, place);
    scope_.push_back(own);
    expect("{", "after the module's name");
    while (!took("}")) {
      if (peek().sort == Sort::end) text_.wrong(place, "module '" + own + "' is not closed", "close it with };");
      definition();
    }
    scope_.pop_back();
    expect(";", "after the module");
  }

  void structure(const std::vector<Annotation>& given) {
    for (const Annotation& a : given) {
      if (a.name == "extensibility" && a.given.size() == 1 && a.given[0].text == "FINAL") continue;
      if (a.name != "final" && a.name != "topic" && a.name != "nested")
        refuse(a, "structures", {"final", "topic", "nested"});
      plain(a);
    }
    const Place place = peek().place;
    const std::string own = name("a structure");
    Symbol announced;
    announced.what = What::announced;
    declare(own, announced, place);
    if (is(";")) return;
    auto type = std::make_shared<Type>();
    type->name = scoped(own);
    if (took(":")) {
      const Place at = peek().place;
      const std::string base = scoped_name("the structure that this one extends");
      const Symbol& symbol = find(base, at);
      if (symbol.what != What::type || symbol.type->kind != Kind::structure)
        text_.wrong(
            at, "'" + base + "' is " + std::string(called(symbol.what)) + ", not a structure that is declared above",
            "");
      type->fields = symbol.type->fields;
    }
    expect("{", "after the name of structure '" + own + "'");
    while (!took("}")) {
      if (peek().sort == Sort::end) text_.wrong(place, "structure '" + own + "' is not closed", "close it with };");
      member(*type);
    }
    check_structure(*type, place);
    Symbol symbol;
    symbol.what = What::type;
    symbol.type = type;
    symbol.structure = type;
    declare(own, std::move(symbol), place);
  }

  void check_structure(const Type& type, Place place) const {
    if (auto fine = check(type); !fine) text_.wrong(place, fine.error().what, fine.error().hint);
  }

  void member(Type& type) {
    Field field;
    if (peek().sort == Sort::keylist) wrong("#pragma keylist is inside a structure", "write it after the structure");
    for (const Annotation& a : annotations()) {
      if (a.name == "key") {
        if (a.given.size() > 1 || (a.given.size() == 1 && a.given[0].text != "TRUE" && a.given[0].text != "FALSE"))
          text_.wrong(a.place, "@key has the parameter TRUE, FALSE or none", "");
        field.key = a.given.empty() || a.given[0].text == "TRUE";
      } else if (a.name == "unit") {
        if (a.given.size() != 1 || a.given[0].sort != Sort::text)
          text_.wrong(a.place, "@unit needs one text in double quotes", "write it like @unit(\"W\")");
        field.unit = a.given[0].text;
      } else {
        refuse(a, "fields", {"key", "unit"});
      }
    }
    const TypePtr spelled = type_spec(0);
    do {
      if (type.fields.size() >= limit::fields)
        wrong("structure '" + type.name + "' has more than " + std::to_string(limit::fields) + " fields", "");
      field.name = name("a field");
      field.type = dimensions(spelled);
      if (is("=")) wrong("default values of fields are not supported", "");
      type.fields.push_back(field);
    } while (took(","));
    expect(";", "after the field '" + type.fields.back().name + "'");
  }

  void enumeration(const std::vector<Annotation>& given) {
    for (const Annotation& a : given) refuse(a, "enumerations", {});
    const Place place = peek().place;
    const std::string own = name("an enumeration");
    auto type = std::make_shared<Type>();
    type->kind = Kind::enumeration;
    type->name = scoped(own);
    expect("{", "after the name of enumeration '" + own + "'");
    std::int64_t next = 0;
    std::set<std::int64_t> values;
    do {
      for (const Annotation& a : annotations()) {
        if (a.name != "value") refuse(a, "enumerators", {"value"});
        next = nested_expression(a);
      }
      Symbol symbol;
      symbol.what = What::enumerator;
      const Place at = peek().place;
      const std::string called = name("an enumerator");
      if (is("=")) wrong("'" + called + " = …' is not IDL", "write @value(…) " + called);
      if (next < INT32_MIN || next > INT32_MAX)
        text_.wrong(at, "the enumerator '" + called + "' has the value " + std::to_string(next), "32 bits are allowed");
      if (!values.insert(next).second)
        text_.wrong(at,
                    "the enumerator '" + called + "' has the value " + std::to_string(next) +
                        ", which another enumerator also has",
                    "");
      if (values.size() > limit::fields)
        text_.wrong(at, "enumeration '" + own + "' has more than " + std::to_string(limit::fields) + " enumerators",
                    "");
      symbol.value = next;
      declare(called, std::move(symbol), at);
      type->enumerators.push_back({called, static_cast<std::int32_t>(next++)});
    } while (took(","));
    expect("}", "after the enumerators of '" + own + "'");
    Symbol symbol;
    symbol.what = What::type;
    symbol.type = type;
    declare(own, std::move(symbol), place);
  }

  /// An integer in an annotation, whose tokens were stored.
  std::int64_t nested_expression(const Annotation& a) {
    std::vector<Token> all = a.given;
    Token end;
    end.place = a.place;
    all.push_back(end);
    std::swap(all, tokens_);
    const std::size_t before = std::exchange(at_, 0);
    const std::int64_t value = integer("the value in @" + a.name);
    if (peek().sort != Sort::end) wrong("expected ')' after the value in @" + a.name + ", found " + shown(peek()), "");
    at_ = before;
    std::swap(all, tokens_);
    return value;
  }

  void alias() {
    const TypePtr spelled = type_spec(0);
    do {
      Symbol symbol;
      symbol.what = What::alias;
      const Place place = peek().place;
      const std::string own = name("a typedef");
      const TypePtr type = symbol.type = dimensions(spelled);
      declare(own, std::move(symbol), place);
      // A chain of typedefs could also nest without limit.
      check_structure(*bus::structure(scoped(own), {{"element", type, false, ""}}), place);
    } while (took(","));
  }

  void constant() {
    const Place begin = peek().place;
    const TypePtr type = type_spec(0);
    Symbol symbol;
    symbol.what = What::constant;
    const Place place = peek().place;
    const std::string own = name("a constant");
    expect("=", "after the constant's name");
    switch (type->kind) {
      case Kind::octet:
      case Kind::uint8: symbol.value = whole(own, 0, 255); break;
      case Kind::int8: symbol.value = whole(own, -128, 127); break;
      case Kind::int16: symbol.value = whole(own, -32768, 32767); break;
      case Kind::uint16: symbol.value = whole(own, 0, 65535); break;
      case Kind::int32: symbol.value = whole(own, INT32_MIN, INT32_MAX); break;
      case Kind::uint32: symbol.value = whole(own, 0, UINT32_MAX); break;
      case Kind::int64: symbol.value = whole(own, INT64_MIN, INT64_MAX); break;
      case Kind::uint64: symbol.value = whole(own, 0, INT64_MAX); break;
      case Kind::float32:
      case Kind::float64:
        if (!took("-")) took("+");
        literal({Sort::real, Sort::integer}, "a number");
        break;
      case Kind::string: literal({Sort::text}, "a text in double quotes"); break;
      case Kind::char8: literal({Sort::character}, "a character in single quotes"); break;
      case Kind::boolean:
        if (!took_word("TRUE") && !took_word("FALSE")) wrong("expected TRUE or FALSE, found " + shown(peek()), "");
        break;
      default:
        text_.wrong(begin, "a constant of kind " + std::string(name_of(type->kind)),
                    "constants must be integers, floats, booleans, characters or texts");
    }
    declare(own, std::move(symbol), place);
  }

  void literal(std::initializer_list<Sort> sorts, std::string_view what) {
    if (std::find(sorts.begin(), sorts.end(), peek().sort) == sorts.end())
      wrong("expected " + std::string(what) + ", found " + shown(peek()), "only integers can be computed");
    take();
  }

  std::int64_t whole(const std::string& own, std::int64_t least, std::int64_t most) {
    const std::int64_t value = integer("the constant '" + own + "'");
    if (value < least || value > most)
      wrong("the constant '" + own + "' has the value " + std::to_string(value),
            std::to_string(least) + " to " + std::to_string(most) + " are allowed by its type");
    return value;
  }

  /// "Type field field": an older form of @key.
  void keylist() {
    const Token token = take();
    std::istringstream words(token.text);
    std::string which, word;
    words >> which;
    Symbol& symbol = find(which, token.place);
    if (!symbol.structure)
      text_.wrong(token.place,
                  "#pragma keylist: '" + which + "' is " + std::string(called(symbol.what)) +
                      ", not a structure that is declared above",
                  "");
    Type& type = *symbol.structure;
    if (has_key(type))
      text_.wrong(token.place, "#pragma keylist: '" + type.name + "' already has keys",
                  "use either @key or #pragma keylist, once");
    while (words >> word) {
      std::vector<std::string> names;
      for (const Field& field : type.fields) names.push_back(field.name);
      if (word.find('.') != std::string::npos)
        text_.wrong(token.place, "#pragma keylist: '" + word + "' is a field inside a field",
                    "put @key before the declaration of both: the inner field and the field that contains it");
      const auto field =
          std::find_if(type.fields.begin(), type.fields.end(), [&](const Field& f) { return f.name == word; });
      if (field == type.fields.end())
        text_.wrong(token.place,
                    "#pragma keylist: '" + type.name + "' has no field '" + word + "'" + nearest(word, names), "");
      field->key = true;
    }
    check_structure(type, token.place);
  }

  // --- types

  TypePtr type_spec(std::size_t depth) {
    if (depth > limit::depth) wrong("sequences nested deeper than " + std::to_string(limit::depth) + " levels", "");
    const Token token = peek();
    if (token.sort == Sort::name && !token.escaped) {
      static const std::map<std::string_view, Kind> plain{
          {"boolean", Kind::boolean}, {"octet", Kind::octet},   {"char", Kind::char8},    {"int8", Kind::int8},
          {"uint8", Kind::uint8},     {"int16", Kind::int16},   {"uint16", Kind::uint16}, {"int32", Kind::int32},
          {"uint32", Kind::uint32},   {"int64", Kind::int64},   {"uint64", Kind::uint64}, {"short", Kind::int16},
          {"float", Kind::float32},   {"double", Kind::float64}};
      if (const auto kind = plain.find(token.text); kind != plain.end()) {
        take();
        return primitive(kind->second);
      }
      if (took_word("unsigned")) {
        if (took_word("short")) return primitive(Kind::uint16);
        if (!took_word("long")) wrong("expected short or long after unsigned, found " + shown(peek()), "");
        return primitive(took_word("long") ? Kind::uint64 : Kind::uint32);
      }
      if (took_word("long")) {
        if (is_word("double")) wrong("long double is not supported", "use double");
        return primitive(took_word("long") ? Kind::int64 : Kind::int32);
      }
      if (took_word("string")) return string_type(took("<") ? bound("a string", ">") : 0);
      if (took_word("sequence")) {
        expect("<", "after sequence");
        const TypePtr element = type_spec(depth + 1);
        if (took(",")) return sequence_of(element, bound("a sequence", ">"));
        expect(">", "after the element type of the sequence");
        return sequence_of(element);
      }
      if (idl::type_keyword(token.text)) {
        static const std::set<std::string> inner{"struct", "enum", "union"};
        wrong(shown(token) +
                  (inner.contains(token.text) ? " cannot be declared inside another type" : " is not supported"),
              inner.contains(token.text) ? "declare it separately above, and use its name"
                                         : "boolean, octet, char, (u)int8 to 64, float, double, string, sequence, and "
                                           "names of structures, enumerations and typedefs are allowed");
      }
    }
    const std::string which = scoped_name("a type");
    const Symbol& symbol = find(which, token.place);
    if (symbol.what == What::announced)
      text_.wrong(token.place, "structure '" + which + "' is used before its declaration ends",
                  "a structure cannot contain itself, nor types that are declared below it");
    if (!symbol.type)
      text_.wrong(token.place, "'" + which + "' is " + std::string(called(symbol.what)) + ", not a type", "");
    return symbol.type;
  }

  std::uint32_t bound(const std::string& of_what, std::string_view close) {
    const Place place = peek().place;
    const std::int64_t value = integer("the bound of " + of_what);
    if (value < 1 || value > UINT32_MAX)
      text_.wrong(place, "the bound of " + of_what + " is " + std::to_string(value), "1 to 4294967295 are allowed");
    expect(close, "after the bound of " + of_what);
    return static_cast<std::uint32_t>(value);
  }

  TypePtr dimensions(TypePtr type) {
    std::uint64_t total = 1;
    const Place place = peek().place;
    bool any = false;
    while (took("[")) {
      any = true;
      total *= bound("an array", "]");
      if (total > limit::sample_bytes)
        text_.wrong(place, "an array has " + std::to_string(total) + " elements or more",
                    std::to_string(limit::sample_bytes) + " bytes are allowed in a sample");
    }
    if (!any) return type;
    type = array_of(type, static_cast<std::uint32_t>(total));
    if (type->element->kind == Kind::array)
      text_.wrong(place, "an array of arrays has more than 4294967295 elements", "");
    return type;
  }

  // --- integers

  /// Begins with the operator of the lowest precedence.
  std::int64_t integer(const std::string& of_what) { return binary(of_what, 0); }

  std::int64_t binary(const std::string& of_what, std::size_t level) {
    static const std::vector<std::vector<std::string_view>> levels{{"|"},      {"^"},      {"&"},
                                                                   {"<", ">"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == levels.size()) return unary(of_what, 0);
    std::int64_t value = binary(of_what, level + 1);
    for (;;) {
      const Token& token = peek();
      if (token.sort != Sort::punctuation ||
          std::find(levels[level].begin(), levels[level].end(), token.text) == levels[level].end())
        return value;
      const char op = token.text[0];
      if (op == '<' || op == '>') {
        // A single '>' ends a bound, and two can end two bounds.
        if (peek(1).sort != Sort::punctuation || peek(1).text != token.text || !peek(1).glued || ends_here(2))
          return value;
        take();
      }
      take();
      const std::int64_t other = binary(of_what, level + 1);
      const auto too_large = [&] { wrong(of_what + " does not fit into 64 bits", ""); };
      switch (op) {
        case '|': value |= other; break;
        case '^': value ^= other; break;
        case '&': value &= other; break;
        case '+':
          if (__builtin_add_overflow(value, other, &value)) too_large();
          break;
        case '-':
          if (__builtin_sub_overflow(value, other, &value)) too_large();
          break;
        case '*':
          if (__builtin_mul_overflow(value, other, &value)) too_large();
          break;
        case '<':
        case '>':
          if (other < 0 || other > 63)
            wrong(of_what + " has a shift by " + std::to_string(other), "0 to 63 are allowed");
          if (op == '>') value >>= other;
          else if (value < 0 || value > (INT64_MAX >> other)) too_large();
          else value <<= other;
          break;
        default:
          if (other == 0) wrong(of_what + " has a division by 0", "");
          if (other == -1 && value == INT64_MIN) too_large();
          value = op == '/' ? value / other : value % other;
      }
    }
  }

  /// Whether the token `ahead` cannot begin an operand, so that the characters before it close brackets.
  bool ends_here(std::size_t ahead) const {
    const Token& token = peek(ahead);
    if (token.sort == Sort::integer) return false;
    if (token.sort == Sort::punctuation)
      return token.text != "(" && token.text != "-" && token.text != "+" && token.text != "~" && token.text != "::";
    // "sequence<string<4>> names": a name after it is the declared field, unless it is a constant.
    if (token.sort != Sort::name) return true;
    for (std::size_t levels = scope_.size() + 1; levels-- > 0;) {
      std::string full;
      for (std::size_t k = 0; k < levels; ++k) full += scope_[k] + "::";
      if (const auto at = symbols_.find(idl::lower(full + token.text)); at != symbols_.end()) return !at->second.value;
    }
    return true;
  }

  std::int64_t unary(const std::string& of_what, int depth) {
    if (++depth > most_parentheses || parentheses_ > most_parentheses)
      wrong(of_what + " has more than " + std::to_string(most_parentheses) + " signs or parentheses", "");
    if (took("-")) {
      const std::int64_t value = unary(of_what, depth);
      if (value == INT64_MIN) wrong(of_what + " does not fit into 64 bits", "");
      return -value;
    }
    if (took("+")) return unary(of_what, depth);
    if (took("~")) return ~unary(of_what, depth);
    if (took("(")) {
      ++parentheses_;
      const std::int64_t value = binary(of_what, 0);
      --parentheses_;
      expect(")", "in " + of_what);
      return value;
    }
    const Token token = peek();
    if (token.sort == Sort::integer) {
      if (token.number > INT64_MAX)
        wrong(of_what + ": " + token.text + " is too large", "the largest value is 9223372036854775807");
      take();
      return static_cast<std::int64_t>(token.number);
    }
    if (token.sort == Sort::name || is("::")) {
      const std::string which = scoped_name("a constant");
      const Symbol& symbol = find(which, token.place);
      if (!symbol.value)
        text_.wrong(token.place, "'" + which + "' is " + std::string(called(symbol.what)) + ", not an integer",
                    of_what + " needs an integer");
      return *symbol.value;
    }
    wrong("expected an integer for " + of_what + ", found " + shown(token), "");
  }

  const Text& text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::vector<std::string> scope_;
  std::map<std::string, Symbol> symbols_;
  int parentheses_ = 0;
};

Result<std::map<std::string, TypePtr>> parsed(const std::function<void(Text&)>& fill) {
  try {
    Text text;
    fill(text);
    return Parser(text).run();
  } catch (Wrong& wrong) {
    return std::move(wrong.error);
  }
}

}  // namespace

Result<std::map<std::string, TypePtr>> parse_idl(std::string_view text, std::string_view file) {
  return parsed([&](Text& into) { into.read(text, file, std::nullopt); });
}

Result<std::map<std::string, TypePtr>> load_idl(const std::string& path) {
  return parsed([&](Text& into) { into.load(path, path, std::nullopt); });
}

}  // namespace sonde::bus
