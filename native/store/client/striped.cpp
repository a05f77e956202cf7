#include "store/striped.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/number.hpp"
#include "core/units.hpp"
#include "store/order.hpp"

namespace sonde::store {

namespace {

Error failed(Status status, const std::string& why, const char* verb, std::string_view space, std::string_view name) {
  return {"store." + std::string(name_of(status)),
          std::string("cannot ") + verb + " '" + std::string(name) + "' in '" + std::string(space) + "': " + why,
          "see the server's status"};
}
Error failed(const Batch& batch, std::size_t k, const char* verb, std::string_view space, std::string_view name) {
  return failed(batch[k].status, batch.why(k), verb, space, name);
}
Error failed(Status status, const char* verb, std::string_view space, std::string_view name) {
  return failed(status, std::string(explain(status)), verb, space, name);
}

Error bad_distribution(const std::string& text, const std::string& why) {
  return {"store.bad_distribution", "the distribution '" + text + "' cannot be used: " + why,
          "write round-robin,block=1MiB,start=0 or single,server=2 or weighted,block=4MiB,weights=1:2:1"};
}

/// The servers of the blocks of one turn: block b has server turn[b % turn.size()].
std::vector<unsigned> turn_of(const Distribution& d, unsigned servers) {
  std::vector<unsigned> turn;
  if (d.kind == Distribution::Kind::single) {
    turn.push_back(d.start);
  } else if (d.kind == Distribution::Kind::round_robin) {
    for (unsigned k = 0; k < servers; ++k) turn.push_back((d.start + k) % servers);
  } else {
    for (unsigned k = 0; k < servers; ++k) turn.insert(turn.end(), d.weights[k], k);
  }
  return turn;
}

/// Where a block lies among those of its server: how many of them come before it.
struct Layout {
  std::vector<unsigned> turn;
  std::vector<std::uint64_t> before;    ///< in this turn, of the same server
  std::vector<std::uint64_t> per_turn;  ///< by server

  Layout(const Distribution& d, unsigned servers) : turn(turn_of(d, servers)), per_turn(servers) {
    for (const unsigned server : turn) before.push_back(per_turn[server]++);
  }
  std::uint64_t local(std::uint64_t block) const {
    const std::size_t k = block % turn.size();
    return block / turn.size() * per_turn[turn[k]] + before[k];
  }
};

}  // namespace

std::string Distribution::text() const {
  switch (kind) {
    case Kind::single: return "single,server=" + std::to_string(start);
    case Kind::round_robin:
      return "round-robin,block=" + std::to_string(block_bytes) + ",start=" + std::to_string(start);
    case Kind::weighted: break;
  }
  std::string list;
  for (const unsigned w : weights) list += (list.empty() ? "" : ":") + std::to_string(w);
  return "weighted,block=" + std::to_string(block_bytes) + ",weights=" + list;
}

Result<Distribution> Distribution::parse(std::string_view text) {
  Distribution d;
  const std::string whole(text);
  for (bool first = true; first || !text.empty(); first = false) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (first) {
      if (word == "single") d.kind = Kind::single;
      else if (word == "round-robin") d.kind = Kind::round_robin;
      else if (word == "weighted") d.kind = Kind::weighted;
      else return bad_distribution(whole, "it must begin with round-robin, single or weighted");
      continue;
    }
    const std::size_t eq = word.find('=');
    const std::string_view name = word.substr(0, eq);
    std::string_view value = eq == std::string_view::npos ? std::string_view{} : word.substr(eq + 1);
    if (name == "block" && d.kind != Kind::single) {
      const auto bytes = parse_size(value);
      if (!bytes) return bytes.error();
      d.block_bytes = *bytes;
    } else if ((name == "start" && d.kind == Kind::round_robin) || (name == "server" && d.kind == Kind::single)) {
      if (!number(value, d.start))
        return bad_distribution(whole, "'" + std::string(value) + "' is not the number of a server");
    } else if (name == "weights" && d.kind == Kind::weighted) {
      while (!value.empty()) {
        unsigned w = 0;
        const auto [stop, why] = std::from_chars(value.data(), value.data() + value.size(), w);
        const bool more = stop != value.data() + value.size();
        if (why != std::errc{} || (more && *stop != ':') || w > 1000)
          return bad_distribution(whole, "weights are numbers up to 1000 with colons between them");
        d.weights.push_back(w);
        value.remove_prefix(static_cast<std::size_t>(stop - value.data()) + (more ? 1 : 0));
      }
    } else {
      return bad_distribution(whole, "'" + std::string(word) + "' is not known");
    }
  }
  if (d.block_bytes == 0) return bad_distribution(whole, "a block has at least one byte");
  return d;
}

