#include "store/server/session.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "store/guard.hpp"
#include "store/server/session_parts.hpp"

namespace sonde::store {

namespace {

constexpr std::size_t turn_bytes = 512u << 10;  ///< read for one connection before others get their turn
constexpr std::size_t mixed_reads_max = 64u << 20;

}  // namespace

void Session::finish_frame(const std::shared_ptr<Message>& message) {
  if (!message->complete) return;
  const Emit send = [this](Outgoing out) { reply(std::move(out)); };
  if (message->refused != Status::ok) refuse_all(*message, message->refused, send);
  else emit_reply(*message, true, send);
  if (message->header.flags & wire::no_reply) lost_ops_ += static_cast<std::uint32_t>(message->failed);
}

void Session::refuse_all(Message& m, Status status, const Emit& emit) {
  m.answers.clear();
  m.segments.clear();
  m.data = 0;
  m.failed = m.header.batch_ops;
  server_.metrics().outcomes[static_cast<std::size_t>(status)].fetch_add(m.header.batch_ops, std::memory_order_relaxed);
  wire::Answer a;
  a.status = status;
  a.run = m.header.batch_ops;
  m.answers.add(a);
  emit_reply(m, true, emit);
}

void Session::answer(Message& m, std::uint32_t index, const Op& op, const Outcome& out, const Emit& emit) {
  server_.metrics().operations[static_cast<std::size_t>(op.code) % 128].fetch_add(1, std::memory_order_relaxed);
  server_.metrics().outcomes[static_cast<std::size_t>(out.status)].fetch_add(1, std::memory_order_relaxed);
  if (out.status != Status::ok && out.status != Status::not_found) {
    ++m.failed;
    // One operation of the batch has the text of an exception; the others must not hide it.
    const bool told = out.status == Status::internal && !out.data.empty();
    if (told || out.status == Status::io_error || out.status == Status::no_space || out.status == Status::denied)
      server_.metrics().failed(std::string(name_of(op.code)) + " of '" + std::string(op.key) + "' in '" +
                               std::string(op.space) + "': " + explain(out));
  }
  if (m.header.flags & wire::no_reply) return;
  Bytes left = out.status == Status::ok || out.status == Status::internal ? out.data : Bytes{};
  if (out.status == Status::ok && op.code == Code::kv_get && op.length && left.size() > op.length)
    left = left.first(op.length);
  const std::size_t frame_data = server_.config().frame_data;
  do {
    if (m.answers.ops() == wire::frame_ops_max || m.answers.bytes() > (256u << 10) || m.data >= frame_data ||
        (m.data && m.data + left.size() > frame_data && left.size() <= frame_data))
      emit_reply(m, false, emit);
    const std::size_t n = std::min(left.size(), frame_data - m.data);
    wire::Answer a;
    a.status = out.status;
    a.index = index;
    a.value = out.value;
    a.time_ns = out.time_ns;
    a.data_bytes = static_cast<std::uint32_t>(n);
    m.answers.add(a);
    if (n) {
      if (link_options_.gather && !m.segments.empty() &&
          m.segments.back().data() + m.segments.back().size() == left.data())
        m.segments.back() = {m.segments.back().data(), m.segments.back().size() + n};
      else m.segments.push_back(left.first(n));
      m.data += static_cast<std::uint32_t>(n);
    }
    left = left.subspan(n);
  } while (!left.empty());
}

void Session::emit_reply(Message& m, bool last, const Emit& emit) {
  if (last && m.wait_ns >= 0) {
    const auto role = static_cast<std::size_t>(m.header.role);
    server_.metrics().waited[role].add(m.wait_ns);
    server_.metrics().worked[role].add(m.backend_ns);
  }
  if (m.header.flags & wire::no_reply) return;
  wire::Header h;
  h.kind = wire::Kind::reply;
  h.flags = static_cast<std::uint16_t>((last ? 0 : wire::more) | (checksum_ ? wire::data_sum : 0));
  h.id = m.header.id;
  h.ops = m.answers.ops();
  h.table_bytes = static_cast<std::uint32_t>(m.answers.bytes());
  h.data_bytes = m.data;
  h.role = m.header.role;
  h.safety = m.header.safety;
  h.part = m.part_out++;
  h.batch_ops = m.header.batch_ops;
  h.wait_us = static_cast<std::uint32_t>(std::max<std::int64_t>(m.wait_ns, 0) / 1000);
  h.backend_us = static_cast<std::uint32_t>(m.backend_ns / 1000);
  h.body_crc = wire::crc32c(m.answers.table());
  if (checksum_)
    for (const Segment& s : m.segments) h.body_crc = wire::crc32c(s, h.body_crc);
  Outgoing out;
  out.head.resize(wire::header_bytes + m.answers.bytes());
  wire::encode(h, out.head.data());
  if (m.answers.bytes()) std::memcpy(out.head.data() + wire::header_bytes, m.answers.table().data(), m.answers.bytes());
  out.segments = std::move(m.segments);
  out.keep = m.arena;
  out.last = last;
  server_.metrics().bytes_out.fetch_add(m.data, std::memory_order_relaxed);
  m.answers.clear();
  m.segments.clear();
  m.data = 0;
  emit(std::move(out));
}

/// Executes operations on objects from `position` on. False: the client must read answers first (bounded only).
bool Session::run_data(Message& m, std::span<const wire::Record> records, Bytes data, Position& position, Scratch& s,
                       const Emit& emit, bool bounded) {
  Backend& backend = server_.lane(Role::data)->backend();
  const std::size_t frame_data = server_.config().frame_data;
  std::size_t read = 0;
  while (position.record < records.size()) {
    if (bounded && (read > turn_bytes || link_->backlog() > backlog_max)) return false;
    s.ops.clear();
    s.indexes.clear();
    std::size_t reads = 0;
    bool stopped = false;
    // As many operations as fill one frame of answers; a larger read is split into pieces, each with a turn of its own.
    while (position.record < records.size() && !stopped) {
      const wire::Record& r = records[position.record];
      Op op = op_of(r, data.subspan(position.data, r.data_bytes));
      if (const Status status = check(op); status != Status::ok || r.code == Code::sync) {
        if (!s.ops.empty()) break;
        answer(m, r.index, op, {status, 0, 0, {}}, emit);  // the lane syncs before this goes out
        position.data += r.data_bytes;
        ++position.record;
        continue;
      }
      if (r.code == Code::object_read && m.header.flags & wire::no_reply) op.length = 0;  // the data would not be sent
      if (r.code == Code::object_read && op.length) {
        if (reads >= frame_data) break;
        const std::uint64_t left = r.length - position.done;
        const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(left, frame_data - reads));
        // A read that fits into a frame of its own is not split.
        if (n < left && left <= frame_data && reads) break;
        op.offset = r.offset + position.done;
        op.length = n;
        op.into = m.arena->take(n);
        reads += n;
        if (n < left) {
          s.ops.push_back(op);
          s.indexes.push_back(r.index);
          stopped = true;  // whether it continues is known when this piece is read
          break;
        }
      }
      s.ops.push_back(op);
      s.indexes.push_back(r.index);
      position.data += r.data_bytes;
      position.done = 0;
      ++position.record;
    }
    if (s.ops.empty()) continue;
    read += reads;
    if (!bounded && read > mixed_reads_max) {
      for (; position.record < records.size(); ++position.record)
        answer(m, records[position.record].index, op_of(records[position.record], {}), {Status::too_large, 0, 0, {}},
               emit);
      return true;
    }
    s.outcomes.assign(s.ops.size(), {});
    const std::int64_t begin = now_ns();
    execute(backend, s.ops, m.header.safety, s.outcomes, *m.arena);
    m.backend_ns += now_ns() - begin;
    for (std::size_t k = 0; k < s.ops.size(); ++k) answer(m, s.indexes[k], s.ops[k], s.outcomes[k], emit);
    if (stopped) {
      const Outcome& piece = s.outcomes.back();
      const wire::Record& r = records[position.record];
      position.done += s.ops.back().length;
      if (piece.status != Status::ok || piece.data.size() < s.ops.back().length || position.done >= r.length) {
        position.data += r.data_bytes;
        position.done = 0;
        ++position.record;
      }
    }
    if (m.data) {
      // The data are sent before more is read, from memory that then belongs to the answer.
      const bool all = position.record == records.size() && m.complete;
      if (!all) {
        emit_reply(m, false, emit);
        m.arena = take_fresh(bounded);
      }
    }
  }
  return true;
}

