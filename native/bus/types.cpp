#include "bus/types.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>

#include "bus/idl_words.hpp"

namespace sonde::bus {

namespace {

Error bad_type(std::string what) {
  return {"bus.bad_type", std::move(what),
          "bus/types.hpp describes the allowed types, and bus/idl.hpp the same in IDL"};
}

constexpr bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool digit(char c) { return c >= '0' && c <= '9'; }

/// What is wrong with a name; empty: it is an identifier of IDL.
std::string wrong_with(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > limit::name_bytes) return "is longer than " + std::to_string(limit::name_bytes) + " bytes";
  if (!letter(name[0])) return "does not begin with a letter";
  for (const char c : name)
    if (!letter(c) && !digit(c) && c != '_') return "contains a character other than letters, digits and '_'";
  return "";
}

std::vector<std::string> pieces_of(std::string_view scoped) {
  std::vector<std::string> out;
  for (std::size_t at = 0;;) {
    const std::size_t end = scoped.find("::", at);
    out.emplace_back(scoped.substr(at, end == std::string_view::npos ? end : end - at));
    if (end == std::string_view::npos) return out;
    at = end + 2;
  }
}

std::string quoted(std::string_view name) { return std::string(1, '\'').append(name) + '\''; }

/// Visits a type and all types in it, each of them once: otherwise a chain of structures, each with two fields of the
/// previous one, would need 2^16 visits.
class Checking {
 public:
  struct Sum {
    std::uint64_t least_bytes = 0, leaves = 0;
    std::size_t height = 0;
  };

  Result<Sum> visit(const Type& type, std::size_t depth, const std::string& path) {
    if (depth > limit::depth + 1)
      return bad_type(path + " is nested deeper than " + std::to_string(limit::depth) +
                      " structures, sequences and arrays, or contains itself");
    if (const auto seen = sums_.find(&type); seen != sums_.end()) return seen->second;
    auto sum = fresh(type, depth, path);
    if (!sum) return sum;
    if ((*sum).height > limit::depth)
      return bad_type(path + " has more than " + std::to_string(limit::depth) +
                      " structures, sequences and arrays inside each other");
    if ((*sum).leaves > limit::leaves)
      return bad_type(path + " has more than " + std::to_string(limit::leaves) +
                      " fields, including those of all structures inside it");
    if ((*sum).least_bytes > limit::sample_bytes)
      return bad_type(path + " needs at least " + std::to_string((*sum).least_bytes) + " bytes; samples may have " +
                      std::to_string(limit::sample_bytes));
    sums_.emplace(&type, *sum);
    return sum;
  }

 private:
  enum class What { module, type, enumerator };
  struct Declared {
    What what;
    std::string spelled;
    const Type* type;
  };

  Result<Sum> fresh(const Type& type, std::size_t depth, const std::string& path) {
    switch (type.kind) {
      case Kind::boolean:
      case Kind::octet:
      case Kind::char8:
      case Kind::int8:
      case Kind::uint8: return Sum{1, 1, 0};
      case Kind::int16:
      case Kind::uint16: return Sum{2, 1, 0};
      case Kind::int32:
      case Kind::uint32:
      case Kind::float32: return Sum{4, 1, 0};
      case Kind::int64:
      case Kind::uint64:
      case Kind::float64: return Sum{8, 1, 0};
      case Kind::string: return Sum{5, 1, 0};
      case Kind::enumeration:
        if (auto fine = enumeration(type, path); !fine) return fine.error();
        return Sum{4, 1, 0};
      case Kind::sequence:
      case Kind::array: {
        const bool array = type.kind == Kind::array;
        if (!type.element)
          return bad_type(path + ": " + (array ? "an array" : "a sequence") + " without an element type");
        if (array && type.bound == 0) return bad_type(path + ": an array needs at least one element");
        if (array && type.element->kind == Kind::array)
          return bad_type(path + ": an array of arrays; use one array with the product of the dimensions");
        auto sum = visit(*type.element, depth + 1, path + "[]");
        if (!sum) return sum;
        return Sum{array ? (*sum).least_bytes * type.bound : 4, (*sum).leaves, (*sum).height + 1};
      }
      case Kind::structure: return structure(type, depth, path);
    }
    return bad_type(path + ": there is no kind with the number " + std::to_string(static_cast<int>(type.kind)));
  }

