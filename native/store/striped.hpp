#pragma once
/// Objects that lie on several data servers, and items: named objects in collections, with metadata.
///
/// A striped object is cut into blocks, and its Distribution says which server has which. Reads and writes go to all
/// servers concerned at once. Owner-thread.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/store.hpp"

namespace sonde::store {

/// Which server has which block of a striped object.
struct Distribution {
  enum class Kind : std::uint8_t { single, round_robin, weighted };
  Kind kind = Kind::round_robin;
  std::uint64_t block_bytes = 1u << 20;  ///< > 0; not used by single
  unsigned start = 0;                    ///< server of block 0; single: of everything
  std::vector<unsigned>
      weights;  ///< weighted: blocks in a row on each server, from server 0 on; as many as servers, not all 0

  /// "round-robin,block=1MiB,start=0", "single,server=2", "weighted,block=4MiB,weights=1:2:1".
  std::string text() const;
  /// Error: store.bad_distribution.
  static Result<Distribution> parse(std::string_view text);
};

/// A piece of a striped object on one server.
struct Piece {
  unsigned server;
  std::uint64_t offset;  ///< in that server's object
  std::uint64_t at;      ///< from the beginning of the range asked for
  std::uint64_t bytes;
};

/// The pieces of [offset, offset + bytes), in order of `at`; neighbours on one server are joined.
std::vector<Piece> pieces_of(const Distribution& distribution, unsigned servers, std::uint64_t offset,
                             std::uint64_t bytes);
/// Size of the whole from the size of each server's object, and the size that each has when the whole has `size`.
std::uint64_t whole_size(const Distribution& distribution, const std::vector<std::uint64_t>& sizes);
std::vector<std::uint64_t> piece_sizes(const Distribution& distribution, unsigned servers, std::uint64_t size);

struct ObjectInfo {
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;  ///< since 1970
};

class Striped {
 public:
  /// Error: store.bad_distribution (more servers than there are, weights that do not fit).
  static Result<Striped> make(Client& client, std::string space, std::string name, Distribution distribution);

  /// Puts the pieces of a write or read into a batch; several may share one. Their places in it: [first, last).
  struct Range {
    std::size_t first, last;
  };
  Range write(Batch& batch, std::uint64_t offset, Bytes data) const;
  Range read(Batch& batch, std::uint64_t offset, MutableBytes into) const;
  /// Bytes read by a range of a batch that was run; holes have become zeros. Error: the first piece that failed.
  Result<std::uint64_t> finish_read(const Batch& batch, Range range, std::uint64_t offset, MutableBytes into) const;

  Result<void> create(bool exclusive, Safety safety = Safety::network);
  Result<void> write(std::uint64_t offset, Bytes data, Safety safety = Safety::network);
  Result<std::uint64_t> read(std::uint64_t offset, MutableBytes into);
  /// Error store.not_found when no server has a piece.
  Result<ObjectInfo> status();
  Result<void> truncate(std::uint64_t size, Safety safety = Safety::network);
  Result<void> remove(Safety safety = Safety::network);

  const Distribution& distribution() const { return distribution_; }
  unsigned servers() const { return servers_; }

 private:
  friend class Item;
  Striped(Client& client, std::string space, std::string name, Distribution distribution, unsigned servers)
      : client_(&client),
        space_(std::move(space)),
        name_(std::move(name)),
        distribution_(std::move(distribution)),
        servers_(servers) {}
  Result<void> all(Code code, std::uint8_t flags, const std::vector<std::uint64_t>& lengths, Safety safety,
                   bool may_miss);
  /// An operation for each piece of a range, of which `fill` names the memory.
  template <class Fill>
  Range each_piece(Batch& batch, Code code, std::uint64_t offset, std::size_t bytes, Fill fill) const;

  /// Errors use the owner's name for it, not the names of the objects in which it is stored.
  void show_as(std::string_view space, std::string_view name) { shown_ = {std::string(space), std::string(name)}; }
  Error failed(const Batch& batch, std::size_t k, const char* verb) const;
  Error absent(const char* verb) const;

  Client* client_;
  std::string space_, name_;
  std::pair<std::string, std::string> shown_{space_, name_};
  Distribution distribution_;
  unsigned servers_;
};

using Metadata = std::map<std::string, std::string, std::less<>>;

/// A named object of a collection. Its description lies in the kv servers and its bytes, striped, in the data servers,
/// both in the space "sonde.items": an object of the collection's and the item's name is another thing.
class Item {
 public:
  /// All or nothing: after a failure halfway, no client sees the item, and it can be created again.
  /// Errors: store.exists, store.bad_distribution, store.bad_name (a NUL), store.too_large.
  static Result<Item> create(Client& client, std::string_view collection, std::string_view name,
                             const Distribution& distribution, Metadata metadata = {}, Safety safety = Safety::network);
  /// Errors: store.not_found; store.other_servers, the client names other servers than the item's creator, or in
  /// another order.
  static Result<Item> open(Client& client, std::string_view collection, std::string_view name);
  /// Names of a collection, in byte order. Error store.too_large: they take more than 256 MiB.
  static Result<std::vector<std::string>> list(Client& client, std::string_view collection,
                                               std::string_view prefix = {});
  static Result<void> remove(Client& client, std::string_view collection, std::string_view name,
                             Safety safety = Safety::network);

  Striped& data() { return data_; }
  const Metadata& metadata() const { return metadata_; }
  std::int64_t created_ns() const { return created_ns_; }
  /// Replaces the metadata; where that fails, what metadata() says stays too. Errors: store.not_found, it was removed;
  /// store.too_large.
  Result<void> describe(Metadata metadata, Safety safety = Safety::network);

 private:
  Item(Client& client, std::string collection, std::string name, Striped data)
      : client_(&client), collection_(std::move(collection)), name_(std::move(name)), data_(std::move(data)) {}
  static Result<Striped> bytes_of_item(Client& client, std::string_view collection, std::string_view name,
                                       const Distribution& distribution);
  std::string encode() const;
  Result<void> put_description(Safety safety);

  Client* client_;
  std::string collection_, name_;
  Striped data_;
  Metadata metadata_;
  std::int64_t created_ns_ = 0;
  std::string order_;  ///< of the servers when it was made, as order_of() has it
};

}  // namespace sonde::store
