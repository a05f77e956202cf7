#include "store/h5/dataset.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "store/h5/dataset_parts.hpp"

namespace sonde::store::h5 {

namespace {

const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

// The elements in memory that a transfer uses: one run, or elements that HDF5 gathers and scatters.
struct MemorySide {
  MemorySide(hid_t space_id, hid_t file_space, std::uint64_t points) {
    // H5S_ALL in memory means the file's selection, in an array with the file's extent.
    space = space_id == H5S_ALL ? file_space : space_id;
    if (space == H5S_ALL) {
      return;
    }
    if (const auto n = static_cast<std::uint64_t>(H5Sget_select_npoints(space)); n != points) {
      fail(Why::invalid, "the selections in memory (" + std::to_string(n) + " elements) and in the file (" +
                             std::to_string(points) + ") have different sizes");
    }
    if (points == 0) {
      return;
    }
    const Id iterator = need_id(H5Ssel_iter_create(space, 1, H5S_SEL_ITER_SHARE_WITH_DATASPACE), "to walk a selection");
    hsize_t at[2];
    std::size_t length[2], runs = 0, elements = 0;
    need_ok(H5Ssel_iter_get_seq_list(iterator, 2, static_cast<std::size_t>(-1) / 2, &runs, &elements, at, length),
            "to walk a selection");
    contiguous = runs == 1 && elements == points;
    first = at[0];
  }
  hid_t space = H5S_ALL;
  bool contiguous = true;
  std::uint64_t first = 0;
};

struct Whole {
  const void* data;
  std::size_t bytes;
};
herr_t hand_over(const void** source, std::size_t* used, void* whole) {
  *source = static_cast<Whole*>(whole)->data;
  *used = static_cast<Whole*>(whole)->bytes;
  return 0;
}

}  // namespace

// ---- elements in stored form

void DatasetIo::write_stored(hid_t file_space, Bytes stored) {
  const auto size = layout_.stored_bytes();
  if (object_.chunk.empty()) {
    const auto all = element_count();
    if (!object_.allocated) {
      if (!fills_with_zeros_ && points(file_space) < all) {
        const auto n = std::max<std::uint64_t>(1, stage_bytes / size);
        std::vector<std::byte> part(std::min(n, all) * size);
        fill(part);
        for (std::uint64_t at = 0; at < all; at += n) {
          container_.write(object_, Part::data, {{at * size, Bytes(part).first(std::min(n, all - at) * size)}});
        }
      }
      object_.allocated = true;
      container_.changed(object_);
    }
    std::vector<WritePiece> out;
    std::uint64_t packed = 0;
    each_run(file_space, [&](std::uint64_t element, std::uint64_t n) {
      out.push_back({element * size, stored.subspan(packed * size, n * size)});
      packed += n;
      if (out.size() >= (64u << 10)) {
        container_.write(object_, Part::data, out);
        out.clear();
      }
    });
    if (!out.empty()) {
      container_.write(object_, Part::data, out);
    }
    return;
  }
  Stage stage(container_, object_);
  std::vector<std::byte> whole;
  for (const auto& [at, list] : pieces(file_space)) {
    std::uint64_t covered = 0;
    for (const auto& piece : list) {
      covered += piece.n;
    }
    auto put = [&](std::vector<std::byte>& raw) {
      for (const auto& piece : list) {
        std::memcpy(raw.data() + piece.in_chunk * size, stored.data() + piece.packed * size, piece.n * size);
      }
    };
    if (covered >= clipped_elements(at)) {
      if (const auto old = cached_.find(at); old != cached_.end()) {
        cached_bytes_ -= old->second.raw.size();
        cached_.erase(old);
      }
      if (covered == chunk_elements_ && list.size() == 1) {
        store(at, stored.subspan(list[0].packed * size, list[0].n * size), stage);
        continue;
      }
      whole.resize(chunk_elements_ * size);
      if (covered < chunk_elements_) {
        fill(whole);
      }
      put(whole);
      store(at, whole, stage);
      continue;
    }
    const auto there = cached_.find(at);
    auto& entry = there != cached_.end() ? there->second : cache(at, load(at, H5P_DATASET_XFER_DEFAULT));
    put(entry.raw);
    entry.dirty = true;
    entry.used = ++clock_;
    if (cached_bytes_ > container_.service().chunk_cache_bytes) {
      stage.finish();
      trim();
    }
  }
  stage.finish();
}

void DatasetIo::read_stored(hid_t file_space, MutableBytes stored, hid_t transfer) {
  const auto size = layout_.stored_bytes();
  if (object_.chunk.empty()) {
    if (!object_.allocated) {
      fill(stored);
      return;
    }
    std::vector<ReadPiece> wanted;
    std::uint64_t packed = 0;
    each_run(file_space, [&](std::uint64_t element, std::uint64_t n) {
      wanted.push_back({element * size, stored.subspan(packed * size, n * size)});
      packed += n;
    });
    container_.read(object_, Part::data, wanted);
    return;
  }
  const auto all = pieces(file_space);
  auto copy = [&](const std::vector<Piece>& list, const std::byte* raw) {
    for (const auto& piece : list) {
      std::memcpy(stored.data() + piece.packed * size, raw + piece.in_chunk * size, piece.n * size);
    }
  };
  const auto& chunks = container_.chunks(object_);
  struct Wanted {
    const ChunkAt* at;
    const Chunk* chunk;
    const std::vector<Piece>* list;
    std::vector<std::byte> bytes;
    bool direct, alone;
  };
  std::vector<Wanted> wanted;
  std::size_t held = 0;
  auto fetch = [&] {
    std::vector<ReadPiece> reads;
    for (auto& want : wanted) {
      if (want.alone) {
        continue;
      }
      // A whole chunk without filters is read straight into its destination.
      reads.push_back({want.chunk->offset, want.direct
                                               ? stored.subspan((*want.list)[0].packed * size, chunk_elements_ * size)
                                               : MutableBytes(want.bytes)});
    }
    container_.read(object_, Part::data, reads, pipeline_ != nullptr);
    for (auto& want : wanted) {
      if (want.direct) {
        continue;
      }
      if (want.alone) {
        want.bytes = container_.read_whole(object_, Part::data, want.chunk->offset, want.chunk->bytes);
      }
      if (pipeline_) {
        std::vector<std::byte> raw(chunk_elements_ * size);
        pipeline_->decode(want.bytes, want.chunk->filter_mask, raw, transfer);
        want.bytes = std::move(raw);
      }
      copy(*want.list, want.bytes.data());
      std::uint64_t used = 0;
      for (const auto& piece : *want.list) {
        used += piece.n;
      }
      if (used < clipped_elements(*want.at)) {
        cache(*want.at, std::move(want.bytes));
      }
    }
    wanted.clear();
    held = 0;
    trim();
  };
  for (const auto& [at, list] : all) {
    if (const auto there = cached_.find(at); there != cached_.end()) {
      there->second.used = ++clock_;
      copy(list, there->second.raw.data());
      continue;
    }
    const auto found = chunks.find(at);
    if (found == chunks.end()) {
      for (const auto& piece : list) {
        fill(stored.subspan(piece.packed * size, piece.n * size));
      }
      continue;
    }
    const bool direct = !pipeline_ && list.size() == 1 && list[0].n == chunk_elements_;
    check_chunk(found->second);
    // A large chunk is read alone, directly.
    const bool alone = pipeline_ && found->second.bytes > stage_bytes;
    wanted.push_back(
        {&at, &found->second, &list, std::vector<std::byte>(direct || alone ? 0 : found->second.bytes), direct, alone});
    held += found->second.bytes;
    if (held >= 4 * stage_bytes || wanted.size() >= 8192) {
      fetch();
    }
  }
  if (!wanted.empty()) {
    fetch();
  }
}

// ---- elements in memory

Unpacker DatasetIo::unpacker(std::uint64_t n, const ReferenceCodec* references) {
  Unpacker::Heap heap;
  // Each element may claim all of the heap: elements that were never written share the heap part of the fill value.
  heap.claim = [this, n, claimed = std::uint64_t{0}](std::uint64_t position, std::uint64_t bytes) mutable {
    claimed += std::min(bytes, std::numeric_limits<std::uint64_t>::max() - claimed);
    const auto fits = [&](std::uint64_t end) {
      return position <= end && bytes <= end - position && claimed / std::max<std::uint64_t>(n, 1) <= end;
    };
    if (!fits(object_.heap_end) && !fits(container_.heap_end(object_))) {
      fail(Why::io,
           "an element of variable length in the store is damaged: it points outside of its dataset's data; hint: "
           "if another process is writing the file, read it when that process is done");
    }
  };
  heap.read = [this](const std::vector<Unpacker::Want>& wants) {
    // Neighbours in the heap are usually read together: parts that lie close are read as one piece.
    constexpr std::uint64_t gap = 4096;
    std::vector<const Unpacker::Want*> order;
    for (const auto& want : wants) {
      if (!want.into.empty()) {
        order.push_back(&want);
      }
    }
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->position < b->position; });
    for (std::size_t k = 0; k < order.size();) {
      const auto begin = order[k]->position;
      auto end = begin;
      std::size_t last = k;
      while (last < order.size() && order[last]->position <= end + gap && (last == k || end - begin < stage_bytes)) {
        end = std::max(end, order[last]->position + order[last]->into.size());
        ++last;
      }
      const auto block = container_.read_whole(object_, Part::heap, begin, end - begin);
      for (; k < last; ++k) {
        std::memcpy(order[k]->into.data(), block.data() + (order[k]->position - begin), order[k]->into.size());
      }
    }
  };
  return Unpacker(std::move(heap), references);
}

