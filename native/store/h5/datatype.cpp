#include "store/h5/datatype.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <new>

#include "store/h5/encoded.hpp"
#include "store/h5/failure.hpp"

namespace sonde::store::h5 {
namespace {

constexpr std::size_t slot_bytes = 16;
constexpr std::size_t max_slots = std::size_t{1}
                                  << 20;  // of one element: each takes memory, and a few bytes claim any number

struct SlotValue {
  std::uint64_t position_1, length;
};
static_assert(sizeof(SlotValue) == slot_bytes);

constexpr std::uint64_t most_bytes = std::numeric_limits<std::ptrdiff_t>::max();

[[noreturn]] void points_outside() {
  fail(Why::io, "an element of variable length in the store is damaged: it points outside of the stored data");
}

// The bytes of `n` parts. Fails if they are too many for memory.
std::uint64_t part_bytes(std::uint64_t n, std::uint64_t each) {
  if (n > most_bytes / std::max<std::uint64_t>(each, 1)) {
    points_outside();
  }
  return n * each;
}

}  // namespace

Id need_id(hid_t id, const char* what) {
  if (id < 0) {
    fail(Why::invalid, std::string("HDF5 refused ") + what);
  }
  return Id(id);
}

void need_ok(herr_t status, const char* what) {
  if (status < 0) {
    fail(Why::invalid, std::string("HDF5 refused ") + what);
  }
}

std::string encode_type(hid_t type) {
  std::size_t n = 0;
  need_ok(H5Tencode(type, nullptr, &n), "to encode the datatype");
  std::string out(n, '\0');
  need_ok(H5Tencode(type, out.data(), &n), "to encode the datatype");
  return out;
}

namespace {

// A decoded reference type inside a sequence lacks HDF5's in-memory mark, and so compares unequal to an equal type.
Id with_known_references(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_REFERENCE:
      return need_id(H5Tcopy(H5Tget_size(type) == sizeof(hobj_ref_t)        ? H5T_STD_REF_OBJ
                             : H5Tget_size(type) == sizeof(hdset_reg_ref_t) ? H5T_STD_REF_DSETREG
                                                                            : type),
                     "a copy of a type");
    case H5T_VLEN:
      return need_id(H5Tvlen_create(with_known_references(need_id(H5Tget_super(type), "a type's base"))),
                     "a sequence type");
    case H5T_ARRAY: {
      std::vector<hsize_t> dims(static_cast<std::size_t>(H5Tget_array_ndims(type)));
      H5Tget_array_dims2(type, dims.data());
      return need_id(H5Tarray_create2(with_known_references(need_id(H5Tget_super(type), "a type's base")),
                                      static_cast<unsigned>(dims.size()), dims.data()),
                     "an array type");
    }
    case H5T_COMPOUND: {
      Id out = need_id(H5Tcreate(H5T_COMPOUND, H5Tget_size(type)), "a compound type");
      for (unsigned k = 0, n = static_cast<unsigned>(H5Tget_nmembers(type)); k < n; ++k) {
        char* const name = H5Tget_member_name(type, k);
        const Id member = with_known_references(need_id(H5Tget_member_type(type, k), "a member's type"));
        const herr_t inserted = H5Tinsert(out, name, H5Tget_member_offset(type, k), member);
        H5free_memory(name);
        need_ok(inserted, "a member of a compound type");
      }
      return out;
    }
    default: return need_id(H5Tcopy(type), "a copy of a type");
  }
}

}  // namespace

void check_type(const std::string& bytes) {
  if (const auto wrong = wrong_with_type(bytes); !wrong.empty()) {
    fail(Why::io, "a datatype in the store is damaged: it " + wrong);
  }
}

Id decode_type(const std::string& bytes) {
  check_type(bytes);
#if H5_VERSION_GE(2, 0, 0)
  Id type = need_id(H5Tdecode2(bytes.data(), bytes.size()), "to decode a datatype");
#else
  Id type = need_id(H5Tdecode(bytes.data()), "to decode a datatype");
#endif
  return H5Tdetect_class(type, H5T_REFERENCE) > 0 ? with_known_references(type) : std::move(type);
}

std::string encode_space(hid_t space) {
  std::size_t n = 0;
  need_ok(H5Sencode2(space, nullptr, &n, H5P_DEFAULT), "to encode the dataspace");
  std::string out(n, '\0');
  need_ok(H5Sencode2(space, out.data(), &n, H5P_DEFAULT), "to encode the dataspace");
  return out;
}

Id decode_space(const std::string& bytes) {
  if (const auto wrong = wrong_with_space(bytes); !wrong.empty()) {
    fail(Why::io, "a dataspace in the store is damaged: it " + wrong);
  }
  return need_id(H5Sdecode(bytes.data()), "to decode a dataspace");
}