std::vector<Piece> pieces_of(const Distribution& d, unsigned servers, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<Piece> pieces;
  if (bytes == 0) return pieces;
  if (d.kind == Distribution::Kind::single) return {{d.start, offset, 0, bytes}};
  const Layout layout(d, servers);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t block = (offset + at) / d.block_bytes, inside = (offset + at) % d.block_bytes;
    const std::uint64_t n = std::min(bytes - at, d.block_bytes - inside);
    const unsigned server = layout.turn[block % layout.turn.size()];
    const std::uint64_t local = layout.local(block) * d.block_bytes + inside;
    if (!pieces.empty() && pieces.back().server == server && pieces.back().offset + pieces.back().bytes == local)
      pieces.back().bytes += n;
    else pieces.push_back({server, local, at, n});
    at += n;
  }
  return pieces;
}

std::uint64_t whole_size(const Distribution& d, const std::vector<std::uint64_t>& sizes) {
  if (d.kind == Distribution::Kind::single) return sizes[d.start];
  const Layout layout(d, static_cast<unsigned>(sizes.size()));
  std::uint64_t size = 0;
  for (unsigned server = 0; server < sizes.size(); ++server) {
    if (sizes[server] == 0 || layout.per_turn[server] == 0) continue;
    const std::uint64_t local = (sizes[server] - 1) / d.block_bytes, inside = (sizes[server] - 1) % d.block_bytes;
    const std::uint64_t turns = local / layout.per_turn[server], in_turn = local % layout.per_turn[server];
    for (std::size_t k = 0; k < layout.turn.size(); ++k)
      if (layout.turn[k] == server && layout.before[k] == in_turn)
        size = std::max(size, (turns * layout.turn.size() + k) * d.block_bytes + inside + 1);
  }
  return size;
}

std::vector<std::uint64_t> piece_sizes(const Distribution& d, unsigned servers, std::uint64_t size) {
  std::vector<std::uint64_t> sizes(servers);
  if (d.kind == Distribution::Kind::single) {
    sizes[d.start] = size;
    return sizes;
  }
  const Layout layout(d, servers);
  const std::uint64_t blocks = size / d.block_bytes, rest = size % d.block_bytes, turns = blocks / layout.turn.size();
  for (unsigned k = 0; k < servers; ++k) sizes[k] = turns * layout.per_turn[k] * d.block_bytes;
  for (std::uint64_t b = turns * layout.turn.size(); b < blocks; ++b)
    sizes[layout.turn[b % layout.turn.size()]] += d.block_bytes;
  if (rest) sizes[layout.turn[blocks % layout.turn.size()]] += rest;
  return sizes;
}

Error Striped::failed(const Batch& batch, std::size_t k, const char* verb) const {
  return store::failed(batch, k, verb, shown_.first, shown_.second);
}
Error Striped::absent(const char* verb) const {
  return store::failed(Status::not_found, verb, shown_.first, shown_.second);
}

