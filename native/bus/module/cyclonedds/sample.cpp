#include "bus/module/cyclonedds/sample.hpp"

#include <arpa/inet.h>
#include <dds/ddsi/ddsi_keyhash.h>
#include <dds/ddsi/q_radmin.h>
#include <dds/ddsrt/md5.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>

#include "bus/cdr.hpp"
#include "bus/module/cyclonedds/blocks.hpp"

namespace sonde::bus::cyclonedds {

namespace {

constexpr std::size_t hash_bytes = 16;
/// Free room after a received sample of a type with key: most keys fit, so that the sample need not move.
constexpr std::size_t key_room = 64;
/// Offsets from DDSI-RTPS 2.2, 9.4: a message begins with "RTPS", version, vendor and the sender's prefix; a submessage
/// of data has the entities of the reader and the writer after its header, flags and an offset.
constexpr std::size_t prefix_at = 8, prefix_words = 3, writer_entity_at = 12, sequence_at = 16;
/// Writers whose missing samples are tracked: a larger number means that writers are created and ended in a loop.
constexpr std::size_t most_writers = 4096;
/// The most disposals without a matching gap. Those of writers that write no more stay, so the number is bounded: other
/// writers may have lost as many samples.
constexpr std::uint64_t most_without_number = 64;
constexpr std::size_t most_remembered = 1 << 16;  ///< the most keys that are stored by their hash
/// Fast DDS treats the payload of a disposal, with its encapsulation, as the key hash if it has at most 16 bytes.
constexpr std::size_t least_disposal = encapsulation_bytes + hash_bytes;

constexpr std::size_t up4(std::size_t n) { return (n + 3) & ~std::size_t{3}; }

const Sample& ours(const ddsi_serdata* serdata) { return *static_cast<const Sample*>(serdata); }
const SampleType& ours(const ddsi_sertype* sertype) { return *static_cast<const SampleType*>(sertype); }

std::int64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

/// Cyclone has already converted the words of both to the host's byte order in place.
Guid sender_of(const unsigned char* message, const unsigned char* submessage) {
  std::array<std::uint32_t, prefix_words + 1> words;
  std::memcpy(words.data(), message + prefix_at, prefix_words * sizeof words[0]);
  std::memcpy(&words[prefix_words], submessage + writer_entity_at, sizeof words[0]);
  for (auto& word : words) word = htonl(word);
  Guid guid;
  std::memcpy(guid.bytes.data(), words.data(), sizeof words);
  return guid;
}

/// The sequence number, from its high and low half.
std::uint64_t sequence_of(const unsigned char* submessage) {
  std::uint32_t half[2];
  std::memcpy(half, submessage + sequence_at, sizeof half);
  return std::uint64_t{half[0]} << 32 | half[1];
}

/// Whether the writer is of Fast DDS, whose disposals contain only the hash of the key.
bool tells_hashes_alone(const Guid& writer) {
  return writer.bytes[0] == std::byte{1} && writer.bytes[1] == std::byte{15};
}

std::array<std::byte, hash_bytes> md5_of(Bytes key) {
  std::array<std::byte, hash_bytes> out;
  ddsrt_md5_state_t state;
  ddsrt_md5_init(&state);
  ddsrt_md5_append(&state, reinterpret_cast<const ddsrt_md5_byte_t*>(key.data()), static_cast<unsigned>(key.size()));
  ddsrt_md5_finish(&state, reinterpret_cast<ddsrt_md5_byte_t*>(out.data()));
  return out;
}

/// FNV-1a: keys are short, and a program that chooses colliding keys slows down only its own instances.
std::uint32_t hash_of(Bytes key) {
  std::uint32_t hash = 2166136261u;
  for (const std::byte b : key) hash = (hash ^ static_cast<std::uint32_t>(b)) * 16777619u;
  return hash;
}

/// The key part of a type: its key fields; of structures in it their key fields or, if they have none, all fields.
TypePtr key_part(const Type& type) {
  std::vector<Field> fields;
  const bool some = has_key(type);
  for (const Field& field : type.fields) {
    if (some && !field.key) continue;
    Field part = field;
    part.key = true;
    if (field.type->kind == Kind::structure) part.type = key_part(*field.type);
    fields.push_back(std::move(part));
  }
  return structure(type.name, std::move(fields));
}

Sample* allocate(const ddsi_sertype* type, ddsi_serdata_kind kind, std::size_t size, std::size_t key_size) {
  const std::size_t bytes = sizeof(Sample) + up4(size) + key_size;
  void* memory = take_block(bytes);
  if (!memory) return nullptr;
  auto* sample = ::new (memory) Sample;
  sample->memory_bytes = bytes;
  ddsi_serdata_init(sample, type, kind);
  sample->writer = {};
  sample->received_ns = 0;
  sample->missing = 0;
  sample->order = 0;
  sample->size = static_cast<std::uint32_t>(size);
  sample->key_size = static_cast<std::uint32_t>(key_size);
  sample->writer_known = false;
  // Cyclone sends up to three bytes more than the sample has: they must not be old memory.
  std::memset(sample->data() + size, 0, up4(size) - size);
  return sample;
}

void give_up(Sample* sample) { give_block(sample, sample->memory_bytes); }

void set_key(Sample& sample, std::uint32_t basis, Bytes key) {
  static std::atomic<std::uint64_t> order{0};
  if (!key.empty()) sample.order = order.fetch_add(1, std::memory_order_relaxed);
  if (!key.empty()) std::memcpy(sample.data() + up4(sample.size), key.data(), key.size());
  sample.hash = basis ^ hash_of(key);
}

/// Sets the key from received bytes. Bytes that do not match the type become a separate instance without key: the
/// reader above counts and reports malformed samples.
Sample* with_key(const SampleType& type, ddsi_serdata_kind kind, Sample* sample) {
  thread_local std::vector<std::byte> key;
  key.clear();
  if (!type.key_type && kind == SDK_KEY && sample->size > encapsulation_bytes)
    key.assign(1, sample->data()[encapsulation_bytes]);
  if (type.key_type) {
    try {
      if (kind == SDK_KEY) {
        if (const auto whole = payload_of_key_alone(*type.type, sample->payload()); !whole.empty())
          key = serialised_key(*type.type, whole);
      } else if (type.checker->verify(sample->payload())) {
        type.keys->make(sample->payload(), key);
        if (type.hashes && sample->writer_known && tells_hashes_alone(sample->writer)) type.hashes->saw(key);
      }
    } catch (...) {  // no memory for the received sample: it is dropped, like a sample without room
      give_up(sample);
      return nullptr;
    }
    if (key.size() > key_room) {
      Sample* larger = allocate(sample->type, kind, sample->size, key.size());
      if (larger) {
        larger->writer = sample->writer, larger->writer_known = sample->writer_known;
        larger->received_ns = sample->received_ns, larger->missing = sample->missing;
        std::memcpy(larger->data(), sample->data(), sample->size);
      }
      give_up(sample);
      sample = larger;
      if (!sample) return nullptr;
    }
  }
  sample->key_size = static_cast<std::uint32_t>(key.size());
  set_key(*sample, type.serdata_basehash, key);
  return sample;
}

bool eqkey(const ddsi_serdata* a, const ddsi_serdata* b) {
  const Bytes x = ours(a).key(), y = ours(b).key();
  return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin());
}

std::uint32_t get_size(const ddsi_serdata* serdata) { return ours(serdata).size; }

ddsi_serdata* from_ser(const ddsi_sertype* sertype, ddsi_serdata_kind kind, const nn_rdata* chain, std::size_t size) {
  if (size < encapsulation_bytes || size > limit::sample_bytes + 64) return nullptr;
  Sample* sample = allocate(sertype, kind, size, ours(sertype).key_type || kind == SDK_KEY ? key_room : 0);
  if (!sample) return nullptr;
  sample->received_ns = realtime_ns();
  const unsigned char* message = NN_RMSG_PAYLOAD(chain->rmsg);
  if (const std::size_t submessage = NN_RDATA_SUBMSG_OFF(chain)) {
    sample->writer = sender_of(message, message + submessage);
    sample->writer_known = true;
    sample->missing = ours(sertype).arrivals.missing(sample->writer, sequence_of(message + submessage),
                                                     !tells_hashes_alone(sample->writer));
  }
  // Fragments are in order and may overlap.
  std::size_t have = 0;
  for (; chain && have < size; chain = chain->nextfrag) {
    const std::size_t end = std::min<std::size_t>(chain->maxp1, size);
    if (end <= have || chain->min > have) continue;
    const unsigned char* from = NN_RMSG_PAYLOADOFF(chain->rmsg, NN_RDATA_PAYLOAD_OFF(chain)) + (have - chain->min);
    std::memcpy(sample->data() + have, from, end - have);
    have = end;
  }
  if (have < size) {
    give_up(sample);
    return nullptr;
  }
  return with_key(ours(sertype), kind, sample);
}

ddsi_serdata* from_ser_iov(const ddsi_sertype* sertype, ddsi_serdata_kind kind, ddsrt_msg_iovlen_t n,
                           const ddsrt_iovec_t* iov, std::size_t size) {
  if (size < encapsulation_bytes || size > limit::sample_bytes + 64) return nullptr;
  Sample* sample = allocate(sertype, kind, size, ours(sertype).key_type || kind == SDK_KEY ? key_room : 0);
  if (!sample) return nullptr;
  std::size_t have = 0;
  for (ddsrt_msg_iovlen_t k = 0; k < n && have < size; ++k) {
    const std::size_t part = std::min<std::size_t>(iov[k].iov_len, size - have);
    std::memcpy(sample->data() + have, iov[k].iov_base, part);
    have += part;
  }
  if (have < size) {
    give_up(sample);
    return nullptr;
  }
  return with_key(ours(sertype), kind, sample);
}

Sample* make(const SampleType& type, ddsi_serdata_kind kind, const Guid& writer, Bytes payload, Bytes key) {
  const bool disposal = kind == SDK_KEY;
  Sample* sample = allocate(
      &type, kind, disposal ? std::max(least_disposal, encapsulation_bytes + key.size()) : payload.size(), key.size());
  if (!sample) return nullptr;
  if (disposal) {
    std::memset(sample->data(), 0, sample->size);  // big endian, plain CDR, the same as serialised_key()
    if (!key.empty()) std::memcpy(sample->data() + encapsulation_bytes, key.data(), key.size());
  } else {
    std::memcpy(sample->data(), payload.data(), payload.size());
  }
  sample->writer = writer;
  sample->writer_known = true;
  set_key(*sample, type.serdata_basehash, key);
  return sample;
}

/// Writes key values that no instance of a program will have.
void put_unlikely(const Type& type, CdrWriter& into) {
  for (const Field& field : type.fields) {
    const auto one = [&into](const Type& of) {
      switch (of.kind) {
        case Kind::boolean: into.put(true); break;
        case Kind::octet:
        case Kind::char8:
        case Kind::int8:
        case Kind::uint8: into.put(std::uint8_t{0xff}); break;
        case Kind::int16:
        case Kind::uint16: into.put(std::uint16_t{0xffff}); break;
        case Kind::int64:
        case Kind::uint64:
        case Kind::float64: into.put(~std::uint64_t{0}); break;
        case Kind::enumeration: into.put(of.enumerators.back().value); break;
        case Kind::string: into.put(std::string_view("\x7f")); break;
        case Kind::structure: put_unlikely(of, into); break;
        default: into.put(~std::uint32_t{0});
      }
    };
    if (field.type->kind == Kind::array)
      for (std::uint32_t k = 0; k < field.type->bound; ++k) one(*field.type->element);
    else one(*field.type);
  }
}

/// A disposal that identifies its instance only by the hash: the hash is the key itself, or that of a known key.
ddsi_serdata* from_keyhash(const ddsi_sertype* sertype, const ddsi_keyhash* hash) {
  const SampleType& type = ours(sertype);
  type.arrivals.came_without_number();
  if (!type.key_type) return make_sample(type, SDK_KEY, {}, {}, {});
  try {
    const Bytes bytes(reinterpret_cast<const std::byte*>(hash->value), hash_bytes);
    std::vector<std::byte> key;
    if (type.hashes) key = type.hashes->key_of(bytes);
    else if (const auto whole = payload_of_key(*type.type, bytes); !whole.empty())
      key = serialised_key(*type.type, whole);
    if (key.empty()) return nullptr;
    auto* sample = make_sample(type, SDK_KEY, {}, {}, key);
    if (sample) sample->writer_known = false;
    return sample;
  } catch (...) {
    return nullptr;
  }
}

/// Samples are created only by make_sample().
ddsi_serdata* from_sample(const ddsi_sertype*, ddsi_serdata_kind, const void*) { return nullptr; }

void to_ser(const ddsi_serdata* serdata, std::size_t offset, std::size_t size, void* into) {
  std::memcpy(into, ours(serdata).data() + offset, size);
}

ddsi_serdata* to_ser_ref(const ddsi_serdata* serdata, std::size_t offset, std::size_t size, ddsrt_iovec_t* ref) {
  ref->iov_base = const_cast<std::byte*>(ours(serdata).data()) + offset;
  ref->iov_len = size;
  return ddsi_serdata_ref(serdata);
}

void to_ser_unref(ddsi_serdata* serdata, const ddsrt_iovec_t*) { ddsi_serdata_unref(serdata); }

/// Samples are never read as structures: readers take serdata.
bool to_sample(const ddsi_serdata*, void*, void**, void*) { return false; }
bool untyped_to_sample(const ddsi_sertype*, const ddsi_serdata*, void*, void**, void*) { return false; }

/// The instance: a key, which every type with that key shares.
ddsi_serdata* to_untyped(const ddsi_serdata* serdata) {
  const Sample& of = ours(serdata);
  Sample* key = allocate(of.type, SDK_KEY, 0, of.key_size);
  if (!key) return nullptr;
  key->type = nullptr;
  set_key(*key, 0, of.key());
  key->hash = of.hash;
  return key;
}

void free_sample(ddsi_serdata* serdata) { give_up(static_cast<Sample*>(serdata)); }

std::size_t print(const ddsi_sertype*, const ddsi_serdata* serdata, char* into, std::size_t size) {
  return static_cast<std::size_t>(std::snprintf(into, size, "%u bytes", ours(serdata).size));
}

void get_keyhash(const ddsi_serdata* serdata, ddsi_keyhash* into, bool force_md5) {
  const Sample& sample = ours(serdata);
  const Bytes key = sample.key();
  const auto* type = static_cast<const SampleType*>(sample.type);
  if (force_md5 || key.size() > hash_bytes || (type && type->long_keys)) {
    const auto hash = md5_of(key);
    std::memcpy(into->value, hash.data(), hash.size());
  } else {
    std::memset(into->value, 0, hash_bytes);
    if (!key.empty()) std::memcpy(into->value, key.data(), key.size());
  }
}

const ddsi_serdata_ops sample_ops = {
    .eqkey = eqkey,
    .get_size = get_size,
    .from_ser = from_ser,
    .from_ser_iov = from_ser_iov,
    .from_keyhash = from_keyhash,
    .from_sample = from_sample,
    .to_ser = to_ser,
    .to_ser_ref = to_ser_ref,
    .to_ser_unref = to_ser_unref,
    .to_sample = to_sample,
    .to_untyped = to_untyped,
    .untyped_to_sample = untyped_to_sample,
    .free = free_sample,
    .print = print,
    .get_keyhash = get_keyhash,
#ifdef DDS_HAS_SHM
    .get_sample_size = nullptr,
    .from_iox_buffer = nullptr,
#endif
};

void free_type(ddsi_sertype* sertype) {
  auto* type = static_cast<SampleType*>(sertype);
  ddsi_sertype_fini(type);
  delete type;
}

void no_samples(const ddsi_sertype*, void*, std::size_t) {}
void no_memory(void** samples, const ddsi_sertype*, void*, std::size_t, std::size_t count) {
  std::fill_n(samples, count, nullptr);
}
void nothing_to_free(const ddsi_sertype*, void**, std::size_t, dds_free_op_t) {}
bool same_type(const ddsi_sertype* a, const ddsi_sertype* b) { return ours(a).fingerprint == ours(b).fingerprint; }
std::uint32_t type_hash(const ddsi_sertype* type) {
  const std::string& fingerprint = ours(type).fingerprint;
  return hash_of({reinterpret_cast<const std::byte*>(fingerprint.data()), fingerprint.size()});
}

const ddsi_sertype_ops type_ops = {
    .version = ddsi_sertype_v0,
    .arg = nullptr,
    .free = free_type,
    .zero_samples = no_samples,
    .realloc_samples = no_memory,
    .free_samples = nothing_to_free,
    .equal = same_type,
    .hash = type_hash,
    .type_id = nullptr,
    .type_map = nullptr,
    .type_info = nullptr,
    .derive_sertype = nullptr,
    .get_serialized_size = nullptr,
    .serialize_into = nullptr,
};

}  // namespace

