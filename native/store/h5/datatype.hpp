#pragma once
/// The stored form of elements. An element whose type has a fixed size is stored as it is in memory. A part of variable
/// length (string, sequence, region reference) becomes a slot of 16 bytes, and its data goes to a heap next to the
/// elements:
///
///   u64 position in the heap plus 1, 0 for null;   u64 length: elements of a sequence, else bytes
///
/// Sequences of elements with slots are nested. HDF5's own conversion (H5Tconvert) runs between this form and the
/// caller's type, so types here are always the file's type, with its pointers into memory.

#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/h5/encoded_properties.hpp"
#include "store/types.hpp"

namespace sonde::store::h5 {

/// Owns an HDF5 identifier, and releases it; negative: none.
class Id {
 public:
  Id() = default;
  explicit Id(hid_t id) : id_(id) {}
  Id(Id&& other) noexcept : id_(other.release()) {}
  Id& operator=(Id&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Id() { reset(); }
  operator hid_t() const { return id_; }
  hid_t release() {
    const hid_t id = id_;
    id_ = H5I_INVALID_HID;
    return id;
  }
  void reset(hid_t id = H5I_INVALID_HID) {
    if (id_ > 0) {
      H5Idec_ref(id_);
    }
    id_ = id;
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

/// The identifier. Throws a Failure that names the call if it is negative.
Id need_id(hid_t id, const char* what);
/// The same for functions that return a negative number on failure.
void need_ok(herr_t status, const char* what);

// All bytes that HDF5 decodes from the store pass through these functions. Each checks the bytes first (encoded.hpp,
// encoded_properties.hpp). Errors: io, if the bytes are not a valid HDF5 encoding.

std::string encode_type(hid_t type);
Id decode_type(const std::string& bytes);
/// For types that HDF5 itself will decode.
void check_type(const std::string& bytes);
std::string encode_space(hid_t space);
Id decode_space(const std::string& bytes);
/// Errors: unsupported, for a list that could not be decoded later.
std::string encode_properties(hid_t list, PropertyClass kind);
/// The default list if there are no bytes.
Id decode_properties(const std::string& bytes, PropertyClass kind);

/// Whether a conversion needs the target's previous contents (for parts of compound types). Error: type, no such
/// conversion.
bool needs_background(hid_t from, hid_t to);

class ElementLayout {
 public:
  /// Errors: unsupported, for references of HDF5 1.12's type (H5T_STD_REF): h5py does not have them.
  explicit ElementLayout(hid_t type);

  bool plain() const { return slots_.empty() && references_.empty(); }
  /// Whether its parts include strings or sequences of variable length.
  bool variable() const {
    return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.kind != Slot::Kind::region; });
  }
  std::size_t memory_bytes() const { return memory_bytes_; }
  std::size_t stored_bytes() const { return stored_bytes_; }
  /// Replaces the ids in stored references by the results of `map`; 0 makes a null reference.
  void map_references(std::byte* stored, std::size_t n, std::string& heap,
                      const std::function<std::uint64_t(std::uint64_t)>& map) const;

 private:
  friend class Packer;
  friend class Unpacker;
  struct Slot {
    enum class Kind { string, sequence, region } kind;
    std::size_t memory_at, stored_at;
    std::shared_ptr<ElementLayout> element;  // of sequences
  };
  struct Run {
    std::size_t memory_at, stored_at, bytes;
  };
  void find_slots(hid_t type, std::size_t at);
  void map_references(std::byte* stored, std::size_t n, std::string& heap,
                      const std::function<std::uint64_t(std::uint64_t)>& map, std::uint64_t& left) const;

  std::size_t memory_bytes_ = 0, stored_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::size_t>
      references_;  // offsets of object references: in memory until runs are known, then in stored form
  std::vector<Run> runs_;
};

/// The data that references need. HDF5 makes and reads region references relative to a location in their file. A new
/// object reference may contain an address in the file's shadow (shadow.hpp), and is stored with the object's id.
struct ReferenceCodec {
  std::function<std::uint64_t(std::uint64_t reference)> object;
  std::function<std::string(const void* reference)> encode;
  std::function<void(const std::string& encoded, void* reference)> decode;
};

/// Turns elements in memory into stored ones. Their variable parts are appended to `heap`; its first byte is at
/// `heap_at`.
class Packer {
 public:
  Packer(std::uint64_t heap_at, std::string& heap, const ReferenceCodec* references)
      : heap_at_(heap_at), heap_(heap), references_(references) {}
  void pack(const ElementLayout& layout, const std::byte* memory, std::size_t n, std::byte* stored);

 private:
  std::uint64_t append(std::string_view bytes);
  std::uint64_t heap_at_;
  std::string& heap_;
  const ReferenceCodec* references_;
};

/// Turns stored elements into elements in memory. Their variable parts are from malloc. The Unpacker frees them, unless
/// it is released: then the code that takes the elements frees them (H5Treclaim does).
class Unpacker {
 public:
  struct Want {
    std::uint64_t position;
    MutableBytes into;
  };
  /// The heap that elements point into, with a limit on the memory that they may claim. Sequences are nested: without
  /// the limit a few bytes that point to themselves would claim any amount of memory.
  struct Heap {
    std::function<void(const std::vector<Want>& wants)> read;
    /// Throws if an element points outside. Called before memory is allocated for the element.
    std::function<void(std::uint64_t position, std::uint64_t bytes)> claim;
  };
  Unpacker(Heap heap, const ReferenceCodec* references) : heap_(std::move(heap)), references_(references) {}
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  ~Unpacker();
  void unpack(const ElementLayout& layout, const std::byte* stored, std::size_t n, std::byte* memory);
  void release() { blocks_.clear(); }
  std::uint64_t handed_out() const { return handed_out_; }  ///< bytes

 private:
  std::byte* allocate(std::size_t bytes);
  std::uint64_t handed_out_ = 0;
  Heap heap_;
  const ReferenceCodec* references_;
  std::vector<void*> blocks_;
};

/// A heap that is a string (for attributes): each part of it belongs to one element.
Unpacker::Heap heap_in(const std::string& heap);

}  // namespace sonde::store::h5