Result<Striped> Striped::make(Client& client, std::string space, std::string name, Distribution d) {
  const auto servers = static_cast<unsigned>(client.servers(Role::data));
  if (servers == 0)
    return Error{"store.no_server", "no server has the role data",
                 "start one with 'sonde store serve --backend data=…'"};
  if (d.start >= servers)
    return bad_distribution(d.text(), "there is no server " + std::to_string(d.start) +
                                          ": they are numbered from 0 to " + std::to_string(servers - 1));
  if (d.kind == Distribution::Kind::weighted &&
      (d.weights.size() != servers || std::accumulate(d.weights.begin(), d.weights.end(), 0u) == 0))
    return bad_distribution(
        d.text(), "it needs a weight for each of the " + std::to_string(servers) + " servers, not all of them 0");
  if (d.block_bytes == 0) return bad_distribution(d.text(), "a block has at least one byte");
  return Striped(client, std::move(space), std::move(name), std::move(d), servers);
}

template <class Fill>
Striped::Range Striped::each_piece(Batch& batch, Code code, std::uint64_t offset, std::size_t bytes, Fill fill) const {
  Range range{batch.size(), batch.size()};
  for (const Piece& p : pieces_of(distribution_, servers_, offset, bytes)) {
    Op op;
    op.code = code;
    op.space = space_;
    op.key = name_;
    op.offset = p.offset;
    fill(op, p);
    range.last = batch.add(op, static_cast<int>(p.server)) + 1;
  }
  return range;
}

Striped::Range Striped::write(Batch& batch, std::uint64_t offset, Bytes data) const {
  return each_piece(batch, Code::object_write, offset, data.size(),
                    [&](Op& op, const Piece& p) { op.data = data.subspan(p.at, p.bytes); });
}

Striped::Range Striped::read(Batch& batch, std::uint64_t offset, MutableBytes into) const {
  return each_piece(batch, Code::object_read, offset, into.size(), [&](Op& op, const Piece& p) {
    op.length = p.bytes;
    op.into = into.subspan(p.at, p.bytes);
  });
}

Result<std::uint64_t> Striped::finish_read(const Batch& batch, Range range, std::uint64_t offset,
                                           MutableBytes into) const {
  const auto pieces = pieces_of(distribution_, servers_, offset, into.size());
  std::uint64_t end = 0;
  bool is_short = false, any = pieces.empty();
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    const Outcome& out = batch[range.first + k];
    // A server that has no piece yet is as good as one whose piece is empty, while another one has some.
    if (out.status != Status::ok && out.status != Status::not_found) return failed(batch, range.first + k, "read");
    any |= out.status == Status::ok;
    const std::uint64_t got = out.status == Status::ok ? out.data.size() : 0;
    is_short |= got < pieces[k].bytes;
    if (got) end = pieces[k].at + got;
    if (got < pieces[k].bytes) std::memset(into.data() + pieces[k].at + got, 0, pieces[k].bytes - got);
  }
  if (!is_short) return into.size();
  // The sizes of all pieces show whether it ends here, or has a hole.
  auto info = const_cast<Striped*>(this)->status();
  if (!info) {
    if (!any || info.error().code != "store.not_found") return info.error();
    return end;
  }
  return std::max(end, info->size <= offset ? 0 : std::min<std::uint64_t>(into.size(), info->size - offset));
}

Result<void> Striped::all(Code code, std::uint8_t flags, const std::vector<std::uint64_t>& lengths, Safety safety,
                          bool may_miss) {
  Batch batch = client_->batch(safety);
  std::size_t there = 0;
  for (unsigned k = 0; k < servers_; ++k) {
    if (distribution_.kind == Distribution::Kind::single && k != distribution_.start) continue;
    Op op;
    op.code = code;
    op.flags = flags;
    op.space = space_;
    op.key = name_;
    op.length = lengths.empty() ? 0 : lengths[k];
    batch.add(op, static_cast<int>(k));
  }
  if (auto ok = batch.run(); !ok) return ok.error();
  const char* verb = code == Code::object_create   ? "create"
                     : code == Code::object_remove ? "remove"
                                                   : "change the size of";
  for (std::size_t k = 0; k < batch.size(); ++k) {
    if (batch[k].status == Status::ok) ++there;
    if (batch[k].status != Status::ok && !(may_miss && batch[k].status == Status::not_found) &&
        batch[k].status != Status::pending)
      return failed(batch, k, verb);
  }
  if (may_miss && there == 0 && safety != Safety::none) return absent(verb);
  return {};
}