std::string encode_properties(hid_t list, PropertyClass kind) {
  std::size_t n = 0;
  need_ok(H5Pencode2(list, nullptr, &n, H5P_DEFAULT), "to encode a property list");
  // HDF5 2.0 to 2.2 write two bytes more than they report if a chunk's axis has 2^32 elements or more.
  std::string out(n + 16, '\0');
  need_ok(H5Pencode2(list, out.data(), &n, H5P_DEFAULT), "to encode a property list");
  out.resize(n);
  if (const auto wrong = wrong_with_properties(out, kind); !wrong.empty()) {
    fail(Why::unsupported, "the store cannot take this property list: in HDF5's encoding it " + wrong);
  }
  return out;
}

Id decode_properties(const std::string& bytes, PropertyClass kind) {
  if (bytes.empty()) {
    return need_id(H5Pcopy(kind == PropertyClass::file      ? H5P_FILE_CREATE_DEFAULT
                           : kind == PropertyClass::dataset ? H5P_DATASET_CREATE_DEFAULT
                           : kind == PropertyClass::group   ? H5P_GROUP_CREATE_DEFAULT
                                                            : H5P_DATATYPE_CREATE_DEFAULT),
                   "a copy of a property list");
  }
  if (const auto wrong = wrong_with_properties(bytes, kind); !wrong.empty()) {
    fail(Why::io, "a property list in the store is damaged: it " + wrong);
  }
  return need_id(H5Pdecode(bytes.data()), "to decode a property list");
}

bool needs_background(hid_t from, hid_t to) {
  H5T_cdata_t* how = nullptr;
  if (!H5Tfind(from, to, &how) || !how) {
    fail(Why::type, "HDF5 has no conversion between the dataset's type and the type in memory");
  }
  return how->need_bkg != H5T_BKG_NO;
}

ElementLayout::ElementLayout(hid_t type) : memory_bytes_(H5Tget_size(type)) {
  find_slots(type, 0);
  std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.memory_at < b.memory_at; });
  std::size_t memory = 0;
  auto run_to = [&](std::size_t end) {
    if (end > memory) {
      runs_.push_back({memory, stored_bytes_, end - memory});
      stored_bytes_ += end - memory;
    }
  };
  for (auto& slot : slots_) {
    run_to(slot.memory_at);
    slot.stored_at = stored_bytes_;
    stored_bytes_ += slot_bytes;
    memory = slot.memory_at + (slot.kind == Slot::Kind::string     ? sizeof(char*)
                               : slot.kind == Slot::Kind::sequence ? sizeof(hvl_t)
                                                                   : sizeof(hdset_reg_ref_t));
  }
  run_to(memory_bytes_);
  for (auto& at : references_) {
    const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) { return at < r.memory_at + r.bytes; });
    at = run->stored_at + (at - run->memory_at);
  }
}

void ElementLayout::find_slots(hid_t type, std::size_t at) {
  switch (H5Tget_class(type)) {
    case H5T_STRING:
      if (H5Tis_variable_str(type) > 0) {
        slots_.push_back({Slot::Kind::string, at, 0, nullptr});
      }
      break;
    case H5T_VLEN: {
      const Id base = need_id(H5Tget_super(type), "the base of a sequence type");
      slots_.push_back({Slot::Kind::sequence, at, 0, std::make_shared<ElementLayout>(base)});
      break;
    }
    case H5T_COMPOUND:
      for (int k = 0, n = H5Tget_nmembers(type); k < n; ++k) {
        const Id member = need_id(H5Tget_member_type(type, static_cast<unsigned>(k)), "a member of a compound type");
        find_slots(member, at + H5Tget_member_offset(type, static_cast<unsigned>(k)));
      }
      break;
    case H5T_ARRAY: {
      const Id base = need_id(H5Tget_super(type), "the base of an array type");
      const auto before = slots_.size() + references_.size();
      find_slots(base, at);
      if (slots_.size() + references_.size() > before) {
        const auto size = H5Tget_size(base);
        const auto each = slots_.size() + references_.size() - before;
        if (before + H5Tget_size(type) / size * each > max_slots) {
          fail(Why::unsupported,
               "an array of one element has more than 1048576 parts of variable length or references");
        }
        for (std::size_t k = 1, n = H5Tget_size(type) / size; k < n; ++k) {
          find_slots(base, at + k * size);
        }
      }
      break;
    }
    case H5T_REFERENCE:
      if (H5Tget_size(type) == sizeof(hdset_reg_ref_t)) {
        slots_.push_back({Slot::Kind::region, at, 0, nullptr});
      } else if (H5Tget_size(type) == sizeof(hobj_ref_t)) {
        references_.push_back(at);
      } else {
        fail(Why::unsupported,
             "the store supports references of the types H5T_STD_REF_OBJ and H5T_STD_REF_DSETREG, not H5T_STD_REF");
      }
      break;
    default: break;
  }
}