  Result<Sum> structure(const Type& type, std::size_t depth, const std::string& path) {
    if (auto fine = declare(type, path); !fine) return fine.error();
    if (type.fields.empty()) return bad_type(type.name + " has no field; at least one is needed");
    if (type.fields.size() > limit::fields)
      return bad_type(type.name + " has " + std::to_string(type.fields.size()) + " fields; " +
                      std::to_string(limit::fields) + " are allowed");
    Sum sum{0, 0, 1};
    std::map<std::string, std::string_view> names;
    for (const Field& field : type.fields) {
      const std::string where = path + "." + field.name;
      if (const auto wrong = wrong_with(field.name); !wrong.empty())
        return bad_type(type.name + ": the name " + quoted(field.name) + " of a field " + wrong);
      const auto [twin, first] = names.emplace(idl::lower(field.name), field.name);
      if (!first)
        return bad_type(type.name + ": the fields " + quoted(twin->second) + " and " + quoted(field.name) +
                        " have the same name (IDL ignores upper and lower case)");
      if (!field.type) return bad_type(where + " has no type");
      if (field.unit.size() > limit::name_bytes || std::any_of(field.unit.begin(), field.unit.end(), [](char c) {
            return static_cast<unsigned char>(c) < 0x20;
          }))
        return bad_type(where + ": its unit is longer than " + std::to_string(limit::name_bytes) +
                        " bytes, or contains control characters");
      auto part = visit(*field.type, depth + 1, where);
      if (!part) return part;
      if (field.key)
        if (auto fine = keyable(*field.type, where); !fine) return fine.error();
      sum.least_bytes += (*part).least_bytes;
      sum.leaves += (*part).leaves;
      sum.height = std::max(sum.height, (*part).height + 1);
    }
    return sum;
  }

  Result<void> enumeration(const Type& type, const std::string& path) {
    if (auto fine = declare(type, path); !fine) return fine;
    if (type.enumerators.empty()) return bad_type(type.name + " has no enumerator; at least one is needed");
    if (type.enumerators.size() > limit::fields)
      return bad_type(type.name + " has " + std::to_string(type.enumerators.size()) + " enumerators; " +
                      std::to_string(limit::fields) + " are allowed");
    const std::size_t cut = type.name.rfind("::");
    const std::string scope = cut == std::string::npos ? "" : type.name.substr(0, cut + 2);
    std::map<std::int32_t, std::string_view> values;
    for (const Enumerator& e : type.enumerators) {
      if (const auto wrong = wrong_with(e.name); !wrong.empty())
        return bad_type(type.name + ": the name " + quoted(e.name) + " of an enumerator " + wrong);
      if (const auto [twin, first] = values.emplace(e.value, e.name); !first)
        return bad_type(type.name + ": the enumerators " + quoted(twin->second) + " and " + quoted(e.name) +
                        " have the same value, " + std::to_string(e.value));
    }
    for (std::size_t k = 0; k < type.enumerators.size(); ++k)
      if (auto fine = declare(scope + type.enumerators[k].name, What::enumerator, type, k); !fine) return fine;
    return {};
  }

  /// A type's name, and the modules that it implies.
  Result<void> declare(const Type& type, const std::string& path) {
    if (type.name.size() > limit::name_bytes)
      return bad_type(path + ": its type's name is longer than " + std::to_string(limit::name_bytes) + " bytes");
    std::string scope;
    const auto pieces = pieces_of(type.name);
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      if (const auto wrong = wrong_with(pieces[k]); !wrong.empty())
        return bad_type((path == type.name ? "" : path + ": ") + "the type's name " + quoted(type.name) + ": " +
                        quoted(pieces[k]) + " " + wrong);
      scope += (k ? "::" : "") + pieces[k];
      if (auto fine = declare(scope, k + 1 < pieces.size() ? What::module : What::type, type, 0); !fine) return fine;
    }
    return {};
  }

