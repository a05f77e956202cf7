#include "store/h5/dataset.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include "store/h5/dataset_parts.hpp"

namespace sonde::store::h5 {

namespace {

constexpr std::size_t filters_add_bytes = 64u << 10;  // in addition to twice a chunk: headers, checksums

std::uint64_t product(const std::vector<std::uint64_t>& list) {
  return std::accumulate(list.begin(), list.end(), std::uint64_t{1}, std::multiplies<>());
}

// Calls each(first, n) for each run of elements of a selection, in its order.
template <typename Each> void runs_of(hid_t space, Each&& each) {
  const Id iterator = need_id(H5Ssel_iter_create(space, 1, H5S_SEL_ITER_SHARE_WITH_DATASPACE), "to walk a selection");
  constexpr std::size_t at_once = 512;
  hsize_t first[at_once];
  std::size_t length[at_once];
  for (;;) {
    std::size_t runs = 0, elements = 0;
    need_ok(
        H5Ssel_iter_get_seq_list(iterator, at_once, static_cast<std::size_t>(-1) / 2, &runs, &elements, first, length),
        "to walk a selection");
    if (elements == 0) {
      return;
    }
    for (std::size_t k = 0; k < runs; ++k) {
      each(std::uint64_t{first[k]}, std::uint64_t{length[k]});
    }
  }
}

}  // namespace

std::optional<std::uint64_t> chunk_bytes(const std::vector<std::uint64_t>& chunk, const ElementLayout& layout) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t bytes = layout.stored_bytes();
  for (const auto n : chunk) {
    if (bytes > most / n) {
      return std::nullopt;
    }
    bytes *= n;
  }
  return bytes;
}

Id filtered_type(hid_t type, const ElementLayout& layout) {
  return layout.plain() ? need_id(H5Tcopy(type), "a copy of a type")
                        : need_id(H5Tcreate(H5T_OPAQUE, layout.stored_bytes()), "an opaque type");
}

DatasetIo::DatasetIo(Container& container, Object& object)
    : container_(container), object_(object), type_(decode_type(object.type)), layout_(type_) {
  // decode_header() cannot check this, because it does not know the type.
  if (!object_.fill.empty() && object_.fill.size() != layout_.stored_bytes()) {
    fail(Why::io, "a dataset in the store is damaged: the size of its fill value is not its type's");
  }
  if (!object_.chunk.empty() && !chunk_bytes(object_.chunk, layout_)) {
    fail(Why::io, "a dataset in the store is damaged: its chunks have 4 GiB or more");
  }
  if (object_.fill.find_first_not_of('\0') != object_.fill.npos) {
    // If filling is disabled, elements that were never written may have any value. Here they are zeros.
    const Id list = decode_properties(object_.properties, PropertyClass::dataset);
    H5D_fill_time_t when = H5D_FILL_TIME_IFSET;
    need_ok(H5Pget_fill_time(list, &when), "when to fill");
    fills_with_zeros_ = when == H5D_FILL_TIME_NEVER;
  }
  if (!object_.chunk.empty()) {
    chunk_elements_ = product(object_.chunk);
    if (object_.filtered) {
      const Id properties = decode_properties(object_.properties, PropertyClass::dataset);
      if (!object_.fill.empty() && layout_.plain()) {
        need_ok(H5Pset_fill_value(properties, type_, object_.fill.data()), "the fill value");
      }
      pipeline_ = std::make_unique<Pipeline>(properties, filtered_type(type_, layout_), object_.chunk);
    }
  }
}

Id DatasetIo::space() const {
  if (object_.space_class != 1) {
    return need_id(H5Screate(object_.space_class == 0 ? H5S_SCALAR : H5S_NULL), "a dataspace");
  }
  const std::vector<hsize_t> now(object_.extent.begin(), object_.extent.end()),
      most(object_.extent_max.begin(), object_.extent_max.end());
  return need_id(H5Screate_simple(static_cast<int>(now.size()), now.data(), most.data()), "a dataspace");
}

Id DatasetIo::properties(const ReferenceCodec& references) {
  Id list = decode_properties(object_.properties, PropertyClass::dataset);
  if (!object_.fill.empty()) {
    auto unpack = unpacker(1, &references);
    std::vector<std::byte> value(layout_.memory_bytes());
    unpack.unpack(layout_, reinterpret_cast<const std::byte*>(object_.fill.data()), 1, value.data());
    need_ok(H5Pset_fill_value(list, type_, value.data()), "the fill value");
  }
  return list;
}