Result<void> Striped::create(bool exclusive, Safety safety) {
  return all(Code::object_create, exclusive ? flag::exclusive : 0, {}, safety, false);
}
Result<void> Striped::remove(Safety safety) { return all(Code::object_remove, 0, {}, safety, true); }

Result<void> Striped::truncate(std::uint64_t size, Safety safety) {
  if (auto ok = all(Code::object_create, 0, {}, Safety::network, false); !ok)
    return ok.error();  // a server without a piece must know its length too
  return all(Code::object_truncate, 0, piece_sizes(distribution_, servers_, size), safety, false);
}

Result<void> Striped::write(std::uint64_t offset, Bytes data, Safety safety) {
  if (data.empty()) return create(false, safety);
  Batch batch = client_->batch(safety);
  write(batch, offset, data);
  if (auto ok = batch.run(); !ok) return ok.error();
  for (std::size_t k = 0; k < batch.size(); ++k)
    if (batch[k].status != Status::ok && batch[k].status != Status::pending) return failed(batch, k, "write");
  return {};
}

Result<std::uint64_t> Striped::read(std::uint64_t offset, MutableBytes into) {
  if (into.empty()) return std::uint64_t{0};
  Batch batch = client_->batch();
  const Range range = read(batch, offset, into);
  if (auto ok = batch.run(); !ok) return ok.error();
  return finish_read(batch, range, offset, into);
}

Result<ObjectInfo> Striped::status() {
  Batch batch = client_->batch();
  for (unsigned k = 0; k < servers_; ++k) {
    Op op;
    op.code = Code::object_status;
    op.space = space_;
    op.key = name_;
    batch.add(op, static_cast<int>(k));
  }
  if (auto ok = batch.run(); !ok) return ok.error();
  std::vector<std::uint64_t> sizes(servers_);
  ObjectInfo info;
  bool any = false;
  for (unsigned k = 0; k < servers_; ++k) {
    if (batch[k].status == Status::not_found) continue;
    if (batch[k].status != Status::ok) return failed(batch, k, "ask for");
    if (batch[k].value > limit::object_bytes)
      return store::failed(Status::corrupt,
                           "a server reports that its part has " + std::to_string(batch[k].value) +
                               " B, which is more than a part may have",
                           "ask for", shown_.first, shown_.second);
    any = true;
    sizes[k] = batch[k].value;
    info.changed_ns = std::max(info.changed_ns, batch[k].time_ns);
  }
  if (!any) return absent("ask for");
  info.size = whole_size(distribution_, sizes);
  return info;
}

namespace {

constexpr std::string_view items_space = "sonde.items";
constexpr std::size_t names_bytes_max = 256u << 20;  // of one collection, as Item::list() holds them all

/// A collection's name may not hold the byte that ends it.
std::string item_key(std::string_view collection, std::string_view name) {
  return std::string(collection) + '\0' + std::string(name);
}

/// The object that holds an item's bytes. A length in front, because an object's name may hold any byte that could part
/// two.
std::string bytes_name(std::string_view collection, std::string_view name) {
  return std::to_string(collection.size()) + ':' + std::string(collection) + std::string(name);
}

/// Checks for errors that kv or data servers would report, before either is asked.
Result<void> allowed(std::string_view collection, std::string_view name, std::string_view value) {
  for (const auto& [text, what] : {std::pair(collection, "collection"), std::pair(name, "item")})
    if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
      return Error{"store.bad_name",
                   std::string("byte ") + std::to_string(at) + " of the name of the " + what + " is NUL: '" +
                       std::string(text.substr(0, at)) + "…'",
                   "names of collections and items may have any byte but NUL"};
  const std::string key = item_key(collection, name);
  if (key.size() > limit::key_bytes)
    return Error{"store.too_large",
                 "the names of collection and item have " + std::to_string(key.size() - 1) +
                     " bytes together; allowed: " + std::to_string(limit::key_bytes - 1),
                 "shorten one of them"};
  if (value.size() > limit::value_bytes)
    return Error{"store.too_large",
                 "the metadata of the item takes " + std::to_string(value.size()) +
                     " bytes; allowed: " + std::to_string(limit::value_bytes),
                 "put large data into the item's content"};
  return {};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char ch : text) {
    if (ch == '\\' || ch == '\n' || ch == '=') {
      out += '\\';
      out += ch == '\n' ? 'n' : ch;
    } else {
      out += ch;
    }
  }
  return out;
}

}  // namespace