  Result<void> declare(const std::string& name, What what, const Type& type, std::size_t enumerator) {
    const auto [at, first] = names_.emplace(idl::lower(name), Declared{what, name, &type});
    if (first) return {};
    const Declared& other = at->second;
    if (other.spelled == name && other.what == what) {
      if (what == What::module) return {};
      if (what == What::type) {
        if (other.type == &type || equal(*other.type, type)) return {};
        return bad_type("two different types have the name " + quoted(name));
      }
      // The same enumeration may exist as two objects.
      if (other.type->name == type.name && enumerator < other.type->enumerators.size() &&
          other.type->enumerators[enumerator].name == type.enumerators[enumerator].name)
        return {};
    }
    static constexpr const char* called[] = {"a module", "a type", "an enumerator"};
    return bad_type(quoted(other.spelled) + " is " + called[static_cast<int>(other.what)] + ", " + quoted(name) +
                    " is " + called[static_cast<int>(what)] +
                    ": a name can have only one meaning (enumerators have the scope of their enumeration; IDL "
                    "ignores upper and lower case)");
  }

  Result<void> keyable(const Type& type, const std::string& path) {
    if (type.kind == Kind::sequence)
      return bad_type(
          path +
          " is a sequence and part of the key; keys can be primitives, enumerations, strings, or arrays and "
          "structures of those");
    if (type.kind == Kind::array) return keyable(*type.element, path + "[]");
    if (type.kind != Kind::structure) return {};
    const bool some = has_key(type);
    for (const Field& field : type.fields)
      if (field.key || !some)
        if (auto fine = keyable(*field.type, path + "." + field.name); !fine) return fine;
    return {};
  }

  std::unordered_map<const Type*, Sum> sums_;
  std::map<std::string, Declared> names_;
};

/// FNV-1a with 128 bits.
class Hash {
 public:
  void put(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    for (const char c : text) one(static_cast<unsigned char>(c));
  }
  void put(std::uint32_t n) {
    for (int k = 0; k < 32; k += 8) one(n >> k & 0xff);
  }
  std::string text() const {
    char out[33];
    std::snprintf(out, sizeof out, "%016llx%016llx", static_cast<unsigned long long>(high_),
                  static_cast<unsigned long long>(low_));
    return out;
  }

 private:
  void one(std::uint64_t byte) {
    low_ ^= byte;
    // Times 2^88 + 0x13b.
    const std::uint64_t p0 = (low_ & 0xffffffff) * 0x13b, p1 = (low_ >> 32) * 0x13b;
    const std::uint64_t low = p0 + (p1 << 32);
    high_ = high_ * 0x13b + (p1 >> 32) + (low < p0) + (low_ << 24);
    low_ = low;
  }
  std::uint64_t high_ = 0x6c62272e07bb0142, low_ = 0x62b821756295c58d;
};

void hash(Hash& into, const Type& type) {
  into.put(static_cast<std::uint32_t>(type.kind));
  switch (type.kind) {
    case Kind::string: into.put(type.bound); break;
    case Kind::sequence:
    case Kind::array:
      into.put(type.bound);
      hash(into, *type.element);
      break;
    case Kind::enumeration:
      into.put(type.name);
      into.put(static_cast<std::uint32_t>(type.enumerators.size()));
      for (const Enumerator& e : type.enumerators) {
        into.put(e.name);
        into.put(static_cast<std::uint32_t>(e.value));
      }
      break;
    case Kind::structure:
      into.put(type.name);
      into.put(static_cast<std::uint32_t>(type.fields.size()));
      for (const Field& field : type.fields) {
        into.put(field.name);
        into.put(std::uint32_t{field.key});
        hash(into, *field.type);
      }
      break;
    default: break;
  }
}

/// Writes declarations in an order in which each is declared before its use.
class Writing {
 public:
  explicit Writing(const Type& top) {
    collect(top);
    declare(top);
  }

  std::string text() {
    enter({});
    return std::move(out_);
  }