bool Session::run_held(Message& m, Scratch& s, const Emit& emit, bool in_lane) {
  s.frames.clear();
  for (const auto& held : m.held) s.frames.push_back({{}, held->data, held.get()});
  return run_atomic(m, s.frames, s, emit, in_lane);
}

/// Executes an atomic batch.
bool Session::run_atomic(Message& m, std::span<const FrameView> frames, Scratch& s, const Emit& emit, bool in_lane) {
  Backend& backend = server_.lane(m.header.role)->backend();
  const auto refuse_it = [&](Status status) {
    refuse_all(m, status, emit);
    return true;
  };
  // No memory is allocated by the sizes that the message claims, only by the bytes received.
  std::size_t came = 0;
  for (const FrameView& frame : frames) came += frame.operations();
  if (m.header.batch_ops > came) return refuse_it(Status::invalid);
  s.ops.assign(m.header.batch_ops, {});
  s.seen.assign(m.header.batch_ops, 0);
  auto& seen = s.seen;
  std::vector<std::vector<Bytes>> pieces;
  bool sound = true;
  for (const FrameView& frame : frames) {
    std::size_t at = 0;
    if (frame.held && !wire::read_table(frame.held->header, frame.held->table, s.records))
      return refuse_it(Status::internal);  // it was read as it came
    for (const auto& r : frame.held ? std::span<const wire::Record>(s.records) : frame.records) {
      const Bytes part = frame.data.subspan(at, r.data_bytes);
      at += r.data_bytes;
      Op& op = s.ops[r.index];
      if (!seen[r.index]) {
        op = op_of(r, part);
        seen[r.index] = 1;
        continue;
      }
      // Another piece of the same operation.
      if (r.code != op.code || r.key != op.key || r.space != op.space) sound = false;
      if (pieces.empty()) pieces.resize(m.header.batch_ops);
      if (pieces[r.index].empty()) pieces[r.index].push_back(op.data);
      pieces[r.index].push_back(part);
    }
  }
  if (!sound || std::find(seen.begin(), seen.end(), 0) != seen.end()) return refuse_it(Status::invalid);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    if (pieces[k].empty()) continue;
    std::size_t size = 0;
    for (const Bytes p : pieces[k]) size += p.size();
    const MutableBytes whole = m.arena->take(size);
    std::size_t at = 0;
    for (const Bytes p : pieces[k]) {
      if (!p.empty()) std::memcpy(whole.data() + at, p.data(), p.size());
      at += p.size();
    }
    s.ops[k].data = whole;
  }
  s.outcomes.assign(s.ops.size(), {});
  bool any_bad = false;
  for (std::size_t k = 0; k < s.ops.size(); ++k) {
    Role role = m.header.role;
    const Status status =
        !role_of(s.ops[k].code, role) || role != m.header.role ? Status::unsupported : check(s.ops[k]);
    if (status == Status::ok) continue;
    s.outcomes[k].status = status;
    any_bad = true;
  }
  if (any_bad) {
    for (auto& out : s.outcomes)
      if (out.status == Status::pending) out.status = Status::aborted;
  } else {
    // Joined pieces are no longer needed when they are written; read data are needed until they are sent.
    auto results = pieces.empty() ? m.arena : std::make_shared<Arena>(16u << 10);
    results->allow(limit::atomic_batch_bytes);
    const std::int64_t begin = now_ns();
    bool gave_up = false;
    if (m.header.role == Role::db) {
      const Bounds bounds(deadline_of(m, in_lane), server_.abandoned());
      execute(backend, s.ops, m.header.safety, s.outcomes, *results);
      gave_up = bounds.gave_up();
    } else {
      execute(backend, s.ops, m.header.safety, s.outcomes, *results);
    }
    m.backend_ns += now_ns() - begin;
    if (gave_up && !in_lane && !too_late(m)) return false;
    m.arena = std::move(results);
  }
  for (std::size_t k = 0; k < s.ops.size(); ++k)
    answer(m, static_cast<std::uint32_t>(k), s.ops[k], s.outcomes[k], emit);
  emit_reply(m, true, emit);
  if (m.header.flags & wire::no_reply && !m.queued) lost_ops_ += static_cast<std::uint32_t>(m.failed);
  return true;
}

}  // namespace sonde::store
