#include "bus/cdr.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace sonde::bus {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they are; a big-endian port must announce 00 00 instead");

namespace {

/// Size of a kind whose values need no check; 0: other kinds.
std::size_t plain_bytes(Kind kind) {
  switch (kind) {
    case Kind::octet:
    case Kind::char8:
    case Kind::int8:
    case Kind::uint8: return 1;
    case Kind::int16:
    case Kind::uint16: return 2;
    case Kind::int32:
    case Kind::uint32:
    case Kind::float32: return 4;
    case Kind::int64:
    case Kind::uint64:
    case Kind::float64: return 8;
    default: return 0;
  }
}

/// The smallest size of a value without padding: never 0.
std::uint64_t least_bytes(const Type& type) {
  switch (type.kind) {
    case Kind::boolean: return 1;
    case Kind::enumeration:
    case Kind::sequence: return 4;
    case Kind::string: return 5;
    case Kind::array: return type.bound * least_bytes(*type.element);
    case Kind::structure: {
      std::uint64_t sum = 0;
      for (const Field& field : type.fields) sum += least_bytes(*field.type);
      return sum;
    }
    default: return plain_bytes(type.kind);
  }
}

std::string number(std::uint64_t n) { return std::to_string(n); }

/// Reads a value and reports the first error with its place. Slow and simple; Checker must give the same results.
class Explaining {
 public:
  Explaining(CdrReader& in, std::string* why) : in_(in), why_(why) {}

  bool value(const Type& type) {
    switch (type.kind) {
      case Kind::boolean: {
        const auto byte = in_.get<std::uint8_t>();
        if (!in_.ok()) return cut("a boolean");
        return byte <= 1 || wrong("is a boolean with the value " + number(byte) + "; 0 and 1 are allowed");
      }
      case Kind::enumeration: {
        const auto n = in_.get<std::int32_t>();
        if (!in_.ok()) return cut("an enumeration");
        for (const Enumerator& e : type.enumerators)
          if (e.value == n) return true;
        return wrong("has the value " + std::to_string(n) + ", which " + type.name + " has no enumerator for");
      }
      case Kind::string: return string(type.bound);
      case Kind::sequence: {
        const auto n = in_.get<std::uint32_t>();
        if (!in_.ok()) return cut("the length of a sequence");
        if (type.bound && n > type.bound)
          return wrong("has " + number(n) + " elements; " + number(type.bound) + " are allowed");
        if (n > in_.left() / least_bytes(*type.element))
          return wrong("says that it has " + number(n) + " elements, for which the " + number(in_.left()) +
                       " bytes left are too few");
        return elements(*type.element, n);
      }
      case Kind::array: return elements(*type.element, type.bound);
      case Kind::structure:
        for (const Field& field : type.fields)
          if (!value(*field.type)) return within("." + field.name);
        return true;
      default:
        in_.get_elements(1, plain_bytes(type.kind));
        return in_.ok() || cut("its " + number(plain_bytes(type.kind)) + " bytes");
    }
  }

  const std::string& path() const { return path_; }

 private:
  bool string(std::uint32_t bound) {
    const auto n = in_.get<std::uint32_t>();
    if (!in_.ok()) return cut("the length of a string");
    if (n == 0) return wrong("is a string of length 0; the NUL at its end counts, so 1 is the least");
    if (bound && n - 1 > bound) return wrong("has " + number(n - 1) + " characters; " + number(bound) + " are allowed");
    if (n > in_.left())
      return wrong("says that it has " + number(n) + " bytes, where " + number(in_.left()) + " are left");
    const Bytes text = in_.get_bytes(n);
    const auto* nul = static_cast<const std::byte*>(std::memchr(text.data(), 0, n));
    if (!nul) return wrong("is a string without NUL at its end");
    return nul == text.data() + n - 1 ||
           wrong("is a string with a NUL in it, at " + number(static_cast<std::uint64_t>(nul - text.data())));
  }

  bool elements(const Type& element, std::uint32_t n) {
    if (const std::size_t each = plain_bytes(element.kind)) {
      in_.get_elements(n, each);
      return in_.ok() || cut(number(n) + " elements of " + number(each) + " bytes");
    }
    for (std::uint32_t k = 0; k < n; ++k)
      if (!value(element)) return within(number(k).insert(0, 1, '[') + ']');
    return true;
  }