std::uint64_t DatasetIo::element_count() const {
  if (object_.space_class == 2) {
    return 0;
  }
  const std::uint64_t most =
      std::numeric_limits<std::int64_t>::max() / std::max(layout_.memory_bytes(), layout_.stored_bytes());
  std::uint64_t n = 1;
  for (const auto axis : object_.extent) {
    if (axis > 0 && n > most / axis) {
      fail(Why::invalid, "the dataset has more elements than memory has addresses; hint: select a part of it");
    }
    n *= axis;
  }
  return n;
}

std::uint64_t DatasetIo::points(hid_t file_space) const {
  if (file_space == H5S_ALL) {
    return element_count();
  }
  std::vector<hsize_t> now(std::max(0, H5Sget_simple_extent_ndims(file_space)));
  if (object_.space_class == 1) {
    if (!now.empty()) {
      H5Sget_simple_extent_dims(file_space, now.data(), nullptr);
    }
    if (!std::equal(now.begin(), now.end(), object_.extent.begin(), object_.extent.end())) {
      fail(Why::invalid, "the file's dataspace does not have the dataset's present extent");
    }
  }
  if (H5Sselect_valid(file_space) <= 0) {
    fail(Why::invalid, "the selection reaches outside the dataset's extent");
  }
  const auto n = static_cast<std::uint64_t>(H5Sget_select_npoints(file_space));
  if (n > std::numeric_limits<std::int64_t>::max() / std::max(layout_.memory_bytes(), layout_.stored_bytes())) {
    fail(Why::invalid, "the selection has more elements than memory has addresses; hint: select less");
  }
  return n;
}

void DatasetIo::each_run(hid_t file_space, const std::function<void(std::uint64_t, std::uint64_t)>& each) const {
  if (file_space == H5S_ALL) {
    each(0, element_count());
  } else {
    runs_of(file_space, each);
  }
}

DatasetIo::Pieces DatasetIo::pieces(hid_t file_space) const {
  Pieces out;
  const auto rank = object_.extent.size();
  const auto& extent = object_.extent;
  const auto& chunk = object_.chunk;
  ChunkAt at(rank);
  auto last = out.end();
  std::uint64_t packed = 0;
  each_run(file_space, [&](std::uint64_t element, std::uint64_t n) {
    while (n > 0) {
      // Handles one row of one chunk at a time.
      std::uint64_t rest = element, inside = 0, stride = 1, along = 0;
      for (std::size_t d = rank; d-- > 0;) {
        const auto coordinate = rest % extent[d];
        rest /= extent[d];
        at[d] = coordinate / chunk[d];
        inside += coordinate % chunk[d] * stride;
        stride *= chunk[d];
        if (d == rank - 1) {
          along = std::min(chunk[d] - coordinate % chunk[d], extent[d] - coordinate);
        }
      }
      const auto take = std::min(n, along);
      if (last == out.end() || last->first != at) {
        last = out.try_emplace(at).first;
      }
      auto& list = last->second;
      if (!list.empty() && list.back().in_chunk + list.back().n == inside &&
          list.back().packed + list.back().n == packed) {
        list.back().n += take;
      } else {
        list.push_back({inside, packed, take});
      }
      element += take;
      packed += take;
      n -= take;
    }
  });
  return out;
}

void DatasetIo::fill(MutableBytes stored) const {
  if (fills_with_zeros_) {
    std::memset(stored.data(), 0, stored.size());
    return;
  }
  for (std::size_t at = 0; at < stored.size(); at += object_.fill.size()) {
    std::memcpy(stored.data() + at, object_.fill.data(), object_.fill.size());
  }
}

std::uint64_t DatasetIo::clipped_elements(const ChunkAt& at) const {
  std::uint64_t n = 1;
  for (std::size_t d = 0; d < at.size(); ++d) {
    n *= std::min(object_.chunk[d], object_.extent[d] - std::min(object_.extent[d], at[d] * object_.chunk[d]));
  }
  return n;
}

// ---- chunks

std::uint64_t DatasetIo::stored_chunk_max() const {
  const auto raw = chunk_elements_ * layout_.stored_bytes();
  return pipeline_ ? 2 * raw + filters_add_bytes : raw;
}

void DatasetIo::check_chunk(const Chunk& chunk) const {
  const auto most = stored_chunk_max();
  if (pipeline_ ? chunk.bytes > most : chunk.bytes != most) {
    fail(Why::io, "a chunk in the store is damaged: it has " + std::to_string(chunk.bytes) + " B instead of " +
                      (pipeline_ ? "at most " : "") + std::to_string(most) + " B");
  }
}

