#pragma once
/// Checks datatypes and dataspaces in HDF5's encoding before HDF5 decodes them. Before version 2.0, HDF5's decoders
/// take no length: damaged bytes make them read past the end. Anybody with write access to a store chooses these bytes.
///
/// Source: HDF5 File Format Specification 3.0, IV.A.2.d "The Datatype Message", IV.A.2.b "The Dataspace Message", and
/// VIII.A "Dataspace selections"; H5Tencode and H5Sencode put two and seven bytes before them (H5T.c, H5S.c). Pure,
/// without HDF5. Any-thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sonde::store::h5 {

class EncodedWalk {
 public:
  explicit EncodedWalk(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// The fault of an encoded datatype; "" for a valid one. Bytes beyond its end are ignored.
  std::string type() {
    Known known;
    return read_message(known) ? "" : why_;
  }

  /// The fault of an encoded dataspace; "" for a valid one.
  std::string space() {
    if (!has(7) || u8() != dataspace_message || u8() != 0) return say("does not begin as one");
    const unsigned width = u8();
    const std::uint64_t extent = number(4);
    if (width != 2 && width != 4 && width != 8) return say("has lengths with a width other than 2, 4 and 8 B");
    if (!has(extent)) return say("is longer than the stored bytes");
    const std::size_t end = at_ + extent;
    unsigned rank = 0;
    if (!read_extent(end, width, rank)) return why_;
    at_ = end;
    return read_selection(rank) ? "" : why_;
  }

 protected:
  static constexpr unsigned datatype_message = 3, dataspace_message = 1;
  static constexpr unsigned max_rank = 32, max_depth = 32;
  static constexpr std::uint64_t max_blocks = std::uint64_t{1} << 32;

  struct Known {
    unsigned kind = 0;
    std::uint64_t bytes = 0;
  };

  std::string say(const char* why) { return why_ = why; }
  bool no(const char* why) {
    why_ = why;
    return false;
  }
  bool has(std::uint64_t n) const { return n <= bytes_.size() - at_; }
  unsigned u8() { return std::to_integer<unsigned>(bytes_[at_++]); }
  /// The caller must have checked has().
  std::uint64_t number(unsigned n) {
    std::uint64_t out = 0;
    for (unsigned k = 0; k < n; ++k) out |= std::uint64_t{u8()} << (8 * k);
    return out;
  }
  bool cut() { return no("is longer than the stored bytes"); }
  bool skip(std::uint64_t n) {
    if (!has(n)) return cut();
    at_ += n;
    return true;
  }
  /// Skips a name and its NUL; older versions pad it to eight bytes.
  bool skip_name(unsigned version) {
    std::size_t end = at_;
    while (end < bytes_.size() && bytes_[end] != std::byte{0}) ++end;
    if (end == bytes_.size()) return cut();
    const std::size_t length = end - at_ + 1;
    return skip(version >= 3 ? length : (length + 7) / 8 * 8);
  }
  /// The number of bytes for values up to `most` (H5VM_limit_enc_size).
  static unsigned width_of(std::uint64_t most) {
    unsigned n = 1;
    while (most >>= 8) ++n;
    return n;
  }

  bool read_message(Known& out) {
    if (!has(2) || u8() != datatype_message || u8() != 0) return no("does not begin as one");
    return read_type(out, 0);
  }

  bool read_type(Known& out, unsigned depth) {
    if (depth > max_depth) return no("is nested deeper than 32 levels");
    if (!has(8)) return cut();
    const unsigned first = u8(), kind = first & 0x0f, version = first >> 4;
    const std::uint64_t flags = number(3), bytes = number(4), bits = 8 * bytes;
    if (version < 1 || version > 5) return no("has a version other than 1 to 5");
    if (bytes == 0) return no("has a part of 0 B");
    out = {kind, bytes};
    points_ |= kind == 7 || kind == 9;
    switch (kind) {
      case 0:    // integers
      case 4: {  // bit fields
        if (!has(4)) return cut();
        const std::uint64_t offset = number(2), precision = number(2);
        return (precision > 0 && offset + precision <= bits) || no("has bits outside of a number");
      }
      case 1: {  // floating point
        if (!has(12)) return cut();
        const std::uint64_t offset = number(2), precision = number(2), exponent_at = number(1), exponent = number(1);
        const std::uint64_t mantissa_at = number(1), mantissa = number(1), sign = flags >> 8 & 0xff;
        number(4);
        return (precision > 0 && offset + precision <= bits && exponent_at + exponent <= bits &&
                mantissa_at + mantissa <= bits && sign < bits) ||
               no("has bits outside of a number");
      }
      case 2:  // times
        if (!has(2)) return cut();
        return number(2) <= bits || no("has bits outside of a number");
      case 3: return true;                // strings of fixed length
      case 5: return skip(flags & 0xff);  // opaque: a tag
      case 6: return read_members(bytes, flags & 0xffff, version, depth);
      case 7: return true;  // references
      case 8: {             // enumerations
        Known base;
        if (!read_type(base, depth + 1)) return false;
        if (base.kind != 0 || base.bytes != bytes)
          return no("has an enumeration whose base is not an integer of its size");
        const std::uint64_t members = flags & 0xffff;
        for (std::uint64_t k = 0; k < members; ++k)
          if (!skip_name(version)) return false;
        return skip(members * bytes);
      }
      case 9: {  // sequences and strings of variable length
        Known base;
        return read_type(base, depth + 1);
      }
      case 10: {  // arrays
        if (version < 2) return no("has an array in a version without arrays");
        if (!has(1)) return cut();
        const unsigned rank = u8();
        if (rank < 1 || rank > max_rank) return no("has an array with a rank other than 1 to 32");
        if (version < 3 && !skip(3)) return false;
        if (!has(4 * std::uint64_t{rank})) return cut();
        std::uint64_t elements = 1;
        for (unsigned k = 0; k < rank; ++k) {
          elements *= number(4);
          if (elements == 0 || elements > bytes) return no("has an array that is larger than its size");
        }
        if (version < 3 && !skip(4 * std::uint64_t{rank})) return false;
        Known base;
        if (!read_type(base, depth + 1)) return false;
        return elements * base.bytes == bytes || no("has an array whose elements do not add up to its size");
      }
      case 11: {  // complex numbers
        if (version < 5) return no("has a complex number in a version without them");
        Known base;
        if (!read_type(base, depth + 1)) return false;
        return (base.kind == 1 && 2 * base.bytes == bytes) || no("has a complex number that is not two floats");
      }
      default: return no("has a part of an unknown class");
    }
  }

  bool read_members(std::uint64_t bytes, std::uint64_t members, unsigned version, unsigned depth) {
    if (members == 0) return no("has a compound without a member");
    for (std::uint64_t k = 0; k < members; ++k) {
      if (!skip_name(version)) return false;
      const unsigned width = version >= 3 ? width_of(bytes) : 4;
      if (!has(width)) return cut();
      const std::uint64_t offset = number(width);
      if (version == 1) {
        if (!has(28)) return cut();
        if (u8() != 0) return no("has a member with dimensions, an obsolete form");
        skip(27);
      }
      Known member;
      if (!read_type(member, depth + 1)) return false;
      if (offset > bytes || member.bytes > bytes - offset) return no("has a member outside of its compound");
    }
    return true;
  }

  bool read_extent(std::size_t end, unsigned width, unsigned& rank) {
    if (end - at_ < 4) return no("has an extent that is cut off");
    const unsigned version = u8();
    rank = u8();
    const unsigned flags = u8(), kind = u8();
    if (version != 1 && version != 2) return no("has a version other than 1 and 2");
    if (rank > max_rank) return no("has more than 32 dims");
    if (version == 2 && (kind > 2 || (kind == 1) != (rank > 0))) return no("has dims that do not match its kind");
    if (flags & ~1u) return no("has flags other than 0 and 1");
    const std::uint64_t wanted = (version == 1 ? 4 : 0) + std::uint64_t{rank} * width * (flags & 1 ? 2 : 1);
    if (end - at_ < wanted) return no("has an extent that is cut off");
    return true;
  }

  bool read_selection(unsigned rank) {
    if (!has(8)) return cut();
    const std::uint64_t kind = number(4), version = number(4);
    if (kind == 0 || kind == 3)  // none, all
      return (version == 1 && skip(8)) || (why_.empty() ? no("has a selection of an unknown version") : false);
    if (kind == 1) return read_points(rank, version);
    if (kind == 2) return read_blocks(rank, version);
    return no("has a selection of an unknown kind");
  }

  bool right_rank(unsigned rank) {
    if (!has(4)) return cut();
    return (number(4) == rank && rank > 0) || no("has a selection whose rank is not the dataspace's");
  }
  /// Skips `count` groups of `each` numbers of `width` bytes.
  bool skip_numbers(std::uint64_t count, std::uint64_t each, unsigned width) {
    if (count > max_blocks) return cut();
    return skip(count * each * width);
  }

  bool read_points(unsigned rank, std::uint64_t version) {
    unsigned width = 4;
    if (version == 1) {
      if (!skip(8)) return false;
    } else if (version == 2) {
      if (!has(1)) return cut();
      width = u8();
      if (width != 2 && width != 4 && width != 8) return no("has a selection with numbers of an unknown width");
    } else {
      return no("has a selection of an unknown version");
    }
    if (!right_rank(rank)) return false;
    if (!has(width)) return cut();
    return skip_numbers(number(width), rank, width);
  }

  bool read_blocks(unsigned rank, std::uint64_t version) {
    unsigned width = 4;
    bool regular = false;
    if (version == 1) {
      if (!skip(8)) return false;
    } else if (version == 2 || version == 3) {
      if (!has(5)) return cut();
      const unsigned flags = u8();
      regular = (flags & 1) != 0;
      if (flags & ~1u) return no("has a selection with unknown flags");
      if (version == 2) {
        if (!regular) return no("has a selection of blocks that does not match its version");
        width = 8;
        skip(4);
      } else {
        width = u8();
        if (width != 2 && width != 4 && width != 8) return no("has a selection with numbers of an unknown width");
      }
    } else {
      return no("has a selection of an unknown version");
    }
    if (!right_rank(rank)) return false;
    if (regular) return skip_numbers(4, rank, width);
    if (!has(width)) return cut();
    return skip_numbers(number(width), 2 * std::uint64_t{rank}, width);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::string why_;
  bool points_ = false;  // part of the type is a pointer or a reference in memory
};

/// The fault of bytes that should be H5Tencode's output; "" for none.
inline std::string wrong_with_type(const std::string& bytes) {
  return EncodedWalk(std::as_bytes(std::span(bytes))).type();
}
/// The same for H5Sencode.
inline std::string wrong_with_space(const std::string& bytes) {
  return EncodedWalk(std::as_bytes(std::span(bytes))).space();
}

}  // namespace sonde::store::h5
