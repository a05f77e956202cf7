#include "store/types.hpp"

#include <algorithm>
#include <cstring>

namespace sonde::store {

bool role_of(Code code, Role& role) {
  const auto number = static_cast<unsigned>(code);
  if (code >= Code::object_create && code <= Code::object_list) role = Role::data;
  else if (code >= Code::kv_put && code <= Code::kv_scan) role = Role::kv;
  else if (code >= Code::db_define && code <= Code::db_query) role = Role::db;
  else return number == static_cast<unsigned>(Code::sync);
  return true;
}

std::string_view name_of(Code code) {
  switch (code) {
    case Code::sync: return "sync";
    case Code::object_create: return "object.create";
    case Code::object_write: return "object.write";
    case Code::object_read: return "object.read";
    case Code::object_status: return "object.status";
    case Code::object_remove: return "object.remove";
    case Code::object_truncate: return "object.truncate";
    case Code::object_list: return "object.list";
    case Code::kv_put: return "kv.put";
    case Code::kv_get: return "kv.get";
    case Code::kv_remove: return "kv.remove";
    case Code::kv_scan: return "kv.scan";
    case Code::db_define: return "db.define";
    case Code::db_describe: return "db.describe";
    case Code::db_undefine: return "db.undefine";
    case Code::db_insert: return "db.insert";
    case Code::db_update: return "db.update";
    case Code::db_remove: return "db.remove";
    case Code::db_query: return "db.query";
  }
  return "?";
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::data: return "data";
    case Role::kv: return "kv";
    case Role::db: return "db";
  }
  return "?";
}

std::string_view name_of(Safety safety) {
  switch (safety) {
    case Safety::none: return "none";
    case Safety::network: return "network";
    case Safety::storage: return "storage";
  }
  return "?";
}

std::string_view name_of(Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::not_found: return "not_found";
    case Status::exists: return "exists";
    case Status::invalid: return "invalid";
    case Status::too_large: return "too_large";
    case Status::no_space: return "no_space";
    case Status::denied: return "denied";
    case Status::io_error: return "io_error";
    case Status::corrupt: return "corrupt";
    case Status::unsupported: return "unsupported";
    case Status::aborted: return "aborted";
    case Status::unavailable: return "unavailable";
    case Status::timed_out: return "timed_out";
    case Status::disconnected: return "disconnected";
    case Status::internal: return "internal";
    case Status::pending: return "pending";
  }
  return "?";
}

std::string_view explain(Status status) {
  switch (status) {
    case Status::ok: return "done";
    case Status::not_found: return "the name does not exist";
    case Status::exists: return "the name exists already";
    case Status::invalid: return "a name, an offset or an encoding is not allowed";
    case Status::too_large: return "larger than the server allows";
    case Status::no_space: return "the server's disk, map or memory is full";
    case Status::denied: return "the server lacks the permission (see its files)";
    case Status::io_error: return "the server's disk or library reported an error; see its status";
    case Status::corrupt: return "a checksum is wrong; nothing was executed";
    case Status::unsupported: return "the server has no backend that can do it";
    case Status::aborted: return "not executed, because another operation of its atomic batch failed";
    case Status::unavailable: return "the server is shutting down or too busy";
    case Status::timed_out: return "not executed within its deadline";
    case Status::disconnected: return "the connection was lost before the answer; it may or may not have been done";
    case Status::internal: return "the server's backend threw an exception; see its status";
    case Status::pending: return "not answered yet";
  }
  return "?";
}

std::string explain(const Outcome& outcome) {
  return std::string(outcome.status == Status::internal && !outcome.data.empty() ? text_of(outcome.data)
                                                                                 : explain(outcome.status));
}

Status check(const Op& op) {
  Role role{};
  if (!role_of(op.code, role)) return Status::unsupported;
  if (op.code == Code::sync) return Status::ok;
  if (op.space.empty() || op.space.find('\0') != std::string_view::npos) return Status::invalid;
  if (op.space.size() > limit::space_bytes) return Status::too_large;
  const bool names = op.code == Code::object_list || op.code == Code::kv_scan;
  if (op.key.empty() && !names) return Status::invalid;
  if (op.key.size() > (role == Role::data ? limit::object_name_bytes : limit::key_bytes)) return Status::too_large;
  if (role == Role::data) {
    if (op.key.find('\0') != std::string_view::npos) return Status::invalid;
    const std::uint64_t length = op.code == Code::object_write  ? op.data.size()
                                 : op.code == Code::object_list ? 0
                                                                : op.length;
    if (op.offset > limit::object_bytes || length > limit::object_bytes - op.offset) return Status::too_large;
  }
  if (names && op.data.size() > (role == Role::data ? limit::object_name_bytes : limit::key_bytes))
    return Status::too_large;
  if (op.code == Code::kv_put && op.data.size() > limit::value_bytes) return Status::too_large;
  return Status::ok;
}

MutableBytes Arena::take(std::size_t n) {
  if (n == 0) return {};
  const std::size_t need = (n + 7) & ~std::size_t{7};
  if (chunks_.empty() || chunks_.back().size - chunks_.back().used < need) {
    const std::size_t size =
        std::max({need, chunk_bytes_, chunks_.empty() ? 0 : std::min<std::size_t>(2 * chunks_.back().size, 4u << 20)});
    chunks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size, 0});
  }
  Chunk& chunk = chunks_.back();
  MutableBytes out{chunk.memory.get() + chunk.used, n};
  chunk.used += need;
  used_ += n;
  return out;
}

Bytes Arena::copy(Bytes bytes) {
  const MutableBytes out = take(bytes.size());
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

Bytes Arena::keep(Bytes bytes, std::shared_ptr<const void> owner) {
  kept_.push_back(std::move(owner));
  used_ += bytes.size();
  return bytes;
}

void Arena::clear(std::size_t keep_bytes) {
  used_ = 0;
  kept_.clear();
  if (chunks_.empty()) return;
  auto largest =
      std::max_element(chunks_.begin(), chunks_.end(), [](const Chunk& a, const Chunk& b) { return a.size < b.size; });
  if (largest->size > keep_bytes) {
    chunks_.clear();
    return;
  }
  Chunk kept = std::move(*largest);
  kept.used = 0;
  chunks_.clear();
  chunks_.push_back(std::move(kept));
}

}  // namespace sonde::store
