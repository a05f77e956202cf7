#pragma once
/// Checks property lists in the encoding of H5Pencode2 before HDF5 decodes them. H5Pdecode takes no length in any
/// version: damaged bytes make it read past the end. Anybody with write access to a store chooses these bytes.
///
/// Source: HDF5 1.14 and 2.0, which encode these classes in the same way: H5Pencdec.c (the frame and plain numbers),
/// H5Pocpl.c, H5Pdcpl.c, H5Pgcpl.c, H5Pfcpl.c (the properties of each class). Only HDF5 2.0 has chunks over 2^32. Pure,
/// without HDF5. Any-thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "store/h5/encoded.hpp"

namespace sonde::store::h5 {

/// The classes that the connector stores, with HDF5's number for each (H5P_plist_type_t).
enum class PropertyClass : std::uint8_t { file = 3, dataset = 5, group = 9, datatype = 11 };

class PropertyWalk : private EncodedWalk {
 public:
  explicit PropertyWalk(std::span<const std::byte> bytes) : EncodedWalk(bytes) {}

  /// The fault of an encoded property list of this class; "" for a valid one.
  std::string list(PropertyClass wanted) { return read_list(wanted) ? "" : why_; }

 private:
  static constexpr std::size_t max_name = 32, filter_name = 12;
  static constexpr unsigned max_filters = 32;

  bool read_list(PropertyClass wanted) {
    if (!has(2)) return cut();
    if (u8() != 0) return no("has a version other than 0");
    if (u8() != static_cast<unsigned>(wanted)) return no("is of another class");
    std::uint64_t seen = 0;
    for (;;) {
      std::string_view name;
      if (!read_name(name)) return false;
      if (name.empty()) return at_ == bytes_.size() || no("continues beyond its end");
      unsigned number = 0;
      if (!find(wanted, name, number)) return no("has a property that its class does not have");
      if (seen >> number & 1) return no("has a property twice");
      seen |= std::uint64_t{1} << number;
      if (!read_value(number)) return false;
    }
  }

  bool read_name(std::string_view& name) {
    const std::size_t room = std::min(bytes_.size() - at_, max_name);
    const auto* const text = reinterpret_cast<const char*>(bytes_.data() + at_);
    const std::size_t length = std::string_view(text, room).find('\0');
    if (length == std::string_view::npos) return room < max_name ? cut() : no("has a name that does not end");
    name = {text, length};
    at_ += length + 1;
    return true;
  }

  struct Property {
    std::string_view name;
    unsigned classes;
    bool (PropertyWalk::*read)();
  };
  static constexpr unsigned of_file = 1, of_dataset = 2, of_group = 4, of_datatype = 8;
  static constexpr unsigned of_all = of_file | of_dataset | of_group | of_datatype;
  static std::span<const Property> known() {
    using Walk = PropertyWalk;
    static constexpr Property all[] = {
        {"max compact attr", of_all, &Walk::u16_in_u32},
        {"min dense attr", of_all, &Walk::u16_in_u32},
        {"object header flags", of_all, &Walk::header_flags},
        {"pline", of_all, &Walk::filters},
        {"layout", of_dataset, &Walk::layout},
        {"fill_value", of_dataset, &Walk::fill_value},
        {"alloc_time_state", of_dataset, &Walk::flag_in_u32},
        {"efl", of_dataset, &Walk::external_files},
        {"dset_oh_minimize", of_dataset, &Walk::flag},
        {"group info", of_group | of_file, &Walk::group_info},  // a file's root group
        {"link info", of_group | of_file, &Walk::link_info},
        {"block_size", of_file, &Walk::user_block},
        {"symbol_leaf", of_file, &Walk::node_size},
        {"btree_rank", of_file, &Walk::node_sizes},
        {"addr_byte_num", of_file, &Walk::width},
        {"obj_byte_num", of_file, &Walk::width},
        {"num_shmsg_indexes", of_file, &Walk::index_count},
        {"shmsg_message_types", of_file, &Walk::eight_u32},
        {"shmsg_message_minsize", of_file, &Walk::eight_u32},
        {"shmsg_list_max", of_file, &Walk::any_u32},
        {"shmsg_btree_min", of_file, &Walk::any_u32},
        {"file_space_strategy", of_file, &Walk::strategy},
        {"free_space_persist", of_file, &Walk::flag},
        {"free_space_threshold", of_file, &Walk::any_sized},
        {"file_space_page_size", of_file, &Walk::page_size},
    };
    return all;
  }
  static bool find(PropertyClass wanted, std::string_view name, unsigned& number) {
    const unsigned bit = wanted == PropertyClass::file      ? of_file
                         : wanted == PropertyClass::dataset ? of_dataset
                         : wanted == PropertyClass::group   ? of_group
                                                            : of_datatype;
    const auto all = known();
    for (number = 0; number < all.size(); ++number)
      if (all[number].name == name) return (all[number].classes & bit) != 0;
    return false;
  }
  bool read_value(unsigned number) { return (this->*known()[number].read)(); }