void ElementLayout::map_references(std::byte* stored, std::size_t n, std::string& heap,
                                   const std::function<std::uint64_t(std::uint64_t)>& map) const {
  // Elements that were never written share the heap part of the fill value.
  std::uint64_t left = n > 0 && heap.size() > most_bytes / n ? most_bytes : heap.size() * n;
  map_references(stored, n, heap, map, left);
}

void ElementLayout::map_references(std::byte* stored, std::size_t n, std::string& heap,
                                   const std::function<std::uint64_t(std::uint64_t)>& map, std::uint64_t& left) const {
  auto map_at = [&](std::byte* at) {
    std::uint64_t id;
    std::memcpy(&id, at, sizeof id);
    const auto mapped = id ? map(id) : 0;
    std::memcpy(at, &mapped, sizeof mapped);
    return mapped;
  };
  for (std::size_t k = 0; k < n; ++k, stored += stored_bytes_) {
    for (const auto at : references_) {
      map_at(stored + at);
    }
    for (const auto& slot : slots_) {
      SlotValue value;
      std::memcpy(&value, stored + slot.stored_at, sizeof value);
      if (value.position_1 == 0 || slot.kind == Slot::Kind::string) {
        continue;
      }
      const bool sequence = slot.kind == Slot::Kind::sequence;
      const auto bytes = sequence ? part_bytes(value.length, slot.element->stored_bytes()) : sizeof(std::uint64_t);
      if (value.position_1 - 1 > heap.size() || bytes > heap.size() - (value.position_1 - 1) || bytes > left) {
        points_outside();
      }
      left -= bytes;
      auto* const there = reinterpret_cast<std::byte*>(heap.data()) + (value.position_1 - 1);
      if (sequence) {
        slot.element->map_references(there, value.length, heap, map, left);
      } else if (map_at(there) == 0) {  // a region's record begins with its dataset
        std::memset(stored + slot.stored_at, 0, slot_bytes);
      }
    }
  }
}

std::uint64_t Packer::append(std::string_view bytes) {
  const auto position = heap_at_ + heap_.size() + 1;
  heap_.append(bytes);
  return position;
}

void Packer::pack(const ElementLayout& layout, const std::byte* memory, std::size_t n, std::byte* stored) {
  for (std::size_t k = 0; k < n; ++k, memory += layout.memory_bytes_, stored += layout.stored_bytes_) {
    for (const auto& run : layout.runs_) {
      std::memcpy(stored + run.stored_at, memory + run.memory_at, run.bytes);
    }
    for (const auto at : layout.references_) {
      std::uint64_t reference;
      std::memcpy(&reference, stored + at, sizeof reference);
      reference = references_->object(reference);
      std::memcpy(stored + at, &reference, sizeof reference);
    }
    for (const auto& slot : layout.slots_) {
      SlotValue value{0, 0};
      const std::byte* const at = memory + slot.memory_at;
      switch (slot.kind) {
        case ElementLayout::Slot::Kind::string: {
          const char* text;
          std::memcpy(static_cast<void*>(&text), at, sizeof text);
          if (text) {
            const std::string_view view(text);
            value = {append(view), view.size()};
          }
          break;
        }
        case ElementLayout::Slot::Kind::sequence: {
          hvl_t sequence;
          std::memcpy(&sequence, at, sizeof sequence);
          if (sequence.len > 0 && sequence.p) {
            const auto& element = *slot.element;
            const auto* const first = static_cast<const std::byte*>(sequence.p);
            value.length = sequence.len;
            if (element.plain()) {
              value.position_1 = append({reinterpret_cast<const char*>(first), sequence.len * element.memory_bytes()});
            } else {
              std::string packed(sequence.len * element.stored_bytes(), '\0');
              pack(element, first, sequence.len, reinterpret_cast<std::byte*>(packed.data()));
              value.position_1 = append(packed);
            }
          }
          break;
        }
        case ElementLayout::Slot::Kind::region: {
          const bool null =
              std::all_of(at, at + sizeof(hdset_reg_ref_t), [](std::byte b) { return b == std::byte{0}; });
          if (!null) {
            const auto encoded = references_->encode(at);
            value = {append(encoded), encoded.size()};
          }
          break;
        }
      }
      std::memcpy(stored + slot.stored_at, &value, sizeof value);
    }
  }
}

