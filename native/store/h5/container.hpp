#pragma once
/// An HDF5 file as it is stored: records under keys, and the bytes of datasets in objects. This class does not use
/// HDF5's library.
///
/// A file has one kv space and one object space. Both are named "h5." and the file's 16 hex digits; the space
/// "h5.files" maps absolute names to them. The keys (ids are 16 hex digits, so a scan by prefix finds the records of
/// one object):
///
///   f                  the file: number of data servers it is striped over, sessions so far, creation properties
///   s                  the order of the servers it was made on, if there are several (store/order.hpp)
///   o <id>             an object's header: kind, counts, creation properties; for datasets also type, space, layout
///   l <id> <name>      a link of a group
///   a <id> <name>      an attribute with its value
///   c <id> 4.0.7       where the chunk at these chunk coordinates lies in the dataset's data
///
/// The objects: "<id>d" is a dataset's data, "<id>h" is the heap for its elements of variable length, and "<session>p"
/// is a pool with the data of all contiguous datasets of up to 64 KiB that one session made, one behind the other. So
/// thousands of small datasets become a few large writes to one object. The space of a removed dataset is not used
/// again until the file is removed.
///
/// Changes are gathered. They are sent as one batch when there are enough of them, with flush() and at close. Other
/// processes therefore see data after flush() or close(), in the objects that they open after that. Within a process
/// all users of a file share one Container, and see everything at once. The data that a read-only process reads from
/// small datasets may be up to 50 ms old. Only one process may write a file at a time: as with HDF5's own files, the
/// user must ensure that. After a batch has failed, every later call and close() report it.
///
/// Thread rule: HDF5 serialises all calls of its library, and so also the calls of this class.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "store/h5/failure.hpp"
#include "store/h5/records.hpp"
#include "store/store.hpp"

namespace sonde::store::h5 {

inline constexpr ObjectId root_id = 1;

/// The place of the files and the way to it: the client and the connector's own settings.
struct Service {
  explicit Service(Client opened) : client(std::move(opened)) {}
  /// Connections belong to the process that made them: after fork() the child must not use its parent's.
  bool ours() const { return process == getpid(); }
  Client client;
  pid_t process = getpid();
  std::string label;  ///< the settings that it was made from; two services with the same label are one
  std::uint64_t stripe_bytes = 1u << 20;
  std::uint64_t chunk_cache_bytes = 64u << 20;  ///< for each dataset
  bool flush_durably = true;  ///< false: flush() waits as close() does, until every client can see the data
};

/// The state that the dataset code has for an open dataset (dataset.cpp), including changed chunks.
class DatasetState {
 public:
  virtual ~DatasetState() = default;
  virtual void flush() = 0;
};

/// An object's header, and the parts of the object that this process has read.
struct Object : Header {
  ObjectId id = 0;

  // group
  bool links_loaded = false;
  std::uint32_t link_misses = 0;
  std::map<std::string, Link, std::less<>> links;  ///< all links, or those seen until now
  std::vector<std::string> by_order;               ///< names in creation order; empty: not computed

  // any kind
  bool attributes_loaded = false;
  std::map<std::string, std::shared_ptr<Attribute>, std::less<>> attributes;

  // dataset
  bool chunks_loaded = false;
  std::map<ChunkAt, Chunk> chunks;

  unsigned handles = 0;
  bool dirty = false;  ///< the header differs from the stored one
  std::unique_ptr<DatasetState> state;
};
using ObjectPtr = std::shared_ptr<Object>;

enum class Part : char { data = 'd', heap = 'h' };
struct WritePiece {
  std::uint64_t offset;
  Bytes bytes;
};
struct ReadPiece {
  std::uint64_t offset;
  MutableBytes into;  ///< bytes that were never written become zeros
};

class Container : public std::enable_shared_from_this<Container> {
 public:
  enum class Create { exclusive, truncate };
  /// Errors: exists (exclusive), in_use (truncate of a file that this process has open), io.
  static std::shared_ptr<Container> create(const std::shared_ptr<Service>& service, const std::string& name, Create how,
                                           std::string properties, const Object& root);
  /// Errors: not_found, in_use (writable, although this process has it open read-only), io.
  static std::shared_ptr<Container> open(const std::shared_ptr<Service>& service, const std::string& name,
                                         bool writable);
  static bool exists(Service& service, const std::string& name);
  static void remove(const std::shared_ptr<Service>& service, const std::string& name);
  ~Container();

  const std::string& name() const { return name_; }
  const std::string& properties() const { return properties_; }
  std::uint64_t number() const { return number_; }  ///< differs between files, the same in every process
  bool writable() const { return writable_; }
  Service& service() { return *service_; }

  ObjectPtr object(ObjectId id);
  /// Creates an object without a link. The caller fills in the header, then calls changed().
  ObjectPtr make(Kind kind);
  void changed(Object& object);