  // ---- numbers

  bool no_such_value() { return no("has a property with a value that it cannot have"); }
  bool u8_up_to(std::uint64_t most) {
    if (!has(1)) return cut();
    return u8() <= most || no_such_value();
  }
  /// `count` numbers of four bytes, after a byte with their width.
  bool u32_between(std::uint64_t least, std::uint64_t most, unsigned count = 1) {
    if (!has(1 + 4 * std::uint64_t{count})) return cut();
    if (u8() != 4) return no("has a number with the wrong width");
    for (unsigned k = 0; k < count; ++k)
      if (const std::uint64_t value = number(4); value < least || value > most) return no_such_value();
    return true;
  }
  /// A number in the smallest number of bytes, after a byte with that number.
  bool sized(std::uint64_t& value) {
    if (!has(1)) return cut();
    const unsigned width = u8();
    if (width < 1 || width > 8) return no("has a number with a width other than 1 to 8 B");
    if (!has(width)) return cut();
    value = number(width);
    return width_of(value) == width || no("has a number that takes more bytes than it needs");
  }

  static constexpr std::uint64_t max_u32 = std::numeric_limits<std::uint32_t>::max();
  bool flag() { return u8_up_to(1); }
  bool flag_in_u32() { return u32_between(0, 1); }
  bool u16_in_u32() { return u32_between(0, 65535); }
  bool any_u32() { return u32_between(0, max_u32); }
  bool eight_u32() { return u32_between(0, max_u32, 8); }  // H5O_SHMESG_MAX_NINDEXES
  bool any_sized() {
    std::uint64_t value = 0;
    return sized(value);
  }

  // ---- properties of files

  bool user_block() {
    std::uint64_t bytes = 0;
    if (!sized(bytes)) return false;
    return bytes == 0 || (bytes >= 512 && (bytes & (bytes - 1)) == 0) || no_such_value();
  }
  bool page_size() {
    std::uint64_t bytes = 0;
    if (!sized(bytes)) return false;
    return (bytes >= 512 && bytes <= std::uint64_t{1} << 30) || no_such_value();
  }
  bool node_size() { return u32_between(1, max_u32); }
  bool node_sizes() { return u32_between(1, max_u32, 2); }  // H5B_NUM_BTREE_ID
  bool width() {
    if (!has(1)) return cut();
    const unsigned bytes = u8();
    return bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16 || no_such_value();
  }
  bool index_count() { return u32_between(0, 8); }
  bool strategy() { return u8_up_to(3); }

  // ---- properties of groups and of all objects