  bool wrong(std::string what) {
    if (why_) *why_ = std::move(what);
    return false;
  }
  bool cut(const std::string& what) {
    return wrong("is cut off: there are " + number(in_.left()) + " bytes left for " + what);
  }
  bool within(const std::string& step) {
    if (why_) path_.insert(0, step);
    return false;
  }

  CdrReader& in_;
  std::string* why_;
  std::string path_;
};

/// Like CdrWriter, but big endian and without encapsulation.
class KeyWriter {
 public:
  template <CdrNumber T> void put(T value) {
    bytes_.resize((bytes_.size() + sizeof value - 1) & ~(sizeof value - 1));
    auto raw = std::bit_cast<std::array<std::byte, sizeof value>>(value);
    std::reverse(raw.begin(), raw.end());
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  void put(std::same_as<bool> auto value) { put(static_cast<std::uint8_t>(value)); }
  void put(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size() + 1));
    const auto* p = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), p, p + text.size());
    bytes_.push_back(std::byte{0});
  }
  std::vector<std::byte> bytes_;
};

/// Copies a value from one representation to another; without a writer it is skipped.
template <typename Writer> void copy(const Type& type, CdrReader& in, Writer* out) {
  const auto move = [&](auto example) {
    const auto value = in.get<decltype(example)>();
    if (out) out->put(value);
  };
  switch (type.kind) {
    case Kind::string: {
      const auto text = in.get_string(type.bound);
      if (out) out->put(text);
      return;
    }
    case Kind::enumeration: return move(std::int32_t{});
    case Kind::sequence:
    case Kind::array: {
      const std::uint32_t n =
          type.kind == Kind::array ? type.bound : in.get_length(type.bound, least_bytes(*type.element));
      if (const std::size_t each = plain_bytes(type.element->kind); each && !out) {
        in.get_elements(n, each);
        return;
      }
      for (std::uint32_t k = 0; k < n && in.ok(); ++k) copy(*type.element, in, out);
      return;
    }
    case Kind::structure:
      for (const Field& field : type.fields) copy(*field.type, in, out);
      return;
    default: break;
  }
  switch (plain_bytes(type.kind)) {
    case 2: return move(std::uint16_t{});
    case 4: return move(std::uint32_t{});
    case 8: return move(std::uint64_t{});
    default: return move(std::uint8_t{});
  }
}

/// Whether a type within a key is a key as a whole: structures without key fields are.
void copy_key(const Type& type, CdrReader& in, KeyWriter& out) {
  if (type.kind == Kind::array && plain_bytes(type.element->kind) == 0) {
    for (std::uint32_t k = 0; k < type.bound && in.ok(); ++k) copy_key(*type.element, in, out);
  } else if (type.kind == Kind::structure) {
    const bool some = has_key(type);
    for (const Field& field : type.fields) {
      if (field.key || !some) copy_key(*field.type, in, out);
      else copy<KeyWriter>(*field.type, in, nullptr);
    }
  } else {
    copy(type, in, &out);
  }
}

/// The reverse of copy_key().
void put_key(const Type& type, CdrReader& key, CdrWriter& out) {
  if (type.kind == Kind::array && plain_bytes(type.element->kind) == 0) {
    for (std::uint32_t k = 0; k < type.bound && key.ok(); ++k) put_key(*type.element, key, out);
  } else if (type.kind == Kind::structure) {
    const bool some = has_key(type);
    for (const Field& field : type.fields) {
      if (field.key || !some) put_key(*field.type, key, out);
      else put_default(*field.type, out);
    }
  } else {
    copy(type, key, &out);
  }
}

/// Empty: the key does not match the type.
std::vector<std::byte> payload_from(const Type& type, CdrReader& key) {
  std::vector<std::byte> payload;
  CdrWriter out(payload);
  for (const Field& field : type.fields) {
    if (field.key) put_key(*field.type, key, out);
    else put_default(*field.type, out);
  }
  if (!key.ok() || !verify(type, payload)) payload.clear();
  return payload;
}