std::byte* Unpacker::allocate(std::size_t bytes) {
  void* const block = std::malloc(std::max<std::size_t>(bytes, 1));
  if (!block) {
    throw std::bad_alloc();
  }
  blocks_.push_back(block);
  handed_out_ += bytes;
  return static_cast<std::byte*>(block);
}

Unpacker::~Unpacker() {
  for (void* const block : blocks_) {
    std::free(block);
  }
}

// Works level by level, so the heap is read once for all elements of a level, not once for each element.
void Unpacker::unpack(const ElementLayout& layout, const std::byte* stored, std::size_t n, std::byte* memory) {
  struct Task {
    const ElementLayout* layout;
    const std::byte* stored;
    std::size_t n;
    std::byte* memory;
    std::unique_ptr<std::byte[]> own;  // the bytes of `stored`, if they were read from the heap
  };
  struct Region {
    std::byte* memory;
    std::string encoded;
  };
  std::vector<Task> level;
  level.push_back({&layout, stored, n, memory, nullptr});
  std::deque<Region> regions;
  const auto claim = [this](const SlotValue& value, std::uint64_t bytes) {
    if (value.position_1 == 0 || value.position_1 > most_bytes) {
      points_outside();
    }
    heap_.claim(value.position_1 - 1, bytes);
  };
  while (!level.empty()) {
    std::vector<Want> wants;
    std::vector<Task> next;
    for (const auto& task : level) {
      const std::byte* from = task.stored;
      std::byte* to = task.memory;
      for (std::size_t k = 0; k < task.n; ++k, from += task.layout->stored_bytes_, to += task.layout->memory_bytes_) {
        for (const auto& run : task.layout->runs_) {
          std::memcpy(to + run.memory_at, from + run.stored_at, run.bytes);
        }
        for (const auto& slot : task.layout->slots_) {
          SlotValue value;
          std::memcpy(&value, from + slot.stored_at, sizeof value);
          std::byte* const at = to + slot.memory_at;
          switch (slot.kind) {
            case ElementLayout::Slot::Kind::string: {
              char* text = nullptr;
              if (value.position_1) {
                claim(value, part_bytes(value.length, 1));
                auto* const block = allocate(value.length + 1);
                block[value.length] = std::byte{0};
                wants.push_back({value.position_1 - 1, {block, value.length}});
                text = reinterpret_cast<char*>(block);
              }
              std::memcpy(at, static_cast<const void*>(&text), sizeof text);
              break;
            }
            case ElementLayout::Slot::Kind::sequence: {
              hvl_t sequence{0, nullptr};
              if (value.length) {
                const auto& element = *slot.element;
                claim(value, part_bytes(value.length, element.stored_bytes()));
                auto* const block = allocate(part_bytes(value.length, element.memory_bytes()));
                sequence = {value.length, block};
                if (element.plain()) {
                  wants.push_back({value.position_1 - 1, {block, value.length * element.memory_bytes()}});
                } else {
                  const auto bytes = value.length * element.stored_bytes();
                  auto own = std::make_unique<std::byte[]>(bytes);
                  wants.push_back({value.position_1 - 1, {own.get(), bytes}});
                  const auto* const packed = own.get();
                  next.push_back({&element, packed, value.length, block, std::move(own)});
                }
              }
              std::memcpy(at, &sequence, sizeof sequence);
              break;
            }
            case ElementLayout::Slot::Kind::region:
              std::memset(at, 0, sizeof(hdset_reg_ref_t));
              if (value.position_1) {
                claim(value, part_bytes(value.length, 1));
                auto& region = regions.emplace_back(Region{at, std::string(value.length, '\0')});
                wants.push_back(
                    {value.position_1 - 1, {reinterpret_cast<std::byte*>(region.encoded.data()), value.length}});
              }
              break;
          }
        }
      }
    }
    if (!wants.empty()) {
      heap_.read(wants);
    }
    level = std::move(next);
  }
  for (const auto& region : regions) {
    references_->decode(region.encoded, region.memory);
  }
}

Unpacker::Heap heap_in(const std::string& heap) {
  Unpacker::Heap out;
  out.claim = [&heap, left = heap.size()](std::uint64_t position, std::uint64_t bytes) mutable {
    if (position > heap.size() || bytes > heap.size() - position || bytes > left) {
      points_outside();
    }
    left -= bytes;
  };
  out.read = [&heap](const std::vector<Unpacker::Want>& wants) {
    for (const auto& want : wants) {
      if (!want.into.empty()) {
        std::memcpy(want.into.data(), heap.data() + want.position, want.into.size());
      }
    }
  };
  return out;
}

}  // namespace sonde::store::h5