std::vector<std::byte> DatasetIo::read_elements(hid_t file_space, std::uint64_t n, hid_t transfer, Unpacker& unpack) {
  std::vector<std::byte> stored(n * layout_.stored_bytes());
  read_stored(file_space, stored, transfer);
  if (layout_.plain()) {
    return stored;
  }
  std::vector<std::byte> elements(n * layout_.memory_bytes());
  unpack.unpack(layout_, stored.data(), n, elements.data());
  return elements;
}

void DatasetIo::write(hid_t memory_type, hid_t memory_space, hid_t file_space, hid_t transfer, const void* from,
                      const ReferenceCodec* references) {
  const auto n = points(file_space);
  const MemorySide memory(memory_space, file_space, n);
  const bool same = H5Tequal(memory_type, type_) > 0;
  const bool from_background = !same && needs_background(memory_type, type_);  // fails if there is no conversion
  if (n == 0) {
    return;
  }
  if (!from) {
    fail(Why::invalid, "no data to write");
  }
  const auto source_size = H5Tget_size(memory_type);
  const std::byte* source = bytes(from) + memory.first * source_size;
  std::vector<std::byte> gathered;
  const auto room = n * std::max(source_size, layout_.memory_bytes());
  if (!memory.contiguous) {
    gathered.resize(same ? n * source_size : room);
    need_ok(H5Dgather(memory.space, from, memory_type, n * source_size, gathered.data(), nullptr, nullptr),
            "to gather a selection");
    source = gathered.data();
  } else if (!same) {
    gathered.resize(room);
    std::memcpy(gathered.data(), source, n * source_size);
    source = gathered.data();
  }
  auto old = unpacker(n, references);
  if (!same) {
    std::vector<std::byte> background;
    if (from_background) {
      background = read_elements(file_space, n, transfer, old);
    }
    if (H5Tconvert(memory_type, type_, n, gathered.data(), background.empty() ? nullptr : background.data(), transfer) <
        0) {
      fail(Why::type, "HDF5 cannot convert the data to the dataset's type");
    }
    old.release();  // it is part of the converted elements now
  }
  if (layout_.plain()) {
    write_stored(file_space, {source, n * layout_.stored_bytes()});
    return;
  }
  std::vector<std::byte> stored(n * layout_.stored_bytes());
  std::string heap;
  Packer(object_.heap_end, heap, references).pack(layout_, source, n, stored.data());
  if (!same) {
    // The conversion copied all parts of variable length, including those from the background.
    const hsize_t count = n;
    const Id line = need_id(H5Screate_simple(1, &count, nullptr), "a dataspace");
    H5Treclaim(type_, line, H5P_DEFAULT, gathered.data());
  }
  if (!heap.empty()) {
    container_.write(object_, Part::heap, {{object_.heap_end, std::as_bytes(std::span(heap))}});
    object_.heap_end += heap.size();
    container_.changed(object_);
  }
  write_stored(file_space, stored);
}