 private:
  void declare(const Type& type) {
    if (type.kind == Kind::sequence || type.kind == Kind::array) return declare(*type.element);
    if (type.kind != Kind::structure && type.kind != Kind::enumeration) return;
    if (std::find(done_.begin(), done_.end(), type.name) != done_.end()) return;
    for (const Field& field : type.fields) declare(*field.type);
    done_.push_back(type.name);
    auto scope = pieces_of(type.name);
    const std::string own = scope.back();
    scope.pop_back();
    std::string before, body;
    if (type.kind == Kind::structure) {
      body = "@final struct " + idl::escaped(own) +
             " {\n";  // some tools take a type without this annotation as appendable
      for (const Field& field : type.fields) {
        body += "  ";
        if (field.key) body += "@key ";
        if (!field.unit.empty()) body += "@unit(\"" + idl::escape_text(field.unit) + "\") ";
        body += declaration(*field.type, idl::escaped(field.name), before) + ";\n";
      }
    } else {
      body = "enum " + idl::escaped(own) + " {\n";
      bool plain = true;  // the values that IDL assigns by default
      for (std::size_t k = 0; k < type.enumerators.size(); ++k)
        plain = plain && type.enumerators[k].value == static_cast<std::int32_t>(k);
      for (std::size_t k = 0; k < type.enumerators.size(); ++k) {
        const Enumerator& e = type.enumerators[k];
        body += "  " + (plain ? "" : "@value(" + std::to_string(e.value) + ") ") + idl::escaped(e.name) +
                (k + 1 < type.enumerators.size() ? ",\n" : "\n");
      }
    }
    if (!before.empty()) {
      enter({});
      out_ += before;
    }
    enter(scope);
    out_ += idl::indented(body, 2 * scope.size()) + std::string(2 * scope.size(), ' ') + "};\n";
  }

  /// Collects the names outside all modules.
  void collect(const Type& type) {
    if (type.element) collect(*type.element);
    if (!type.name.empty()) taken_.insert(idl::lower(pieces_of(type.name).front()));
    for (const Field& field : type.fields) collect(*field.type);
    for (const Enumerator& e : type.enumerators) taken_.insert(idl::lower(e.name));
  }

  /// "type name[dimension]". In IDL, arrays can be elements of sequences only through a typedef, which is added to
  /// `before`.
  std::string declaration(const Type& type, const std::string& name, std::string& before) {
    if (type.kind == Kind::array)
      return spelled(*type.element, before) + " " + name + "[" + std::to_string(type.bound) + "]";
    return spelled(type, before) + " " + name;
  }
  std::string spelled(const Type& type, std::string& before) {
    const std::string bound = std::to_string(type.bound);
    switch (type.kind) {
      case Kind::string: return type.bound ? "string<" + bound + ">" : "string";
      case Kind::sequence: {
        const std::string element = spelled(*type.element, before);
        return "sequence<" + element +
               (type.bound               ? ", " + bound
                : element.ends_with('>') ? " "
                                         : "") +
               ">";  // ">>" is a shift to older tools
      }
      case Kind::array: {
        std::string name;
        do name = "array_" + std::to_string(++arrays_);
        while (taken_.contains(name));
        const std::string line = "typedef " + declaration(type, name, before) + ";\n";
        before += line;
        return name.insert(0, "::");
      }
      case Kind::structure:
      case Kind::enumeration: {
        std::string out;
        for (const auto& piece : pieces_of(type.name)) out += "::" + idl::escaped(piece);
        return out;
      }
      default: return std::string(name_of(type.kind));
    }
  }

  /// Closes open modules that are not in `scope`, and opens the others of `scope`.
  void enter(const std::vector<std::string>& scope) {
    std::size_t same = 0;
    while (same < std::min(scope.size(), open_.size()) && scope[same] == open_[same]) ++same;
    while (open_.size() > same) {
      open_.pop_back();
      out_ += std::string(2 * open_.size(), ' ') + "};\n";
    }
    for (; open_.size() < scope.size(); open_.push_back(scope[open_.size()]))
      out_ += std::string(2 * open_.size(), ' ') + "module " + idl::escaped(scope[open_.size()]) + " {\n";
  }

