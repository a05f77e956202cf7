#include "store/h5/container.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "store/h5/container_parts.hpp"

namespace sonde::store::h5 {

namespace {

constexpr std::size_t pooled_bytes_max = 64u << 10;
constexpr std::size_t copied_bytes_max = 256u << 10;  // larger writes are sent from the caller's memory
constexpr std::size_t batch_bytes = 32u << 20;

}  // namespace

// ---- data

void Container::each_stripe(std::uint64_t offset, std::uint64_t length,
                            const std::function<void(int, std::uint64_t, std::uint64_t, std::uint64_t)>& each) const {
  if (stripes_ == 1) {
    each(-1, offset, 0, length);
    return;
  }
  // Stripe s is on server s modulo the number of servers; the stripes of a server lie one behind the other.
  for (std::uint64_t done = 0; done < length;) {
    const auto stripe = (offset + done) / stripe_bytes_;
    const auto within = (offset + done) % stripe_bytes_;
    const auto n = std::min(stripe_bytes_ - within, length - done);
    each(static_cast<int>(stripe % stripes_), stripe / stripes_ * stripe_bytes_ + within, done, n);
    done += n;
  }
}

void Container::place(Object& object, std::uint64_t bytes) {
  if (bytes > 0 && bytes <= pooled_bytes_max) {
    object.pool = session_;
    object.pool_at = pool_end_;
    pool_end_ += bytes;
  }
}

void Container::end_run() {
  auto& wave = *filling_;
  if (wave.run.empty()) {
    return;
  }
  const Bytes data = wave.runs.emplace_back(std::move(wave.run));
  wave.run.clear();
  each_stripe(wave.run_at, data.size(), [&](int server, std::uint64_t local, std::uint64_t at, std::uint64_t n) {
    wave.batch.add({.code = Code::object_write,
                    .space = space_,
                    .key = wave.run_name,
                    .offset = local,
                    .data = data.subspan(at, n)},
                   server);
  });
}

void Container::write(Object& object, Part part, const std::vector<WritePiece>& pieces) {
  check_writable();
  check_health();
  const auto name = data_name(object, part);
  const auto base = part == Part::data ? object.pool_at : 0;
  std::size_t total = 0;
  for (const auto& piece : pieces) {
    total += piece.bytes.size();
  }
  if (total <= copied_bytes_max) {
    for (const auto& piece : pieces) {
      if (!filling_) {
        filling_ = std::make_unique<Wave>(service_->client.batch());
      }
      auto& wave = *filling_;
      const auto at = base + piece.offset;
      if (wave.run_name != name || wave.run_at + wave.run.size() != at || wave.run.size() >= copied_bytes_max) {
        end_run();
        wave.run_name = name;
        wave.run_at = at;
      }
      wave.run.insert(wave.run.end(), piece.bytes.begin(), piece.bytes.end());
      wave.objects.insert(object.id);
      wave.data_bytes += piece.bytes.size();
      if (wave.data_bytes >= wave_bytes || wave.batch.size() >= wave_ops) {
        launch();
      }
    }
    return;
  }
  // Gathered writes are sent first: batches that are in flight at the same time have no order.
  drain();
  for (std::size_t k = 0; k < pieces.size();) {
    auto batch = service_->client.batch();
    for (std::size_t bytes = 0; k < pieces.size() && (bytes == 0 || bytes + pieces[k].bytes.size() <= batch_bytes) &&
                                batch.size() < limit::batch_ops / 2;
         ++k) {
      each_stripe(base + pieces[k].offset, pieces[k].bytes.size(),
                  [&](int server, std::uint64_t local, std::uint64_t at, std::uint64_t n) {
                    batch.add({.code = Code::object_write,
                               .space = space_,
                               .key = name,
                               .offset = local,
                               .data = pieces[k].bytes.subspan(at, n)},
                              server);
                  });
      bytes += pieces[k].bytes.size();
    }
    run(batch, "writing a dataset of '" + name_ + "'");
    for (std::size_t n = 0; batch.failed() && n < batch.size(); ++n) {
      need(batch, n, "writing a dataset of '" + name_ + "'");
    }
  }
}

// A program that reads small datasets in the order in which they were written gets the next ones with the first.
bool Container::read_ahead(const Object& object, std::uint64_t at, MutableBytes into) {
  constexpr std::uint64_t window = 256u << 10;
  constexpr auto valid = std::chrono::milliseconds(50);
  if (into.size() > pooled_bytes_max) {
    return false;  // no dataset of a pool is this long, but a damaged header may give such a length
  }
  const auto now = std::chrono::steady_clock::now();
  const bool follows = ahead_.pool == object.pool && at >= ahead_.next && at - ahead_.next <= pooled_bytes_max;
  const bool held = ahead_.pool == object.pool && at >= ahead_.at && at - ahead_.at <= ahead_.bytes.size() &&
                    into.size() <= ahead_.bytes.size() - (at - ahead_.at) && now - ahead_.read_at < valid;
  // Only forward: data that is read a second time comes from the server.
  const bool again = at < ahead_.next;
  ahead_.pool = object.pool;
  ahead_.next = at + into.size();
  if (!follows) {
    ahead_.bytes.clear();
    return false;
  }
  if (!held || again) {
    ahead_.bytes.resize(window);
    ahead_.at = at;
    ahead_.read_at = now;
    auto batch = service_->client.batch();
    std::vector<std::pair<std::size_t, MutableBytes>> into_window;
    const auto name = data_name(object, Part::data);
    each_stripe(at, window, [&](int server, std::uint64_t local, std::uint64_t offset, std::uint64_t n) {
      const auto part = MutableBytes(ahead_.bytes).subspan(offset, n);
      into_window.emplace_back(
          batch.add(
              {.code = Code::object_read, .space = space_, .key = name, .offset = local, .length = n, .into = part},
              server),
          part);
    });
    run(batch, "reading a dataset of '" + name_ + "'");
    for (const auto& [k, part] : into_window) {
      need(batch, k, "reading a dataset of '" + name_ + "'");
      const auto got = batch[k].status == Status::ok ? batch[k].data.size() : 0;
      std::fill(part.begin() + static_cast<std::ptrdiff_t>(got), part.end(), std::byte{0});
    }
  }
  std::copy_n(ahead_.bytes.begin() + static_cast<std::ptrdiff_t>(at - ahead_.at), into.size(), into.begin());
  return true;
}

void Container::read(Object& object, Part part, const std::vector<ReadPiece>& pieces, bool whole) {
  check_health();
  if (!writable_ && part == Part::data && object.pool && pieces.size() == 1 &&
      read_ahead(object, object.pool_at + pieces[0].offset, pieces[0].into)) {
    return;
  }
  if ((filling_ && filling_->objects.contains(object.id)) || (flying_ && flying_->objects.contains(object.id))) {
    drain();
  }
  const auto name = data_name(object, part);
  const auto base = part == Part::data ? object.pool_at : 0;
  for (std::size_t k = 0; k < pieces.size();) {
    auto batch = service_->client.batch();
    std::vector<MutableBytes> into;
    for (std::size_t bytes = 0; k < pieces.size() && (bytes == 0 || bytes + pieces[k].into.size() <= batch_bytes) &&
                                into.size() < limit::batch_ops / 2;
         ++k) {
      each_stripe(base + pieces[k].offset, pieces[k].into.size(),
                  [&](int server, std::uint64_t local, std::uint64_t at, std::uint64_t n) {
                    into.push_back(pieces[k].into.subspan(at, n));
                    batch.add({.code = Code::object_read,
                               .space = space_,
                               .key = name,
                               .offset = local,
                               .length = n,
                               .into = into.back()},
                              server);
                  });
      bytes += pieces[k].into.size();
    }
    if (batch.size() == 0) {
      continue;
    }
    run(batch, "reading a dataset of '" + name_ + "'");
    for (std::size_t n = 0; n < into.size(); ++n) {
      need(batch, n, "reading a dataset of '" + name_ + "'");
      // Beyond the object's end, and where there is no object, nothing was ever written.
      const auto got = batch[n].status == Status::ok ? batch[n].data.size() : 0;
      if (whole && got < into[n].size()) {
        fail(Why::io, "the data of a dataset of '" + name_ +
                          "' is truncated in the store: it is damaged; hint: if another process is writing the "
                          "file, read it when that process is done");
      }
      std::fill(into[n].begin() + static_cast<std::ptrdiff_t>(got), into[n].end(), std::byte{0});
    }
  }
}

std::vector<std::byte> Container::read_whole(Object& object, Part part, std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t step = 8u << 20;
  std::vector<std::byte> out;
  while (out.size() < bytes) {
    const auto at = out.size();
    out.resize(at + std::min<std::uint64_t>(step, bytes - at));
    read(object, part, {{offset + at, MutableBytes(out).subspan(at)}}, true);
  }
  return out;
}

}  // namespace sonde::store::h5