/// The latest possible end of a key. In every step a later beginning gives a later end, so the longest form of each
/// part gives the longest key.
std::uint64_t key_end(const Type& type, std::uint64_t at) {
  const auto aligned = [&](std::uint64_t to) { return (at + to - 1) & ~(to - 1); };
  switch (type.kind) {
    case Kind::string: return type.bound ? aligned(4) + 4 + type.bound + 1 : SIZE_MAX;
    case Kind::enumeration: return aligned(4) + 4;
    case Kind::boolean: return at + 1;
    case Kind::array:
      if (const std::size_t each = plain_bytes(type.element->kind))
        return aligned(each) + std::uint64_t{type.bound} * each;
      for (std::uint32_t k = 0; k < type.bound && at != SIZE_MAX; ++k) at = key_end(*type.element, at);
      return at;
    case Kind::structure: {
      const bool some = has_key(type);
      for (const Field& field : type.fields)
        if (at != SIZE_MAX && (field.key || !some)) at = key_end(*field.type, at);
      return at;
    }
    case Kind::sequence: return SIZE_MAX;
    default: return aligned(plain_bytes(type.kind)) + plain_bytes(type.kind);
  }
}

}  // namespace

CdrWriter::CdrWriter(std::vector<std::byte>& into) : bytes_(into) {
  bytes_.assign({std::byte{0}, std::byte{1}, std::byte{0}, std::byte{0}});
}