void DatasetIo::read(hid_t memory_type, hid_t memory_space, hid_t file_space, hid_t transfer, void* into,
                     const ReferenceCodec* references) {
  const auto n = points(file_space);
  const MemorySide memory(memory_space, file_space, n);
  const bool same = H5Tequal(memory_type, type_) > 0;
  const bool onto_background = !same && needs_background(type_, memory_type);  // fails if there is no conversion
  if (n == 0) {
    return;
  }
  if (!into) {
    fail(Why::invalid, "no room to read into");
  }
  const auto target_size = H5Tget_size(memory_type);
  auto* const target = static_cast<std::byte*>(into) + memory.first * target_size;
  if (same && layout_.plain() && memory.contiguous) {
    read_stored(file_space, {target, n * target_size}, transfer);
    return;
  }
  auto unpack = unpacker(n, references);
  auto elements = read_elements(file_space, n, transfer, unpack);
  if (!same) {
    elements.resize(n * std::max(target_size, layout_.memory_bytes()));
    std::vector<std::byte> background;
    if (onto_background) {
      background.resize(n * target_size);
      if (memory.contiguous) {
        std::memcpy(background.data(), target, background.size());
      } else {
        need_ok(H5Dgather(memory.space, into, memory_type, background.size(), background.data(), nullptr, nullptr),
                "to gather a selection");
      }
    }
    if (H5Tconvert(type_, memory_type, n, elements.data(), background.empty() ? nullptr : background.data(), transfer) <
        0) {
      fail(Why::type, "HDF5 cannot convert the dataset's data to the type in memory");
    }
  }
  if (memory.contiguous) {
    std::memcpy(target, elements.data(), n * target_size);
  } else {
    Whole whole{elements.data(), n * target_size};
    need_ok(H5Dscatter(hand_over, &whole, memory_type, memory.space, into), "to scatter a selection");
  }
  if (same) {
    unpack.release();  // the caller owns it now, or a conversion made copies for the caller
  }
}

void DatasetIo::map_references(const std::function<std::uint64_t(std::uint64_t)>& map) {
  const auto n = element_count();
  if (n == 0 || (object_.chunk.empty() ? !object_.allocated : object_.data_end == 0)) {
    return;
  }
  std::vector<std::byte> stored(n * layout_.stored_bytes());
  read_stored(H5S_ALL, stored, H5P_DATASET_XFER_DEFAULT);
  const auto in_heap = container_.read_whole(object_, Part::heap, 0, object_.heap_end);
  std::string heap(text_of(in_heap));
  layout_.map_references(stored.data(), n, heap, map);
  write_stored(H5S_ALL, stored);
  if (!heap.empty()) {
    container_.write(object_, Part::heap, {{0, std::as_bytes(std::span(heap))}});
  }
}

std::uint64_t DatasetIo::variable_bytes(hid_t file_space, const ReferenceCodec* references) {
  const auto n = points(file_space);
  if (n == 0 || layout_.plain()) {
    return 0;
  }
  auto unpack = unpacker(n, references);
  read_elements(file_space, n, H5P_DATASET_XFER_DEFAULT, unpack);
  return unpack.handed_out();
}

}  // namespace sonde::store::h5