/// Lines "distribution=…", "created=…", "stripes=" the number of data servers, "servers=" their order where there are
/// several, then the metadata as "m.NAME=VALUE"; backslash, newline and = are escaped.
std::string Item::encode() const {
  std::string out = "distribution=" + data_.distribution().text() + "\ncreated=" + std::to_string(created_ns_) +
                    "\nstripes=" + std::to_string(data_.servers()) + "\n";
  if (!order_.empty()) out += "servers=" + escaped(order_) + "\n";
  for (const auto& [name, value] : metadata_) out += "m." + escaped(name) + "=" + escaped(value) + "\n";
  return out;
}

Result<Striped> Item::bytes_of_item(Client& client, std::string_view collection, std::string_view name,
                                    const Distribution& distribution) {
  auto data = Striped::make(client, std::string(items_space), bytes_name(collection, name), distribution);
  if (data) data->show_as(collection, name);
  return data;
}

Result<Item> Item::create(Client& client, std::string_view collection, std::string_view name,
                          const Distribution& distribution, Metadata metadata, Safety safety) {
  auto data = bytes_of_item(client, collection, name, distribution);
  if (!data) return data.error();
  Item item(client, std::string(collection), std::string(name), *data);
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  item.created_ns_ = std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  item.metadata_ = std::move(metadata);
  if (client.config().servers.size() > 1) item.order_ = order_of(client);
  const std::string value = item.encode();
  if (auto ok = allowed(collection, name, value); !ok) return ok.error();
  Batch there = client.batch();
  there.get(items_space, item_key(collection, name));
  if (auto ok = there.run(); !ok) return ok.error();
  if (there[0].status == Status::ok) return failed(Status::exists, "create the item", collection, name);
  if (there[0].status != Status::not_found) return failed(there, 0, "create the item", collection, name);
  // The description last, for it is what others see: where that fails, empty bytes are left, which the next create
  // takes over. Removing them could remove those of another client that has created the same item meanwhile.
  if (auto ok = item.data_.create(false, safety); !ok) return ok.error();
  Batch batch = client.batch(safety);
  batch.put(items_space, item_key(collection, name), bytes_of(value), flag::exclusive);
  if (auto ok = batch.run(); !ok) return ok.error();
  if (batch.failed()) return failed(batch, 0, "create the item", collection, name);
  return item;
}

namespace {

/// The content of an item's record.
struct Described {
  Distribution distribution;
  Metadata metadata;
  std::int64_t created_ns = 0;
  unsigned stripes = 0;  ///< 0: not recorded
  std::string order;
};

Result<Described> described(std::string_view record) {
  Described out;
  while (!record.empty()) {
    std::string key, value;
    std::string* to = &key;
    std::size_t k = 0;
    for (; k < record.size() && record[k] != '\n'; ++k) {
      if (record[k] == '\\' && k + 1 < record.size()) *to += record[++k] == 'n' ? '\n' : record[k];
      else if (record[k] == '=' && to == &key) to = &value;
      else *to += record[k];
    }
    record.remove_prefix(std::min(k + 1, record.size()));
    if (key == "distribution") {
      auto parsed = Distribution::parse(value);
      if (!parsed) return parsed.error();
      out.distribution = *parsed;
    } else if (key == "created") {
      std::from_chars(value.data(), value.data() + value.size(), out.created_ns);
    } else if (key == "stripes") {
      std::from_chars(value.data(), value.data() + value.size(), out.stripes);
    } else if (key == "servers") {
      out.order = value;
    } else if (key.starts_with("m.")) {
      out.metadata[key.substr(2)] = value;
    }
  }
  return out;
}

}  // namespace

