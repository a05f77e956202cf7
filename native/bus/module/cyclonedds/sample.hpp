#pragma once
/// Samples for Cyclone DDS without types from idlc: a payload of any structure passes unchanged.
///
/// For Cyclone, a *sertype* describes a type and a *serdata* a sample. Ours hold the payload in one piece: it is
/// copied once, from the writer's memory or from the received fragments, and readers get a view of it. Instances are
/// distinguished by the serialised key.

#include <dds/dds.h>
#include <dds/ddsi/ddsi_serdata.h>
#include <dds/ddsi/ddsi_sertype.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/implementation.hpp"

namespace sonde::bus::cyclonedds {

/// The missing samples of each writer, by sequence number: Cyclone 0.10 knows them, but does not report them.
/// Any-thread.
class Arrivals {
 public:
  /// The number of this writer's samples that were missing before this one, since its first received one. `tells_all`:
  /// all its disposals have numbers.
  std::uint64_t missing(const Guid& writer, std::uint64_t sequence, bool tells_all);
  /// Records a disposal for which Cyclone reports neither writer nor number: one fewer sample counts as missing in the
  /// next gap of some writer.
  void came_without_number();

 private:
  struct Seen {
    std::uint64_t last = 0, missing = 0;
  };
  std::mutex mutex_;
  std::map<Guid, Seen> writers_;
  std::uint64_t without_number_ = 0;
  std::pair<const Guid, Seen>* last_ =
      nullptr;  ///< the last requested one, because most samples of a datagram are of one writer
};

/// Keys that are too long for a hash to be the key itself, by their hash. Any-thread.
class KeysByHash {
 public:
  void saw(Bytes key);
  /// Empty: no key with this hash is known.
  std::vector<std::byte> key_of(Bytes hash) const;

 private:
  mutable std::mutex mutex_;
  std::set<std::vector<std::byte>> known_;
  std::map<std::array<std::byte, 16>, std::vector<std::byte>> keys_;
};

/// The type of a topic. Cyclone counts references to it: created by make_sample_type(), released by
/// ddsi_sertype_unref().
struct SampleType : ddsi_sertype {
  TypePtr type;
  std::unique_ptr<Checker> checker;
  std::unique_ptr<KeyMaker> keys;
  TypePtr key_type;        ///< its key fields alone, as disposals carry them; null: no key
  bool long_keys = false;  ///< a key may have more bytes than its hash
  std::string fingerprint;
  std::unique_ptr<KeysByHash> hashes;  ///< of received samples whose writers will say no more; null: not needed
  mutable Arrivals arrivals;
};

/// A sample of any type of ours: one block of memory, followed by payload and key.
struct Sample : ddsi_serdata {
  Guid writer;
  std::int64_t received_ns;  ///< CLOCK_REALTIME; 0: it was written here, not received
  std::uint64_t missing;     ///< the result of Arrivals::missing()
  std::uint64_t order;  ///< for types with key: the order in which samples of all writers were created in this process
  std::size_t memory_bytes;  ///< the requested size of the whole block
  std::uint32_t size, key_size;
  bool writer_known;

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(this + 1); }
  Bytes payload() const { return {data(), size}; }
  Bytes key() const;
};

SampleType* make_sample_type(const TypePtr& type);
/// Null: no memory. Kind is data, or key for a disposal, whose payload is then created from the key.
Sample* make_sample(const SampleType& type, ddsi_serdata_kind kind, const Guid& writer, Bytes payload, Bytes key);
/// An unused instance to unregister: this shows that the writer is alive, and changes nothing else.
Sample* make_sign_of_life(const SampleType& type, const Guid& writer);

}  // namespace sonde::bus::cyclonedds
