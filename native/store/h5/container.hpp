#pragma once
/// An HDF5 file as it lies in the store: records under keys, datasets' bytes in objects. Knows nothing of HDF5's
/// library.
///
/// One kv space and one object space per file, both named "h5." and the file's 16 hex digits; the space "h5.files" maps
/// absolute names to them. Keys (ids are 16 hex digits, so that a scan by prefix gives what belongs together):
///
///   f                  the file: over how many servers it is striped, sessions so far, creation properties
///   s                  the order of the servers it was made on, where there are several (store/order.hpp)
///   o <id>             an object's header: kind, counts, creation properties; of datasets also type, space, layout
///   l <id> <name>      a link of a group
///   a <id> <name>      an attribute, its value included
///   c <id> 4.0.7       where the chunk at these chunk coordinates lies in the dataset's data
///
/// Objects: "<id>d" a dataset's data, "<id>h" what its elements of variable length point to, "<session>p" the data of
/// all contiguous datasets of up to 64 KiB that one session made, one behind the other. So thousands of small datasets
/// are a few large writes to one object. What a removed one had stays unused until the file goes.
///
/// Changes are gathered and sent as one batch when enough have come together, with flush() and at close. So other
/// processes see what was written after flush() or close(), and read what they open anew; within a process all who
/// open a file share one Container, and see everything at once. What a read-only process reads of small datasets may be
/// up to 50 ms old. One process may write a file at a time: as with
/// HDF5's own files the user sees to that. A batch that fails is told by every later call and by close().
///
/// Thread rule: HDF5 serialises all calls of its library, and these with them.

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

/// Where files are and how they get there: the client and what the connector's own settings say.
struct Service {
  explicit Service(Client opened) : client(std::move(opened)) {}
  /// Connections belong to the process that made them: after fork() the child must not touch its parent's.
  bool ours() const { return process == getpid(); }
  Client client;
  pid_t process = getpid();
  std::string label;  ///< the settings it came from; two with the same label are one
  std::uint64_t stripe_bytes = 1u << 20;
  std::uint64_t chunk_cache_bytes = 64u << 20;  ///< of one dataset
  bool flush_durably = true;                    ///< else flush() ends where close() does: when every client can see it
};

/// What the dataset code keeps of an open dataset (dataset.cpp): changed chunks among it.
class DatasetState {
 public:
  virtual ~DatasetState() = default;
  virtual void flush() = 0;
};

/// An object's header, and what this process has read of it.
struct Object : Header {
  ObjectId id = 0;

  // group
  bool links_loaded = false;
  std::uint32_t link_misses = 0;
  std::map<std::string, Link, std::less<>> links;  ///< all, or those seen so far
  std::vector<std::string> by_order;               ///< names by creation order; empty: not computed

  // of every kind
  bool attributes_loaded = false;
  std::map<std::string, std::shared_ptr<Attribute>, std::less<>> attributes;

  // dataset
  bool chunks_loaded = false;
  std::map<ChunkAt, Chunk> chunks;

  unsigned handles = 0;
  bool dirty = false;  ///< header differs from the store's
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
  MutableBytes into;  ///< what was never written reads as zeros
};

class Container : public std::enable_shared_from_this<Container> {
 public:
  enum class Create { exclusive, truncate };
  /// Errors: exists (exclusive), in_use (truncate of a file that this process has open), io.
  static std::shared_ptr<Container> create(const std::shared_ptr<Service>& service, const std::string& name, Create how,
                                           std::string properties, const Object& root);
  /// Errors: not_found, in_use (writable, though this process has it open read-only), io.
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
  /// A new object without a link. Its caller fills in the header, then calls changed().
  ObjectPtr make(Kind kind);
  void changed(Object& object);

  const Link* find_link(Object& group, std::string_view name);
  const std::map<std::string, Link, std::less<>>& links(Object& group);
  const std::vector<std::string>& links_by_order(Object& group);
  /// Sets its order; counts on the target are the caller's: see adjust().
  void add_link(Object& group, const std::string& name, Link link);
  void remove_link(Object& group, std::string_view name);
  /// Adds to the number of hard links of an object; with none left and no handle it is removed.
  void adjust(Object& object, int by);
  /// A handle was closed. The last one of an object without links removes it.
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

  /// Decides where a contiguous dataset of that many bytes is to lie.
  void place(Object& object, std::uint64_t bytes);
  /// Large pieces go at once, from the caller's memory; small ones are copied and gathered.
  void write(Object& object, Part part, const std::vector<WritePiece>& pieces);
  /// What was never written is zeros. `whole`: all of it was written, so that less is damage.
  void read(Object& object, Part part, const std::vector<ReadPiece>& pieces, bool whole = false);
  /// Of `bytes` that were all written: memory grows as they come, since what a record says of them may be anything.
  std::vector<std::byte> read_whole(Object& object, Part part, std::uint64_t offset, std::uint64_t bytes);

  /// Everything reaches the servers; `durably`, stable storage too (where the backend can).
  void flush(bool durably);
  /// From now on every call fails with this, flush() and close among them; the first one counts.
  void mark_broken(const std::string& why);
  /// Forgets what was read, so that it is read anew; what this process changed is sent before. Errors: io, where it is
  /// another object now.
  void refresh(Object& object);
  /// How long its heap is by now: another process may have written more of it since the header was read.
  std::uint64_t heap_end(Object& dataset);

 private:
  struct Wave;
  Container(std::shared_ptr<Service> service, std::string name, std::string space);

  void put(std::string key, std::string value);
  void erase(std::string key);
  std::optional<std::string> fetch(const std::string& key);
  /// All records whose keys begin so; bounded, since they are kept in memory.
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