std::vector<std::byte> DatasetIo::load(const ChunkAt& at, hid_t transfer) {
  const auto raw_bytes = chunk_elements_ * layout_.stored_bytes();
  const auto& chunks = container_.chunks(object_);
  const auto found = chunks.find(at);
  std::vector<std::byte> raw(pipeline_ && found != chunks.end() ? 0 : raw_bytes);
  if (found == chunks.end()) {
    fill(raw);
    return raw;
  }
  const auto& chunk = found->second;
  check_chunk(chunk);
  if (!pipeline_) {
    container_.read(object_, Part::data, {{chunk.offset, raw}});
    return raw;
  }
  const auto filtered = container_.read_whole(object_, Part::data, chunk.offset, chunk.bytes);
  raw.resize(raw_bytes);
  pipeline_->decode(filtered, chunk.filter_mask, raw, transfer);
  return raw;
}

void DatasetIo::place(const ChunkAt& at, Bytes data, std::uint32_t filter_mask, Stage& stage) {
  if (data.size() > std::min<std::uint64_t>(stored_chunk_max(), std::numeric_limits<std::uint32_t>::max())) {
    fail(Why::unsupported,
         "a chunk has " + std::to_string(data.size()) +
             " B after its filters; the limit is below 4 GiB, and at most twice its size before the filters plus "
             "64 KiB; hint: use smaller chunks, or filters that make them smaller");
  }
  const auto& chunks = container_.chunks(object_);
  const auto found = chunks.find(at);
  Chunk chunk;
  if (found != chunks.end() && data.size() <= found->second.capacity) {
    chunk = found->second;
  } else {
    // A chunk that no longer fits its place gets a new one. The old place is not used again, as in older HDF5 files.
    chunk.offset = object_.data_end;
    chunk.capacity = static_cast<std::uint32_t>(data.size());
    object_.data_end += data.size();
    container_.changed(object_);
  }
  const bool same = found != chunks.end() && chunk.bytes == data.size() && chunk.filter_mask == filter_mask &&
                    chunk.offset == found->second.offset;
  chunk.bytes = static_cast<std::uint32_t>(data.size());
  chunk.filter_mask = filter_mask;
  if (!same) {
    container_.put_chunk(object_, at, chunk);
  }
  stage.add(chunk.offset, data);
}

void DatasetIo::store(const ChunkAt& at, Bytes raw, Stage& stage) {
  if (!pipeline_) {
    place(at, raw, 0, stage);
    return;
  }
  std::uint32_t mask = 0;
  const auto filtered = pipeline_->encode(raw, mask);
  place(at, filtered, mask, stage);
}

DatasetIo::Cached& DatasetIo::cache(const ChunkAt& at, std::vector<std::byte> raw) {
  auto [entry, fresh] = cached_.try_emplace(at);
  if (fresh) {
    cached_bytes_ += raw.size();
  }
  entry->second.raw = std::move(raw);
  entry->second.used = ++clock_;
  return entry->second;
}

void DatasetIo::trim() {
  const auto most = container_.service().chunk_cache_bytes;
  if (cached_bytes_ <= most) {
    return;
  }
  flush();
  std::vector<std::pair<std::uint64_t, ChunkAt>> by_age;
  for (const auto& [at, entry] : cached_) {
    by_age.emplace_back(entry.used, at);
  }
  std::sort(by_age.begin(), by_age.end());
  for (const auto& [used, at] : by_age) {
    if (cached_bytes_ <= most / 2) {
      break;
    }
    cached_bytes_ -= cached_[at].raw.size();
    cached_.erase(at);
  }
}

void DatasetIo::flush() {
  Stage stage(container_, object_);
  for (auto& [at, entry] : cached_) {
    if (entry.dirty) {
      store(at, entry.raw, stage);
      entry.dirty = false;
    }
  }
  stage.finish();
}

void DatasetIo::refresh() {
  flush();
  cached_.clear();
  cached_bytes_ = 0;
}

// ---- extent and raw chunks

