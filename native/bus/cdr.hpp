#pragma once
/// Common Data Representation (OMG CORBA/DDSI-RTPS, XCDR version 1): how a sample lies in memory between writer and reader.
///
/// A *payload* is what the wire carries: 4 bytes of encapsulation (00 01 00 00: little endian, plain CDR), then the body, aligned to its
/// beginning. Nothing that comes from the wire is believed: each read is checked against what is there. Any-thread.

#include <bit>
#include <concepts>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bus/types.hpp"

namespace sonde::bus {

inline constexpr std::size_t encapsulation_bytes = 4;

/// Appends fields to a payload. Owner-thread.
class CdrWriter {
 public:
  explicit CdrWriter(std::vector<std::byte>& into);   ///< clears it and writes the encapsulation
  template <typename T> requires std::is_arithmetic_v<T>
  void put(T value) {
    align(sizeof(T));
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
  }
  void put(bool value) { put(static_cast<std::uint8_t>(value)); }
  void put(std::string_view text);                    ///< length with the NUL, characters, NUL
  void put_bytes(Bytes bytes);                        ///< as they are, no length
  void align(std::size_t to);

 private:
  std::vector<std::byte>& bytes_;
};

/// Reads fields of a payload of either byte order. After the first thing that does not fit ok() is false and all reads give zeros.
class CdrReader {
 public:
  explicit CdrReader(Bytes payload);
  template <typename T> requires std::is_arithmetic_v<T>
  T get() {
    const std::byte* at = take(sizeof(T), sizeof(T));
    if (!at) return T{};
    T value;
    std::memcpy(&value, at, sizeof value);
    return swap_ ? swapped(value) : value;
  }
  bool get_bool();                                    ///< anything but 0 and 1 does not fit
  std::string_view get_string(std::uint32_t bound = 0);  ///< within the payload, without the NUL
  std::uint32_t get_length(std::uint32_t bound, std::size_t least_element_bytes);  ///< of a sequence; more than could be left does not fit
  Bytes get_bytes(std::size_t n);
  bool ok() const { return ok_; }
  bool swaps() const { return swap_; }
  std::size_t position() const;                       ///< in the body
  std::size_t left() const;
  void refuse() { ok_ = false; }

 private:
  template <typename T> static T swapped(T value) {
    auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    for (std::size_t k = 0; k < sizeof(T) / 2; ++k) std::swap(bytes[k], bytes[sizeof(T) - 1 - k]);
    return std::bit_cast<T>(bytes);
  }
  const std::byte* take(std::size_t n, std::size_t align);

  Bytes body_;
  std::size_t at_ = 0;
  bool swap_ = false, ok_ = true;
};

/// Whether a payload is a sample of the type: encapsulation known, every length within it and within its bound, strings ended by NUL and
/// without one inside, booleans 0 or 1, enumerators declared, nothing left over but padding (at most 3 bytes). Errors:
/// bus.malformed (the path to the field, what was found, what is allowed). `why` is null where nobody will read it: it is then not made.
bool verify(const Type& type, Bytes payload, std::string* why = nullptr);

/// The key fields alone, big endian plain CDR without encapsulation: what DDSI-RTPS makes its key hash of (as it is, padded with zeros,
/// where it can never be longer than 16 bytes; else its MD5). The payload must have passed verify(). Types without key: empty.
std::vector<std::byte> serialised_key(const Type& type, Bytes payload);
/// Most bytes that serialised_key() can have; SIZE_MAX: unbounded.
std::size_t most_key_bytes(const Type& type);
/// A payload that has these key fields, zeros and empty strings elsewhere: what a disposal without data is shown as.
std::vector<std::byte> payload_of_key(const Type& type, Bytes serialised_key);

}  // namespace sonde::bus