  std::string out_;
  std::vector<std::string> open_, done_;
  std::set<std::string> taken_;
  int arrays_ = 0;
};

TypePtr made(Type type) { return std::make_shared<const Type>(std::move(type)); }

}  // namespace

TypePtr primitive(Kind kind) {
  static const auto all = [] {
    std::array<TypePtr, static_cast<std::size_t>(Kind::float64) + 1> out;
    for (std::size_t k = 0; k < out.size(); ++k) {
      Type type;
      type.kind = static_cast<Kind>(k);
      out[k] = made(std::move(type));
    }
    return out;
  }();
  return kind <= Kind::float64 ? all[static_cast<std::size_t>(kind)] : nullptr;
}

TypePtr string_type(std::uint32_t bound) {
  Type type;
  type.kind = Kind::string;
  type.bound = bound;
  return made(std::move(type));
}

TypePtr sequence_of(TypePtr element, std::uint32_t bound) {
  Type type;
  type.kind = Kind::sequence;
  type.bound = bound;
  type.element = std::move(element);
  return made(std::move(type));
}

TypePtr array_of(TypePtr element, std::uint32_t length) {
  if (element && element->kind == Kind::array) {
    const std::uint64_t product = std::uint64_t{length} * element->bound;
    if (product <= UINT32_MAX) return array_of(element->element, static_cast<std::uint32_t>(product));
  }
  Type type;
  type.kind = Kind::array;
  type.bound = length;
  type.element = std::move(element);
  return made(std::move(type));
}

TypePtr structure(std::string name, std::vector<Field> fields) {
  Type type;
  type.kind = Kind::structure;
  type.name = std::move(name);
  type.fields = std::move(fields);
  return made(std::move(type));
}

TypePtr enumeration(std::string name, std::vector<Enumerator> enumerators) {
  Type type;
  type.kind = Kind::enumeration;
  type.name = std::move(name);
  type.enumerators = std::move(enumerators);
  return made(std::move(type));
}

Result<void> check(const Type& type) {
  if (type.kind != Kind::structure)
    return bad_type("a topic's type must be a structure; this one is of kind " + std::string(name_of(type.kind)));
  Checking checking;
  if (auto sum = checking.visit(type, 1, type.name); !sum) return sum.error();
  return {};
}

std::string to_idl(const Type& type) { return Writing(type).text(); }

bool equal(const Type& a, const Type& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::string: return a.bound == b.bound;
    case Kind::sequence:
    case Kind::array: return a.bound == b.bound && equal(*a.element, *b.element);
    case Kind::enumeration:
      return a.name == b.name && std::equal(a.enumerators.begin(), a.enumerators.end(), b.enumerators.begin(),
                                            b.enumerators.end(), [](const Enumerator& x, const Enumerator& y) {
                                              return x.name == y.name && x.value == y.value;
                                            });
    case Kind::structure:
      return a.name == b.name && std::equal(a.fields.begin(), a.fields.end(), b.fields.begin(), b.fields.end(),
                                            [](const Field& x, const Field& y) {
                                              return x.name == y.name && x.key == y.key && equal(*x.type, *y.type);
                                            });
    default: return true;
  }
}

std::string fingerprint(const Type& type) {
  Hash out;
  hash(out, type);
  return out.text();
}

bool has_key(const Type& type) {
  return std::any_of(type.fields.begin(), type.fields.end(), [](const Field& field) { return field.key; });
}

std::string_view name_of(Kind kind) {
  static constexpr std::string_view names[] = {"boolean", "octet",  "char",        "int8",     "uint8",  "int16",
                                               "uint16",  "int32",  "uint32",      "int64",    "uint64", "float",
                                               "double",  "string", "enumeration", "sequence", "array",  "structure"};
  return static_cast<std::size_t>(kind) < std::size(names) ? names[static_cast<std::size_t>(kind)] : "?";
}

}  // namespace sonde::bus