void DatasetIo::resize(const std::vector<std::uint64_t>& extent) {
  if (object_.chunk.empty()) {
    fail(Why::invalid, "only chunked datasets can be resized");
  }
  bool shrinks = false;
  for (std::size_t d = 0; d < extent.size(); ++d) {
    if (object_.extent_max[d] != H5S_UNLIMITED && extent[d] > object_.extent_max[d]) {
      fail(Why::invalid, "axis " + std::to_string(d) + " would have " + std::to_string(extent[d]) +
                             " elements; the dataset allows " + std::to_string(object_.extent_max[d]));
    }
    shrinks |= extent[d] < object_.extent[d];
  }
  if (shrinks) {
    flush();
    std::vector<ChunkAt> gone, cut;
    for (const auto& [at, chunk] : container_.chunks(object_)) {
      bool outside = false, across = false;
      for (std::size_t d = 0; d < extent.size(); ++d) {
        outside |= at[d] * object_.chunk[d] >= extent[d];
        across |= (at[d] + 1) * object_.chunk[d] > extent[d] && extent[d] < object_.extent[d];
      }
      if (outside) {
        gone.push_back(at);
      } else if (across) {
        cut.push_back(at);
      }
    }
    for (const auto& at : gone) {
      container_.remove_chunk(object_, at);
      if (const auto there = cached_.find(at); there != cached_.end()) {
        cached_bytes_ -= there->second.raw.size();
        cached_.erase(there);
      }
    }
    const auto size = layout_.stored_bytes();
    for (const auto& at : cut) {
      // Elements that are outside now must read as the fill value if the dataset grows again.
      const auto there = cached_.find(at);
      auto& entry = there != cached_.end() ? there->second : cache(at, load(at, H5P_DATASET_XFER_DEFAULT));
      for (std::uint64_t k = 0; k < chunk_elements_; ++k) {
        std::uint64_t rest = k;
        bool outside = false;
        for (std::size_t d = extent.size(); d-- > 0; rest /= object_.chunk[d]) {
          outside |= at[d] * object_.chunk[d] + rest % object_.chunk[d] >= extent[d];
        }
        if (outside) {
          fill(MutableBytes(entry.raw).subspan(k * size, size));
        }
      }
      entry.dirty = true;
    }
  }
  object_.extent = extent;
  container_.changed(object_);
  trim();
}

bool DatasetIo::allocated() const {
  if (object_.allocated || object_.compact) {
    return true;
  }
  if (element_count() == 0) {
    return false;
  }
  const Id list = decode_properties(object_.properties, PropertyClass::dataset);
  H5D_alloc_time_t when = H5D_ALLOC_TIME_LATE;
  need_ok(H5Pget_alloc_time(list, &when), "when to allocate");
  return when == H5D_ALLOC_TIME_EARLY;
}

std::uint64_t DatasetIo::storage_bytes() {
  if (object_.chunk.empty()) {
    return allocated() ? element_count() * layout_.stored_bytes() : 0;
  }
  flush();
  std::uint64_t total = 0;
  for (const auto& [at, chunk] : container_.chunks(object_)) {
    total += chunk.bytes;
  }
  return total;
}

bool DatasetIo::extends_to(const hsize_t* offset) const {
  if (object_.chunk.empty()) {
    fail(Why::invalid, "the dataset is not chunked");
  }
  return std::equal(object_.extent.begin(), object_.extent.end(), offset, std::greater<>());
}

ChunkAt DatasetIo::chunk_holding(const hsize_t* offset) const {
  if (!extends_to(offset)) {
    fail(Why::invalid, "the chunk's offset lies outside the dataset's extent");
  }
  ChunkAt at(object_.chunk.size());
  for (std::size_t d = 0; d < at.size(); ++d) {
    at[d] = offset[d] / object_.chunk[d];
  }
  return at;
}

const Chunk* DatasetIo::find_chunk(const hsize_t* offset) {
  const auto at = chunk_holding(offset);
  flush();
  const auto& chunks = container_.chunks(object_);
  const auto found = chunks.find(at);
  if (found == chunks.end()) {
    return nullptr;
  }
  check_chunk(found->second);  // the reader allocates memory for the recorded size, or for a chunk without filters
  return &found->second;
}

void DatasetIo::read_raw(const Chunk& chunk, void* into) {
  container_.read(object_, Part::data, {{chunk.offset, {static_cast<std::byte*>(into), chunk.bytes}}});
}

void DatasetIo::write_raw(const hsize_t* offset, Bytes data, std::uint32_t filter_mask) {
  const auto at = chunk_holding(offset);
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (offset[d] % object_.chunk[d] != 0) {
      fail(Why::invalid, "the offset is not the first element of a chunk");
    }
  }
  if (!pipeline_ && data.size() != chunk_elements_ * layout_.stored_bytes()) {
    fail(Why::invalid, "the chunk has " + std::to_string(data.size()) + " B; without filters it must have " +
                           std::to_string(chunk_elements_ * layout_.stored_bytes()) + " B");
  }
  if (const auto there = cached_.find(at); there != cached_.end()) {
    cached_bytes_ -= there->second.raw.size();
    cached_.erase(there);
  }
  Stage stage(container_, object_);
  place(at, data, filter_mask, stage);
  stage.finish();
}

}  // namespace sonde::store::h5