  bool group_info() { return skip(12); }
  bool link_info() {
    if (!has(5)) return cut();
    if (u8() != 4) return no("has a number with the wrong width");
    const std::uint64_t order = number(4);
    return order == 0 || order == 1 || order == 3 || no_such_value();  // an indexed order is also tracked
  }
  bool header_flags() { return u8_up_to(0x3f); }  // H5O_HDR_ALL_FLAGS
  bool filters() {
    if (!has(1)) return cut();
    if (u8() != 4) return no("has a number with the wrong width");
    std::uint64_t count = 0;
    if (!sized(count)) return false;
    if (count > max_filters) return no("has more than 32 filters");
    for (std::uint64_t k = 0; k < count; ++k) {
      if (!has(9)) return cut();
      const std::uint64_t id = number(4), flags = number(4);
      const unsigned named = u8();
      if (id > 65535 || flags > 0xff || named > 1) return no("has a filter with impossible values");
      // HDF5 reads a name up to its NUL, which may lie beyond these bytes. The NUL at the end of the list is the last
      // possible one.
      if (named && !skip(filter_name)) return false;
      std::uint64_t values = 0;
      if (!sized(values)) return false;
      if (values > max_u32) return cut();
      if (!skip(4 * values)) return false;
    }
    return true;
  }

  // ---- properties of datasets

  bool layout() {
    if (!has(1)) return cut();
    unsigned kind = u8(), width = 4;
    if (kind == 0xff) {
      if (!has(2)) return cut();
      if (u8() != 1) return no("has a layout of an unknown version");
      kind = u8();
      width = 8;
      if (kind != 2) return no("has a layout of an unknown kind");
    }
    if (kind == 3) return no("has a virtual layout, which the store does not support");
    if (kind > 3) return no("has a layout of an unknown kind");
    if (kind != 2) return true;  // compact, contiguous
    if (!has(1)) return cut();
    const unsigned rank = u8();
    if (rank > max_rank) return no("has chunks of more than 32 axes");
    if (!has(std::uint64_t{rank} * width)) return cut();
    for (unsigned k = 0; k < rank; ++k)
      if (number(width) == 0) return no("has an empty chunk");
    return true;
  }

  bool fill_value() {
    if (!has(10)) return cut();
    const unsigned when_allocated = u8(), when_filled = u8();
    if (when_allocated > 3 || when_filled > 2) return no_such_value();
    const std::uint64_t bytes = number(8);
    if (bytes == 0 || bytes == std::numeric_limits<std::uint64_t>::max()) return true;  // HDF5's default, or undefined
    if (!skip(bytes)) return false;
    std::uint64_t type_bytes = 0;
    if (!sized(type_bytes)) return false;
    if (!has(type_bytes)) return cut();
    EncodedType type(bytes_.subspan(at_, type_bytes));
    at_ += type_bytes;
    if (!type.read()) return no(type.why().c_str());
    // HDF5 frees the target of such a value when it closes the list, even if the pointer is invalid.
    if (type.points()) return no("has a fill value with pointers or references, which are stored elsewhere");
    return type.bytes() == bytes || no("has a fill value whose size is not its type's");
  }

  bool external_files() {
    std::uint64_t count = 0;
    if (!sized(count)) return false;
    return count == 0 || no("names external files, which the store does not support");
  }

  /// A type whose encoding fills its bytes exactly.
  class EncodedType : private EncodedWalk {
   public:
    explicit EncodedType(std::span<const std::byte> bytes) : EncodedWalk(bytes) {}
    bool read() {
      if (!read_message(known_)) return no(("has a fill value whose type " + why_).c_str());
      return at_ == bytes_.size() || no("has a fill value whose type is shorter than its bytes");
    }
    std::uint64_t bytes() const { return known_.bytes; }
    bool points() const { return points_; }
    const std::string& why() const { return why_; }

   private:
    Known known_;
  };
};

/// The fault of bytes that should be H5Pencode2's output for a list of this class; "" for none.
inline std::string wrong_with_properties(const std::string& bytes, PropertyClass wanted) {
  return PropertyWalk(std::as_bytes(std::span(bytes))).list(wanted);
}

}  // namespace sonde::store::h5