Result<Item> Item::open(Client& client, std::string_view collection, std::string_view name) {
  const std::string called = "the item '" + std::string(name) + "' in '" + std::string(collection) + "'",
                    key = item_key(collection, name);
  Batch batch = client.batch();
  batch.get(items_space, key);
  if (auto ok = batch.run(); !ok) return ok.error();
  if (batch[0].status == Status::not_found && client.servers(Role::kv) > 1) {
    const auto searched = found_anywhere(client, items_space, key);
    if (!searched) return searched.error();
    if (const auto& stray = *searched) {
      const auto there = described(*stray);
      return there ? wrong_order(client, called, (*there).order) : there.error();
    }
  }
  if (batch.failed()) return failed(batch, 0, "open the item", collection, name);
  auto there = described(text_of(batch[0].data));
  if (!there) return there.error();
  const bool spread = (*there).distribution.kind != Distribution::Kind::single;
  if (other_order((*there).order, order_of(client)) ||
      (spread && (*there).stripes > 1 && (*there).stripes != client.servers(Role::data)))
    return wrong_order(client, called, (*there).order);
  auto data = bytes_of_item(client, collection, name, (*there).distribution);
  if (!data) return data.error();
  Item item(client, std::string(collection), std::string(name), *data);
  item.metadata_ = std::move((*there).metadata);
  item.created_ns_ = (*there).created_ns;
  item.order_ = std::move((*there).order);
  return item;
}

Result<std::vector<std::string>> Item::list(Client& client, std::string_view collection, std::string_view prefix) {
  std::vector<std::string> names;
  std::size_t bytes = 0;
  const std::string key = item_key(collection, prefix);
  auto ok = client.scan(items_space, key, true, [&](std::string_view full, Bytes) {
    names.emplace_back(full.substr(collection.size() + 1));
    bytes += sizeof(std::string) + names.back().size();
    return bytes <= names_bytes_max;
  });
  if (!ok) return ok.error();
  if (bytes > names_bytes_max)
    return Error{"store.too_large",
                 "the names of the items of '" + std::string(collection) + "' that begin with '" + std::string(prefix) +
                     "' take more than " + std::to_string(names_bytes_max >> 20) + " MiB",
                 "list them with a longer prefix"};
  return names;
}

Result<void> Item::remove(Client& client, std::string_view collection, std::string_view name, Safety safety) {
  auto item = open(client, collection, name);
  if (!item) return item.error();
  // Bytes first: a description without bytes can be removed again, bytes without a description would never be found.
  if (auto ok = item->data_.remove(safety); !ok && ok.error().code != "store.not_found") return ok.error();
  Batch batch = client.batch(safety);
  batch.remove(items_space, item_key(collection, name));
  if (auto ok = batch.run(); !ok) return ok.error();
  if (batch.failed()) return failed(batch, 0, "remove the item", collection, name);
  return {};
}

Result<void> Item::describe(Metadata metadata, Safety safety) {
  Metadata before = std::exchange(metadata_, std::move(metadata));
  auto ok = put_description(safety);
  if (!ok) metadata_ = std::move(before);
  return ok;
}

Result<void> Item::put_description(Safety safety) {
  const std::string key = item_key(collection_, name_), value = encode();
  if (auto ok = allowed(collection_, name_, value); !ok) return ok;
  // An item that was removed meanwhile stays removed. If it is removed at this very moment, its description may remain.
  Batch there = client_->batch();
  there.add({Code::kv_get, 0, items_space, key, 0, 1, {}, {}});
  if (auto ok = there.run(); !ok) return ok;
  if (there.failed()) return failed(there, 0, "describe the item", collection_, name_);
  Batch batch = client_->batch(safety);
  batch.put(items_space, key, bytes_of(value));
  if (auto ok = batch.run(); !ok) return ok;
  if (batch.failed()) return failed(batch, 0, "describe the item", collection_, name_);
  return {};
}

}  // namespace sonde::store