void CdrWriter::put(std::string_view text) {
  put(static_cast<std::uint32_t>(text.size() + 1));
  put_bytes({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  bytes_.push_back(std::byte{0});
}

void CdrWriter::put_bytes(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

void CdrWriter::put_elements(Bytes elements, std::size_t each) {
  if (elements.empty()) return;  // no padding without elements
  align(each);
  put_bytes(elements);
}

void CdrWriter::align(std::size_t to) {
  bytes_.resize(((bytes_.size() - encapsulation_bytes + to - 1) & ~(to - 1)) + encapsulation_bytes);
}

CdrReader::CdrReader(Bytes payload) {
  ok_ = payload.size() >= encapsulation_bytes && payload[0] == std::byte{0} && payload[1] <= std::byte{1};
  if (!ok_) return;
  body_ = payload.subspan(encapsulation_bytes);
  swap_ = payload[1] == std::byte{0};
}

CdrReader CdrReader::of_key(Bytes serialised_key) {
  CdrReader out;
  out.body_ = serialised_key;
  out.swap_ = true;
  return out;
}

bool CdrReader::get_bool() {
  const auto byte = get<std::uint8_t>();
  if (byte > 1) refuse();
  return ok_ && byte == 1;
}

std::string_view CdrReader::get_string(std::uint32_t bound) {
  const auto n = get<std::uint32_t>();
  if (n == 0 || (bound && n - 1 > bound)) refuse();
  const std::byte* at = take(n, 1);
  if (!at) return {};
  if (std::memchr(at, 0, n) != at + n - 1) {
    refuse();
    return {};
  }
  return {reinterpret_cast<const char*>(at), n - 1};
}

std::uint32_t CdrReader::get_length(std::uint32_t bound, std::size_t least_element_bytes) {
  const auto n = get<std::uint32_t>();
  if ((bound && n > bound) || n > left() / std::max<std::size_t>(least_element_bytes, 1)) refuse();
  return ok_ ? n : 0;
}

Bytes CdrReader::get_bytes(std::size_t n) {
  const std::byte* at = take(n, 1);
  return at ? Bytes{at, n} : Bytes{};
}

Bytes CdrReader::get_elements(std::size_t n, std::size_t each) {
  if (n == 0) return {};
  if (n > left() / each) {
    refuse();
    return {};
  }
  const std::byte* at = take(n * each, each);
  return at ? Bytes{at, n * each} : Bytes{};
}

std::size_t CdrReader::position() const { return at_; }
std::size_t CdrReader::left() const { return body_.size() - at_; }

bool verify(const Type& type, Bytes payload, std::string* why) {
  CdrReader in(payload);
  if (!in.ok()) {
    if (!why) return false;
    if (payload.size() < encapsulation_bytes) {
      *why = "a sample of " + type.name + " has " + number(payload.size()) + " bytes; its encapsulation alone takes " +
             number(encapsulation_bytes);
    } else {
      char found[6];
      std::snprintf(found, sizeof found, "%02x %02x", static_cast<unsigned>(payload[0]),
                    static_cast<unsigned>(payload[1]));
      *why = "a sample of " + type.name + " is encapsulated as " + found +
             "; plain CDR of XCDR version 1 (00 00 and 00 01) is allowed";
    }
    return false;
  }
  Explaining explaining(in, why);
  if (!explaining.value(type)) {
    if (why) *why = type.name + explaining.path() + " " + *why;
    return false;
  }
  if (in.left() <= most_padding) return true;
  if (why)
    *why = type.name + " ends at byte " + number(in.position()) + " of its sample, which goes on for " +
           number(in.left()) + "; " + number(most_padding) + " of padding are allowed";
  return false;
}

void put_default(const Type& type, CdrWriter& out) {
  switch (type.kind) {
    case Kind::string: return out.put(std::string_view{});
    case Kind::enumeration: return out.put(type.enumerators.front().value);
    case Kind::sequence: return out.put(std::uint32_t{0});
    case Kind::array:
      for (std::uint32_t k = 0; k < type.bound; ++k) put_default(*type.element, out);
      return;
    case Kind::structure:
      for (const Field& field : type.fields) put_default(*field.type, out);
      return;
    default: break;
  }
  switch (plain_bytes(type.kind)) {
    case 2: return out.put(std::uint16_t{0});
    case 4: return out.put(std::uint32_t{0});
    case 8: return out.put(std::uint64_t{0});
    default: return out.put(std::uint8_t{0});
  }
}

struct Checker::State {
  const std::byte* body;
  std::uint64_t size, at;

  std::uint64_t left() const { return size - at; }
  template <bool swap> bool number(std::uint32_t& out) {
    const std::uint64_t from = (at + 3) & ~std::uint64_t{3};
    if (from + 4 > size) return false;
    std::memcpy(&out, body + from, 4);
    if constexpr (swap) out = __builtin_bswap32(out);
    at = from + 4;
    return true;
  }
};

Checker::Checker(TypePtr type) : type_(std::move(type)) { compile(*type_, program_); }

std::uint64_t Checker::Run::after(std::uint64_t at, std::uint64_t times) const {
  if (times == 0) return at;
  at += reach[at & 7];
  if (--times == 0) return at;
  // From here on all elements have the same length, if it is a multiple of the alignment.
  if (const std::uint64_t each = reach[at & 7]; each % align == 0) return at + times * each;
  // Otherwise their beginnings modulo 8 repeat, after 8 elements at the latest.
  std::array<std::uint64_t, 8> when{}, where{};
  for (std::uint64_t done = 0; done < times;) {
    const std::size_t phase = at & 7;
    if (where[phase]) {
      const std::uint64_t round = done - when[phase];
      at += (times - done) / round * (at - where[phase]);
      for (times = (times - done) % round; times; --times) at += reach[at & 7];
      return at;
    }
    when[phase] = done++;
    where[phase] = at;
    at += reach[phase];
  }
  return at;
}

void Checker::add(const Run& run, Program& into) {
  if (!into.empty() && into.back().op == Op::run && into.back().number == runs_.size() - 1) {
    Run& last = runs_.back();
    for (std::size_t k = 0; k < 8; ++k) last.reach[k] += run.reach[(k + last.reach[k]) & 7];
    last.align = std::max(last.align, run.align);
    return;
  }
  runs_.push_back(run);
  Step step;
  step.number = static_cast<std::uint32_t>(runs_.size() - 1);
  into.push_back(step);
}

void Checker::compile(const Type& type, Program& into) {
  Step step;
  switch (type.kind) {
    case Kind::boolean:
      step.op = Op::boolean;
      into.push_back(step);
      return;
    case Kind::enumeration: {
      Enumeration values;
      for (const Enumerator& e : type.enumerators) values.sorted.push_back(e.value);
      std::sort(values.sorted.begin(), values.sorted.end());
      values.least = values.sorted.front();
      values.others = static_cast<std::uint32_t>(values.sorted.back()) - static_cast<std::uint32_t>(values.least);
      if (values.others == values.sorted.size() - 1) values.sorted.clear();
      enumerations_.push_back(std::move(values));
      step.op = Op::enumeration;
      step.number = static_cast<std::uint32_t>(enumerations_.size() - 1);
      into.push_back(step);
      return;
    }
    case Kind::string:
      step.op = Op::string;
      step.bound = type.bound;
      into.push_back(step);
      return;
    case Kind::sequence:
    case Kind::array: {
      const bool array = type.kind == Kind::array;
      Program element;
      compile(*type.element, element);
      if (element.size() == 1 && element[0].op == Op::run) {
        if (array) {
          Run all;
          const Run one = runs_[element[0].number];
          runs_.pop_back();
          all.align = one.align;
          for (std::size_t k = 0; k < 8; ++k) all.reach[k] = one.after(k, type.bound) - k;
          return add(all, into);
        }
        step.op = Op::runs;
        step.number = element[0].number;
      } else {
        step.op = array ? Op::array : Op::sequence;
        step.number = type.bound;
        step.body = static_cast<std::uint32_t>(element.size());
      }
      step.bound = type.bound;
      step.least = static_cast<std::uint32_t>(least_bytes(*type.element));
      into.push_back(step);
      if (step.body) {
        into.insert(into.end(), element.begin(), element.end());
        runs_.emplace_back();  // an empty run: fields after the array must not join the last run of its elements
      }
      return;
    }
    case Kind::structure:
      for (const Field& field : type.fields) compile(*field.type, into);
      return;
    default: {
      Run run;
      const std::size_t each = plain_bytes(type.kind);
      run.align = static_cast<std::uint32_t>(each);
      for (std::size_t k = 0; k < 8; ++k) run.reach[k] = ((k + each - 1) & ~(each - 1)) + each - k;
      return add(run, into);
    }
  }
}

template <bool swap> bool Checker::go(const Step* step, const Step* end, State& state) const {
  for (; step != end; ++step) {
    switch (step->op) {
      case Op::run:
        state.at += runs_[step->number].reach[state.at & 7];
        if (state.at > state.size) return false;
        break;
      case Op::boolean:
        if (state.at >= state.size || state.body[state.at] > std::byte{1}) return false;
        ++state.at;
        break;
      case Op::enumeration: {
        std::uint32_t n;
        if (!state.number<swap>(n)) return false;
        const Enumeration& values = enumerations_[step->number];
        if (n - static_cast<std::uint32_t>(values.least) > values.others) return false;
        if (!values.sorted.empty() &&
            !std::binary_search(values.sorted.begin(), values.sorted.end(), static_cast<std::int32_t>(n)))
          return false;
        break;
      }
      case Op::string: {
        std::uint32_t n;
        if (!state.number<swap>(n) || n == 0 || n > state.left() || (step->bound && n - 1 > step->bound)) return false;
        const std::byte* text = state.body + state.at;
        if (std::memchr(text, 0, n) != text + n - 1) return false;
        state.at += n;
        break;
      }
      case Op::runs: {
        std::uint32_t n;
        if (!state.number<swap>(n) || (step->bound && n > step->bound) || n > state.left() / step->least) return false;
        state.at = runs_[step->number].after(state.at, n);
        if (state.at > state.size) return false;
        break;
      }
      case Op::sequence:
      case Op::array: {
        std::uint32_t n = step->number;
        if (step->op == Op::sequence && (!state.number<swap>(n) || (step->bound && n > step->bound))) return false;
        if (n > state.left() / step->least) return false;
        for (; n; --n)
          if (!go<swap>(step + 1, step + 1 + step->body, state)) return false;
        step += step->body;
        break;
      }
    }
  }
  return true;
}

bool Checker::verify(Bytes payload) const {
  if (payload.size() < encapsulation_bytes || payload[0] != std::byte{0} || payload[1] > std::byte{1}) return false;
  State state{payload.data() + encapsulation_bytes, payload.size() - encapsulation_bytes, 0};
  const Step *begin = program_.data(), *end = begin + program_.size();
  return (payload[1] == std::byte{1} ? go<false>(begin, end, state) : go<true>(begin, end, state)) &&
         state.left() <= most_padding;
}

void serialised_key(const Type& type, Bytes payload, std::vector<std::byte>& into) {
  KeyWriter out;
  out.bytes_ = std::move(into);
  out.bytes_.clear();
  CdrReader in(payload);
  const auto last =
      std::find_if(type.fields.rbegin(), type.fields.rend(), [](const Field& field) { return field.key; }).base();
  for (auto field = type.fields.begin(); field != last; ++field) {
    if (field->key) copy_key(*field->type, in, out);
    else copy<KeyWriter>(*field->type, in, nullptr);
  }
  if (!in.ok()) out.bytes_.clear();
  into = std::move(out.bytes_);
}

std::vector<std::byte> serialised_key(const Type& type, Bytes payload) {
  std::vector<std::byte> key;
  serialised_key(type, payload, key);
  return key;
}

KeyMaker::KeyMaker(TypePtr type) : type_(std::move(type)), keyed_(has_key(*type_)) {
  std::size_t from = encapsulation_bytes, to = 0;
  const auto last =
      std::find_if(type_->fields.rbegin(), type_->fields.rend(), [](const Field& field) { return field.key; }).base();
  for (auto field = type_->fields.begin(); field != last; ++field)
    if (!place(*field->type, field->key, from, to)) {
      parts_.clear();
      return;
    }
  needs_ = from;
  bytes_ = to;
}

/// False: the key has no fixed place or size, its value is not simply its bytes, or it has too many parts.
bool KeyMaker::place(const Type& type, bool key, std::size_t& from, std::size_t& to) {
  constexpr std::size_t most_parts = 16, most_bytes = std::size_t{1} << 24;
  const auto up = [](std::size_t at, std::size_t each) { return (at + each - 1) & ~(each - 1); };
  const auto plain = [&](std::size_t each, std::size_t n) {
    from = up(from - encapsulation_bytes, each) + encapsulation_bytes;
    if (key) {
      if (parts_.size() + n > most_parts) return false;
      to = up(to, each);
      for (std::size_t k = 0; k < n; ++k)
        parts_.push_back({static_cast<std::uint32_t>(from + k * each), static_cast<std::uint32_t>(to + k * each),
                          static_cast<std::uint32_t>(each)});
      to += n * each;
    }
    from += n * each;
    return from < most_bytes;
  };
  switch (type.kind) {
    case Kind::boolean:
    case Kind::string:
    case Kind::sequence: return false;
    case Kind::enumeration: return plain(4, 1);
    case Kind::array: {
      if (const std::size_t each = plain_bytes(type.element->kind)) return plain(each, type.bound);
      for (std::uint32_t k = 0; k < type.bound; ++k)
        if (!place(*type.element, key, from, to)) return false;
      return true;
    }
    case Kind::structure: {
      const bool some = has_key(type);
      return std::all_of(type.fields.begin(), type.fields.end(),
                         [&](const Field& field) { return place(*field.type, key && (field.key || !some), from, to); });
    }
    default: return plain(plain_bytes(type.kind), 1);
  }
}

void KeyMaker::make(Bytes payload, std::vector<std::byte>& into) const {
  if (parts_.empty() || payload.size() < needs_ || payload[0] != std::byte{0} || payload[1] > std::byte{1})
    return serialised_key(*type_, payload, into);
  const bool little = payload[1] == std::byte{1};
  into.assign(bytes_, std::byte{0});
  for (const Part& part : parts_) {
    const std::byte* const from = payload.data() + part.from;
    if (little) std::reverse_copy(from, from + part.bytes, into.data() + part.to);
    else std::copy(from, from + part.bytes, into.data() + part.to);
  }
}

std::size_t most_key_bytes(const Type& type) { return has_key(type) ? key_end(type, 0) : 0; }

std::vector<std::byte> payload_of_key(const Type& type, Bytes serialised_key) {
  CdrReader key = CdrReader::of_key(serialised_key);
  std::vector<std::byte> payload = payload_from(type, key);
  const Bytes rest = serialised_key.subspan(serialised_key.size() - key.left());
  const bool filled = serialised_key.size() == 16 &&
                      std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
  if (!rest.empty() && !filled) payload.clear();
  return payload;
}

std::vector<std::byte> payload_of_key_alone(const Type& type, Bytes payload) {
  CdrReader key(payload);
  return payload_from(type, key);
}

}  // namespace sonde::bus