  const Link* find_link(Object& group, std::string_view name);
  const std::map<std::string, Link, std::less<>>& links(Object& group);
  const std::vector<std::string>& links_by_order(Object& group);
  /// Sets the link's order. The caller updates the counts of the target: see adjust().
  void add_link(Object& group, const std::string& name, Link link);
  void remove_link(Object& group, std::string_view name);
  /// Adds to an object's number of hard links. An object without links and handles is removed.
  void adjust(Object& object, int by);
  /// Must be called when a handle is closed. The last handle of an object without links removes the object.
  void release(const ObjectPtr& object);

  const std::map<std::string, std::shared_ptr<Attribute>, std::less<>>& attributes(Object& object);
  std::shared_ptr<Attribute> find_attribute(Object& object, std::string_view name);
  void put_attribute(Object& object, const std::string& name, const std::shared_ptr<Attribute>& attribute);
  void store_attribute(Object& object, std::string_view name, const Attribute& attribute);
  void remove_attribute(Object& object, std::string_view name);
  void rename_attribute(Object& object, const std::string& from, const std::string& to);

  const std::map<ChunkAt, Chunk>& chunks(Object& dataset);
  void put_chunk(Object& dataset, const ChunkAt& at, const Chunk& chunk);
  void remove_chunk(Object& dataset, const ChunkAt& at);

  /// Decides where a contiguous dataset of this size will lie.
  void place(Object& object, std::uint64_t bytes);
  /// Large pieces are sent at once, from the caller's memory; small ones are copied and gathered.
  void write(Object& object, Part part, const std::vector<WritePiece>& pieces);
  /// Bytes that were never written are zeros. `whole`: all bytes were written, so fewer are damage.
  void read(Object& object, Part part, const std::vector<ReadPiece>& pieces, bool whole = false);
  /// Reads `bytes` that were all written. Memory grows as they arrive, because a damaged record may claim any number.
  std::vector<std::byte> read_whole(Object& object, Part part, std::uint64_t offset, std::uint64_t bytes);

  /// Sends everything to the servers. `durably`: also to stable storage (if the backend has it).
  void flush(bool durably);
  /// From now on every call fails with this reason, also flush() and close(). Only the first reason counts.
  void mark_broken(const std::string& why);
  /// Discards what was read, so that it is read again. Changes of this process are sent first. Errors: io, if the id
  /// now belongs to another object.
  void refresh(Object& object);
  /// The present length of the heap: another process may have written to it since the header was read.
  std::uint64_t heap_end(Object& dataset);

 private:
  struct Wave;
  Container(std::shared_ptr<Service> service, std::string name, std::string space);

  void put(std::string key, std::string value);
  void erase(std::string key);
  std::optional<std::string> fetch(const std::string& key);
  /// Visits all records whose keys have this prefix. Their total size is limited, because they are in memory.
  void scan(const std::string& prefix, const std::string& doing,
            const std::function<void(std::string_view key, std::string_view record)>& each) const;
  void prefetch(const Object& group, std::string_view from);
  std::string encode_file() const;
  void remove_object(Object& object);
  void each_stripe(
      std::uint64_t offset, std::uint64_t length,
      const std::function<void(int server, std::uint64_t local, std::uint64_t at, std::uint64_t n)>& each) const;
  void check_writable() const;
  void check_health() const;
  void check_named();  ///< that the file is still there; removes what was written to one that is not, and throws
  bool read_ahead(const Object& object, std::uint64_t at, MutableBytes into);
  void end_run();  ///< what was gathered of one object becomes an operation
  void launch();   ///< sends what is gathered, without waiting
  void settle();   ///< waits for what was sent
  void drain() {
    launch();
    settle();
  }

  std::shared_ptr<Service> service_;
  std::string name_, space_, properties_;
  std::uint64_t number_ = 0;
  std::uint32_t session_ = 0, next_in_session_ = 0;
  std::uint64_t pool_end_ = 0;
  std::uint32_t stripes_ = 1;
  std::uint64_t stripe_bytes_ = 1u << 20;
  bool writable_ = false, session_begun_ = false;

  std::unordered_map<ObjectId, ObjectPtr> objects_;
  std::unordered_map<std::string, std::optional<std::string>> puts_;  ///< key to value; nullopt: to be removed
  std::set<ObjectId> dirty_;
  std::size_t put_bytes_ = 0;
  std::unique_ptr<Wave> filling_, flying_;
  struct {
    std::uint64_t pool = 0, at = 0, next = 0;
    std::vector<std::byte> bytes;
    std::chrono::steady_clock::time_point read_at;
  } ahead_;                            ///< of small datasets that are read one after the other
  std::optional<std::string> broken_;  ///< why something written earlier did not arrive
};

/// "/abs/file.h5" of any spelling of it.
std::string absolute_name(const std::string& name);

}  // namespace sonde::store::h5