std::uint64_t Arrivals::missing(const Guid& writer, std::uint64_t sequence, bool tells_all) {
  const std::lock_guard lock(mutex_);
  bool first = false;
  if (!last_ || last_->first != writer) {
    if (writers_.size() > most_writers) writers_.clear();
    const auto [at, made] = writers_.try_emplace(writer);
    last_ = &*at;
    first = made;
  }
  Seen& seen = last_->second;
  if (!first && sequence > seen.last + 1) {
    const std::uint64_t gap = sequence - seen.last - 1, came = tells_all ? 0 : std::min(gap, without_number_);
    without_number_ -= came;
    seen.missing += gap - came;
  }
  seen.last = std::max(seen.last, sequence);  // a late reader gets earlier samples again
  return seen.missing;
}

void Arrivals::came_without_number() {
  const std::lock_guard lock(mutex_);
  without_number_ = std::min(without_number_ + 1, most_without_number);
}

void KeysByHash::saw(Bytes key) {
  std::vector<std::byte> own(key.begin(), key.end());
  const std::lock_guard lock(mutex_);
  if (known_.contains(own)) return;
  if (known_.size() >= most_remembered) known_.clear(), keys_.clear();
  keys_[md5_of(key)] = own;
  known_.insert(std::move(own));
}

std::vector<std::byte> KeysByHash::key_of(Bytes hash) const {
  std::array<std::byte, 16> own;
  std::copy_n(hash.begin(), own.size(), own.begin());
  const std::lock_guard lock(mutex_);
  const auto at = keys_.find(own);
  return at == keys_.end() ? std::vector<std::byte>{} : at->second;
}

