#pragma once
/// Common Data Representation (OMG CORBA/DDSI-RTPS, XCDR version 1): the layout of a sample between writer and reader.
///
/// A *payload* is the data on the wire: 4 bytes of encapsulation (00 01 00 00: little endian, plain CDR), then the
/// body, aligned to its beginning. Data from the wire is not trusted: each read is checked against the bytes
/// that are left. Any-thread.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bus/types.hpp"

namespace sonde::bus {

inline constexpr std::size_t encapsulation_bytes = 4;
inline constexpr std::size_t most_padding = 3;  ///< after the last field: payloads are padded to a multiple of 4

/// The types of get() and put(): 1, 2, 4 or 8 bytes, aligned to their size.
template <typename T>
concept CdrNumber = std::is_arithmetic_v<T> && !std::same_as<T, bool> && sizeof(T) <= 8;

/// Appends fields to a payload. Owner-thread.
class CdrWriter {
 public:
  explicit CdrWriter(std::vector<std::byte>& into);  ///< clears it and writes the encapsulation
  template <CdrNumber T> void put(T value) {
    align(sizeof(T));
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
  }
  void put(std::same_as<bool> auto value) { put(static_cast<std::uint8_t>(value)); }
  void put(std::string_view text);                      ///< length with the NUL, characters, NUL
  void put_bytes(Bytes bytes);                          ///< unchanged, without a length
  void put_elements(Bytes elements, std::size_t each);  ///< numbers of `each` bytes, aligned, no length
  void align(std::size_t to);

 private:
  std::vector<std::byte>& bytes_;
};

/// Reads fields of a payload of either byte order. After the first error ok() is false and all reads return zeros.
class CdrReader {
 public:
  explicit CdrReader(Bytes payload);
  static CdrReader of_key(Bytes serialised_key);  ///< a body that is big endian, without encapsulation
  template <CdrNumber T> T get() {
    const std::byte* at = take(sizeof(T), sizeof(T));
    if (!at) return T{};
    T value;
    std::memcpy(&value, at, sizeof value);
    return swap_ ? swapped(value) : value;
  }
  bool get_bool();                                       ///< values other than 0 and 1 are errors
  std::string_view get_string(std::uint32_t bound = 0);  ///< within the payload, without the NUL
  std::uint32_t get_length(std::uint32_t bound,
                           std::size_t least_element_bytes);  ///< of a sequence; more than the bytes left is an error
  Bytes get_bytes(std::size_t n);
  Bytes get_elements(std::size_t n,
                     std::size_t each);  ///< n numbers of `each` bytes as they lie there, in the payload's byte order
  bool ok() const { return ok_; }
  bool swaps() const { return swap_; }
  std::size_t position() const;  ///< in the body
  std::size_t left() const;
  void refuse() { ok_ = false; }

 private:
  template <typename T> static T swapped(T value) {
    auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    for (std::size_t k = 0; k < sizeof(T) / 2; ++k) std::swap(bytes[k], bytes[sizeof(T) - 1 - k]);
    return std::bit_cast<T>(bytes);
  }
  CdrReader() = default;
  const std::byte* take(std::size_t n, std::size_t align) {
    const std::size_t at = (at_ + align - 1) & ~(align - 1);
    if (!ok_ || at > body_.size() || n > body_.size() - at) {
      ok_ = false;
      return nullptr;
    }
    at_ = at + n;
    return body_.data() + at;
  }

  Bytes body_;
  std::size_t at_ = 0;
  bool swap_ = false, ok_ = true;
};

/// Whether a payload is a sample of the type: encapsulation known, every length within it and within its bound, strings
/// ended by NUL and without one inside, booleans 0 or 1, enumerators declared, nothing left over but padding (at most 3
/// bytes). Errors: bus.malformed (the path to the field, what was found, what is allowed). `why` is null where nobody
/// will read it: it is then not made. For more than a few samples of a type: Checker.
bool verify(const Type& type, Bytes payload, std::string* why = nullptr);

/// verify() for many samples of one type: what there is to check is worked out once, runs of fields without anything to
/// check are one addition. Any-thread.
class Checker {
 public:
  explicit Checker(TypePtr type);  ///< one that check() lets pass
  bool verify(Bytes payload) const;
  bool verify(Bytes payload, std::string* why) const { return verify(payload) || bus::verify(*type_, payload, why); }
  const TypePtr& type() const { return type_; }

 private:
  /// How far a run of fields reaches depends on where it begins, since fields are aligned: by the beginning modulo 8.
  struct Run {
    std::array<std::uint64_t, 8> reach{};
    std::uint32_t align = 1;  ///< of the widest field: reach repeats so
    std::uint64_t after(std::uint64_t at, std::uint64_t times) const;
  };
  struct Enumeration {
    std::int32_t least = 0;
    std::uint32_t others = 0;          ///< values above the least, where they follow each other
    std::vector<std::int32_t> sorted;  ///< where they do not
  };
  enum class Op : std::uint8_t { run, boolean, enumeration, string, runs, sequence, array };
  struct Step {
    Op op = Op::run;
    std::uint32_t number = 0;  ///< which run or enumeration; of an array: how many
    std::uint32_t bound = 0;   ///< string, runs, sequence; 0: none
    std::uint32_t least = 1;   ///< sequence, array: bytes that an element has at least
    std::uint32_t body = 0;    ///< sequence, array: steps that follow and are its element's
  };
  struct State;
  using Program = std::vector<Step>;

  void compile(const Type& type, Program& into);
  void add(const Run& run, Program& into);
  template <bool swap> bool go(const Step* at, const Step* end, State& state) const;

  TypePtr type_;
  Program program_;
  std::vector<Run> runs_;
  std::vector<Enumeration> enumerations_;
};

/// A sample of zeros, empty strings and sequences, first enumerators.
void put_default(const Type& type, CdrWriter& out);

/// The key fields alone, big endian plain CDR without encapsulation: what DDSI-RTPS makes its key hash of (as it is,
/// padded with zeros, where it can never be longer than 16 bytes; else its MD5). The payload must have passed verify().
/// Types without key: empty.
std::vector<std::byte> serialised_key(const Type& type, Bytes payload);
/// Into what is there, whose memory is used again.
void serialised_key(const Type& type, Bytes payload, std::vector<std::byte>& into);
/// serialised_key() for many payloads of one type: where the key fields have fixed places, they are copied from there.
class KeyMaker {
 public:
  explicit KeyMaker(TypePtr type);
  bool keyed() const { return keyed_; }
  /// As serialised_key().
  void make(Bytes payload, std::vector<std::byte>& into) const;

 private:
  struct Part {
    std::uint32_t from, to, bytes;  ///< in the payload, in the key
  };
  bool place(const Type& type, bool key, std::size_t& from, std::size_t& to);

  TypePtr type_;
  bool keyed_;
  std::vector<Part> parts_;  ///< empty: they have none
  std::size_t needs_ = 0, bytes_ = 0;
};
/// The largest size of serialised_key(); SIZE_MAX: unbounded.
std::size_t most_key_bytes(const Type& type);
/// A payload that has these key fields, zeros, empty strings and first enumerators elsewhere: what a disposal without
/// data is shown as.
/// Empty: they are not a key of the type. Zeros that fill a key up to the 16 bytes of a key hash are no part of it.
std::vector<std::byte> payload_of_key(const Type& type, Bytes serialised_key);
/// The same of a payload of either byte order that has the key fields alone, as disposals have; what is behind them is
/// no matter.
std::vector<std::byte> payload_of_key_alone(const Type& type, Bytes payload);

}  // namespace sonde::bus