Bytes Sample::key() const { return {data() + up4(size), key_size}; }

SampleType* make_sample_type(const TypePtr& type) {
  auto* made = new SampleType;
  std::memset(static_cast<ddsi_sertype*>(made), 0, sizeof(ddsi_sertype));
  ddsi_sertype_init(made, type->name.c_str(), &type_ops, &sample_ops, !has_key(*type));
  made->allowed_data_representation = DDS_DATA_REPRESENTATION_FLAG_XCDR1;
  made->type = type;
  made->checker = std::make_unique<Checker>(type);
  made->keys = std::make_unique<KeyMaker>(type);
  if (has_key(*type)) {
    made->key_type = key_part(*type);
    made->long_keys = most_key_bytes(*type) > hash_bytes;
    if (made->long_keys) made->hashes = std::make_unique<KeysByHash>();
  }
  made->fingerprint = fingerprint(*type);
  return made;
}

Sample* make_sign_of_life(const SampleType& type, const Guid& writer) {
  std::vector<std::byte> key(1, std::byte{0xff});
  if (type.key_type) {
    std::vector<std::byte> payload;
    CdrWriter unlikely(payload);
    put_unlikely(*type.key_type, unlikely);
    key = serialised_key(*type.key_type, payload);
  }
  return make(type, SDK_KEY, writer, {}, key);
}

Sample* make_sample(const SampleType& type, ddsi_serdata_kind kind, const Guid& writer, Bytes payload, Bytes key) {
  return make(type, kind, writer, payload, type.key_type ? key : Bytes{});
}

}  // namespace sonde::bus::cyclonedds
