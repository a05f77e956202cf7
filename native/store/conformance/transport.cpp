#include "store/conformance/transport.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include "core/clock.hpp"
#include "store/conformance/pair.hpp"

namespace sonde::store::conformance {

namespace {

/// A byte that depends on the frame and the position in it.
std::byte content(std::uint64_t id, std::size_t at) {
  return static_cast<std::byte>((id * 0x9e3779b97f4a7c15u + at * 0xff51afd7ed558ccdu) >> 37);
}

struct Made {
  Outgoing out;
  std::size_t bytes = 0;
};

/// A frame of `data` bytes in `segments` pieces of uneven lengths, with a table of `records` answers. `alive` counts
/// frames whose memory is still in use.
Made make_frame(std::uint64_t id, std::size_t data, std::size_t segments, std::size_t records,
                std::atomic<int>* alive) {
  struct Held {
    std::vector<std::byte> data;
    std::atomic<int>* alive;
    ~Held() {
      // A sender that still reads this memory would then send wrong bytes.
      std::fill(data.begin(), data.end(), std::byte{0xee});
      if (alive) --*alive;
    }
  };
  auto held = std::make_shared<Held>();
  held->data.resize(data);
  held->alive = alive;
  if (alive) ++*alive;
  for (std::size_t k = 0; k < data; ++k) held->data[k] = content(id, k);
  wire::TableWriter table;
  wire::Answer answer;
  for (std::size_t k = 0; k < records; ++k) {
    answer.index = static_cast<std::uint32_t>(k);
    answer.value = id;
    answer.data_bytes = k == 0 ? static_cast<std::uint32_t>(data) : 0;
    table.add(answer);
  }
  wire::Header header;
  header.kind = wire::Kind::reply;
  header.id = id;
  header.ops = table.ops();
  header.table_bytes = static_cast<std::uint32_t>(table.bytes());
  header.data_bytes = static_cast<std::uint32_t>(data);
  header.batch_ops = static_cast<std::uint32_t>(records);
  Made made;
  made.out.head.resize(wire::header_bytes);
  wire::encode(header, made.out.head.data());
  made.out.head.insert(made.out.head.end(), table.table().begin(), table.table().end());
  std::size_t at = 0;
  for (std::size_t k = 0; k < segments; ++k) {
    const std::size_t left = data - at;
    std::size_t n = k + 1 == segments ? left : std::min(left, data / segments + (k % 3 == 0 ? 1 : 0));
    if (k % 5 == 4 && k + 1 < segments) n = 0;  // an empty segment is a segment
    made.out.segments.emplace_back(held->data.data() + at, n);
    at += n;
  }
  made.bytes = made.out.head.size() + data;
  made.out.keep = held;
  return made;
}

std::string same(std::uint64_t id, Bytes data) {
  for (std::size_t k = 0; k < data.size(); ++k)
    if (data[k] != content(id, k))
      return "frame " + std::to_string(id) + ": byte " + std::to_string(k) + " of " + std::to_string(data.size()) +
             " is wrong";
  return {};
}

/// Checks received frames: ids 1, 2, 3 …, contents, tables. Provides destinations if `placing` is set.
class Listener final : public Sink {
 public:
  bool place(Link&, const wire::Header& header, Bytes, std::vector<iovec>& places) override {
    if (!placing) return false;
    // Uneven destinations, each with its own allocation: as for a reader with many destinations.
    placed_.clear();
    for (std::size_t left = header.data_bytes, k = 0; left; ++k) {
      const std::size_t n = std::min<std::size_t>(left, 1000 + 7777 * (k % 13));
      placed_.emplace_back(n);
      places.push_back({placed_.back().data(), n});
      left -= n;
    }
    ++asked;
    return true;
  }
  void frame(Link& link, const wire::Header& header, Bytes table, Bytes data, bool was_placed) override {
    ++frames;
    if (header.id != next && trouble.empty())
      trouble = "frame " + std::to_string(header.id) + " came instead of " + std::to_string(next);
    next = header.id + 1;
    if (table.size() != header.table_bytes && trouble.empty()) trouble = "a table whose length is not its header's";
    if (was_placed) {
      ++placed_frames;
      std::vector<std::byte> whole;
      for (const auto& piece : placed_) whole.insert(whole.end(), piece.begin(), piece.end());
      if (trouble.empty()) trouble = same(header.id, whole);
      if (!data.empty() && trouble.empty()) trouble = "a placed frame has other data too";
      if (whole.size() != header.data_bytes && trouble.empty()) trouble = "a placed frame is short";
    } else {
      if (data.size() != header.data_bytes && trouble.empty()) trouble = "data whose length is not its header's";
      if (trouble.empty()) trouble = same(header.id, data);
    }
    std::vector<wire::Answer> answers;
    if (const auto ok = wire::read_answers(header, table, answers); !ok && trouble.empty()) trouble = ok.error().what;
    if (on_frame) on_frame(link, header);
  }
  void closed(Link&, const Error* error) override {
    ++closings;
    if (error) failure = error->code + ": " + error->what;
  }

  bool placing = false;
  std::function<void(Link&, const wire::Header&)> on_frame;
  std::size_t frames = 0, asked = 0, placed_frames = 0;
  std::uint64_t next = 1;
  int closings = 0;
  std::string trouble, failure;

 private:
  std::vector<std::vector<std::byte>> placed_;
};

struct End {
  Link& link;
  Listener& sink;
  Deadline deadline;

  /// Runs until `done`, the deadline, or the end of the Link. Returns the fault; empty: none.
  template <typename Done> std::string until(Done done, const char* what) {
    while (!done()) {
      if (!sink.trouble.empty()) return sink.trouble;
      if (sink.closings && !done())
        return std::string("the link ended before ") + what + (sink.failure.empty() ? "" : ": " + sink.failure);
      if (deadline.passed()) return std::string("no end of ") + what + " within the deadline";
      if (link.progress() == 0 && !done() && !sink.closings) link.wait(deadline);
    }
    return sink.trouble;
  }
  void send(Made made) { link.send(std::move(made.out)); }
};

using Half = std::function<std::string(End&)>;

struct Both {
  const MakeTransport& make;
  const TransportPlan& plan;

  /// Runs a half at each end of a new pair of Links. Returns the fault; empty: none.
  std::string run(const Half& client, const Half& server) const {
    const auto [a, b] = PairControl::make_pair();
    if (a < 0) return "no socket pair";
    const Deadline deadline = Deadline::in_s(plan.seconds);
    std::string server_says, client_says;
    std::thread thread([&, end = b] {
      PairControl control(end);
      server_says = serve(control, server, deadline);
    });
    {
      PairControl control(a);
      client_says = connect(control, client, deadline);
    }
    thread.join();
    if (!client_says.empty()) return "client: " + client_says + (server_says.empty() ? "" : "; server: " + server_says);
    return server_says.empty() ? server_says : "server: " + server_says;
  }

  std::string connect(PairControl& control, const Half& half, Deadline deadline) const {
    const auto transport = make();
    Listener sink;
    auto link = transport->connect(control, plan.options, sink, deadline);
    if (!link) return link.error().what;
    End end{**link, sink, deadline};
    return half(end);
  }

  std::string serve(PairControl& control, const Half& half, Deadline deadline) const {
    const auto transport = make();
    Listener sink;
    const auto first = control.receive(deadline);
    if (!first) return first.error().what;
    Result<std::vector<std::byte>> message = first;
    auto link = transport->accept(control, *message, plan.options, sink, deadline);
    if (!link) return link.error().what;
    End end{**link, sink, deadline};
    return half(end);
  }
};

std::string wait_for_end(End& end) {
  if (auto wrong = end.until([&] { return end.sink.closings > 0; }, "the stream"); !wrong.empty()) return wrong;
  if (!end.sink.failure.empty()) return "the peer ended in order, but the link reports " + end.sink.failure;
  if (end.sink.closings != 1) return "Sink::closed was called " + std::to_string(end.sink.closings) + " times";
  if (end.link.open()) return "a link that has ended reports that it is open";
  return {};
}

/// Waits until `frames` have arrived and the stream has ended in order.
Half takes(std::size_t frames, bool placing = false) {
  return [=](End& end) -> std::string {
    end.sink.placing = placing;
    if (auto wrong = end.until([&] { return end.sink.frames >= frames; }, "the frames"); !wrong.empty())
      return wrong + " (" + std::to_string(end.sink.frames) + " of " + std::to_string(frames) + " frames came)";
    return wait_for_end(end);
  };
}

std::string stop_in_time(End& end, std::size_t most) {
  return end.until([&] { return end.link.backlog() <= most; }, "the backlog");
}

/// An owner must do this before it destroys a Link: nothing is guaranteed for frames that neither the network nor the
/// peer has.
std::string all_out(End& end) {
  if (auto wrong = end.until([&] { return end.link.taken(); }, "the frames in flight"); !wrong.empty()) return wrong;
  return end.link.backlog() ? "a link whose frames are all taken has a backlog" : "";
}

constexpr std::size_t sizes[] = {0,      1,       63,      64,      65,      127,       128,      129,
                                 1000,   4095,    4096,    4097,    8192,    16'384,    32'767,   65'535,
                                 65'536, 100'000, 262'144, 262'145, 524'288, 1'048'575, 1'048'576};

std::string all_sizes(const Both& both) {
  const Half sends = [](End& end) -> std::string {
    std::uint64_t id = 0;
    for (const std::size_t size : sizes) {
      end.send(make_frame(++id, size, 1, 1, nullptr));
      end.link.flush();
      if (auto wrong = stop_in_time(end, 1u << 20); !wrong.empty()) return wrong;
    }
    return all_out(end);
  };
  return both.run(sends, takes(std::size(sizes)));
}

std::string many_segments(const Both& both) {
  static constexpr std::size_t pieces[] = {0, 1, 2, 3, 4, 5, 17, 64, 1000};
  std::size_t n = 0;
  for (const std::size_t p : pieces)
    for (const std::size_t size : {std::size_t{0}, std::size_t{3000}, std::size_t{70'000}, std::size_t{1'000'000}})
      n += p > 0 || size == 0;
  const Half sends = [](End& end) -> std::string {
    std::uint64_t id = 0;
    for (const std::size_t p : pieces)
      for (const std::size_t size : {std::size_t{0}, std::size_t{3000}, std::size_t{70'000}, std::size_t{1'000'000}}) {
        if (p == 0 && size > 0) continue;
        end.send(make_frame(++id, size, p, 3, nullptr));
        end.link.flush();
        if (auto wrong = stop_in_time(end, 1u << 20); !wrong.empty()) return wrong;
      }
    return all_out(end);
  };
  return both.run(sends, takes(n));
}

std::string large_tables(const Both& both) {
  const Half sends = [](End& end) -> std::string {
    std::uint64_t id = 0;
    for (const std::size_t records : {std::size_t{1}, std::size_t{500}, std::size_t{8192}}) {
      end.send(make_frame(++id, 0, 0, records, nullptr));
      end.send(make_frame(++id, 5000, 2, records, nullptr));
      end.link.flush();
    }
    return all_out(end);
  };
  return both.run(sends, takes(6));
}

std::string both_ways(const Both& both) {
  constexpr std::size_t frames = 60;
  const Half half = [](End& end) -> std::string {
    std::uint64_t id = 0;
    while (id < frames) {
      ++id;
      end.send(make_frame(id, 100'000 + 1000 * (id % 7), 4, 2, nullptr));
      end.link.flush();
      if (auto wrong = stop_in_time(end, 1u << 20); !wrong.empty()) return wrong;
    }
    if (auto wrong = end.until([&] { return end.sink.frames >= frames; }, "the frames"); !wrong.empty()) return wrong;
    return all_out(end);
  };
  return both.run(half, [&](End& end) -> std::string {
    if (auto wrong = half(end); !wrong.empty()) return wrong;
    return wait_for_end(end);
  });
}

std::string ping_pong(const Both& both) {
  constexpr std::size_t rounds = 300;
  const Half echo = [](End& end) -> std::string {
    end.sink.on_frame = [](Link& link, const wire::Header& header) {
      link.send(make_frame(header.id, header.data_bytes, 2, 1, nullptr).out);
      link.flush();
    };
    return takes(rounds)(end);
  };
  const Half asks = [](End& end) -> std::string {
    for (std::uint64_t id = 1; id <= rounds; ++id) {
      end.send(make_frame(id, (id * 7919) % 20'000, 1, 1, nullptr));
      end.link.flush();
      if (auto wrong = end.until([&] { return end.sink.frames >= id; }, "an answer"); !wrong.empty())
        return wrong + " (round " + std::to_string(id) + ")";
    }
    return {};
  };
  return both.run(asks, echo);
}

/// Sleeps between rounds: a sleeping end must be woken, not only a spinning one.
std::string after_sleep(const Both& both) {
  const Half echo = [](End& end) -> std::string {
    end.sink.on_frame = [](Link& link, const wire::Header& header) {
      link.send(make_frame(header.id, header.data_bytes, 1, 1, nullptr).out);
      link.flush();
    };
    return takes(5)(end);
  };
  const Half asks = [](End& end) -> std::string {
    for (std::uint64_t id = 1; id <= 5; ++id) {
      const timespec pause{0, 60'000'000};
      ::nanosleep(&pause, nullptr);
      end.send(make_frame(id, 100, 1, 1, nullptr));
      end.link.flush();
      if (auto wrong = end.until([&] { return end.sink.frames >= id; }, "an answer"); !wrong.empty()) return wrong;
    }
    return {};
  };
  return both.run(asks, echo);
}

std::string small_pipelined(const Both& both) {
  const std::size_t frames = both.plan.small_frames;
  const Half sends = [&](End& end) -> std::string {
    for (std::uint64_t id = 1; id <= frames; ++id) {
      Made made = make_frame(id, id % 97, 1, 1, nullptr);
      made.out.last = id % 16 == 0;
      end.send(std::move(made));
      if (id % 16 == 0) end.link.flush();
      if (end.link.backlog() > 256u << 10)
        if (auto wrong = stop_in_time(end, 64u << 10); !wrong.empty()) return wrong;
    }
    end.link.flush();
    return all_out(end);
  };
  return both.run(sends, takes(frames));
}

/// The receiver reads nothing until the sender's backlog stops shrinking; then everything must arrive.
std::string held_back(const Both& both) {
  constexpr std::size_t frames = 200, bytes = 100'000;
  std::atomic<bool> seen = false;
  const Half sends = [&](End& end) -> std::string {
    std::size_t stood = 0;
    for (std::uint64_t id = 1; id <= frames; ++id) end.send(make_frame(id, bytes, 3, 1, nullptr));
    end.link.flush();
    const Deadline pause = Deadline::in_s(0.3);
    while (!pause.passed()) {
      end.link.progress();
      stood = end.link.backlog();
      const timespec nap{0, 1'000'000};
      ::nanosleep(&nap, nullptr);
    }
    seen = true;
    if (stood == 0) return "20 MB were sent while the peer read nothing";
    return all_out(end);
  };
  return both.run(sends, [&](End& end) -> std::string {
    end.link.receive(false);
    while (!seen && !end.sink.closings && !end.deadline.passed()) {
      end.link.progress();
      const timespec nap{0, 1'000'000};
      ::nanosleep(&nap, nullptr);
    }
    if (end.sink.frames) return std::to_string(end.sink.frames) + " frames came while the receiver was stopped";
    end.link.receive(true);
    return takes(frames)(end);
  });
}

/// The receiver reads nothing for longer than a Link lingers at its end: the sender's owner must know when it may
/// destroy the Link.
std::string slow_to_the_end(const Both& both) {
  constexpr std::size_t frames = 3;
  return both.run(
      [](End& end) -> std::string {
        for (std::uint64_t id = 1; id <= frames; ++id) end.send(make_frame(id, 300'000, 1, 1, nullptr));
        end.link.flush();
        return all_out(end);
      },
      [](End& end) -> std::string {
        const timespec pause{1, 300'000'000};
        ::nanosleep(&pause, nullptr);
        return takes(frames)(end);
      });
}

/// receive(false) from within Sink::frame: no further frame may come.
std::string stop_within(const Both& both) {
  constexpr std::size_t frames = 50;
  return both.run(
      [](End& end) -> std::string {
        for (std::uint64_t id = 1; id <= frames; ++id) end.send(make_frame(id, 200, 1, 1, nullptr));
        end.link.flush();
        return all_out(end);
      },
      [](End& end) -> std::string {
        end.sink.on_frame = [](Link& link, const wire::Header&) { link.receive(false); };
        for (std::size_t k = 1; k <= frames; ++k) {
          end.link.receive(true);
          if (auto wrong = end.until([&] { return end.sink.frames >= k; }, "a frame"); !wrong.empty()) return wrong;
          end.link.progress();
          if (end.sink.frames != k) return "receive(false) in Sink::frame had no effect";
        }
        end.sink.on_frame = nullptr;
        end.link.receive(true);
        return wait_for_end(end);
      });
}

std::string placed_data(const Both& both) {
  const Half sends = [](End& end) -> std::string {
    std::uint64_t id = 0;
    for (const std::size_t size : sizes) {
      end.send(make_frame(++id, size, 3, 1, nullptr));
      end.link.flush();
      if (auto wrong = stop_in_time(end, 1u << 20); !wrong.empty()) return wrong;
    }
    return all_out(end);
  };
  return both.run(sends, takes(std::size(sizes), true));
}

/// A frame's memory is in use until the frame is done, and not longer.
std::string keep_dropped(const Both& both) {
  std::atomic<int> alive{0};
  const Half sends = [&](End& end) -> std::string {
    for (std::uint64_t id = 1; id <= 40; ++id) {
      end.send(make_frame(id, id % 2 ? 300 : 150'000, 2, 1, &alive));
      end.link.flush();
    }
    return end.until([&] { return alive == 0; }, "the frames' memory");
  };
  auto wrong = both.run(sends, takes(40));
  if (wrong.empty() && alive != 0) wrong = std::to_string(alive) + " frames are still in memory after the link is gone";
  return wrong;
}

/// The sender ends as soon as the network has the last frame: all frames must arrive, and then the end.
std::string end_in_order(const Both& both) {
  return both.run(
      [](End& end) -> std::string {
        for (std::uint64_t id = 1; id <= 30; ++id) end.send(make_frame(id, 20'000, 2, 1, nullptr));
        end.link.flush();
        return all_out(end);
      },
      takes(30));
}

/// Both ends stop at the same time, with frames in flight.
std::string both_end(const Both& both) {
  std::atomic<int> alive{0};
  const Half half = [&](End& end) -> std::string {
    for (std::uint64_t id = 1; id <= 10; ++id) end.send(make_frame(id, 50'000, 2, 1, &alive));
    end.link.flush();
    return {};
  };
  auto wrong = both.run(half, half);
  if (wrong.empty() && alive != 0)
    wrong = std::to_string(alive) + " frames are still in memory after both links are gone";
  return wrong;
}

/// The task of an end whose peer is another process, for which it may wait.
using Survivor = std::function<std::string(End&, pid_t peer, const Deadline&)>;

/// Runs the serving end in a separate process, which kills itself at the end of `victim`. Returns the result of
/// `survivor`.
std::string beside_killed_peer(const Both& both, const std::function<void(End&)>& victim, const Survivor& survivor) {
  const auto [a, b] = PairControl::make_pair();
  if (a < 0) return "no socket pair";
  const Deadline deadline = Deadline::in_s(both.plan.seconds);
  const pid_t child = ::fork();
  if (child < 0) return "no second process";
  if (child == 0) {
    ::alarm(static_cast<unsigned>(both.plan.seconds) + 1);
    ::close(a);
    PairControl control(b);
    both.serve(
        control,
        [&](End& end) -> std::string {
          victim(end);
          ::kill(::getpid(), SIGKILL);
          return {};
        },
        deadline);
    ::_exit(1);
  }
  ::close(b);
  std::string wrong;
  {
    PairControl control(a);
    wrong = both.connect(control, [&](End& end) { return survivor(end, child, deadline); }, deadline);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return wrong;
}

/// A peer that is killed in the middle of a stream must be reported as an error within a second.
std::string peer_killed(const Both& both) {
  return beside_killed_peer(
      both,
      [](End& end) {
        std::uint64_t id = 0;
        while (end.sink.frames < 3) {
          if (end.link.backlog() < 1u << 20) end.send(make_frame(++id, 100'000, 3, 1, nullptr));
          end.link.flush();
          end.link.progress();
        }
      },
      [](End& end, pid_t peer, const Deadline& deadline) -> std::string {
        std::uint64_t id = 0;
        // Waits until it is dead: it kills itself after a few frames.
        int status = 0;
        while (::waitpid(peer, &status, WNOHANG) == 0) {
          if (deadline.passed()) return "the peer did not end";
          if (end.link.backlog() < 1u << 20) end.send(make_frame(++id, 30'000, 3, 1, nullptr));
          end.link.flush();
          end.link.progress();
        }
        const std::int64_t died = now_ns();
        if (auto trouble = end.until([&] { return end.sink.closings > 0; }, "the link"); !trouble.empty())
          return trouble;
        const double took = static_cast<double>(now_ns() - died) * 1e-9;
        if (end.sink.failure.empty()) return "a killed peer was reported as one that ended in order";
        if (took > 1.5) return "it took " + std::to_string(took) + " s to see that the peer was killed";
        if (end.link.open()) return "the link reports that it is open";
        end.send(make_frame(++id, 10, 1, 1, nullptr));  // dropped, not a crash
        end.link.flush();
        if (end.link.progress() != 0) return "a frame came after the end";
        return {};
      });
}

/// The same for an idle peer: the Control is the only sign.
std::string idle_peer_killed(const Both& both) {
  return beside_killed_peer(
      both,
      [](End& end) {
        end.send(make_frame(1, 100, 1, 1, nullptr));
        end.link.flush();
        const Deadline soon = Deadline::in_s(0.2);
        while (!soon.passed()) {
          end.link.progress();
          end.link.wait(soon);
        }
      },
      [](End& end, pid_t, const Deadline&) -> std::string {
        if (auto trouble = end.until([&] { return end.sink.frames == 1; }, "the first frame"); !trouble.empty())
          return trouble;
        if (auto trouble = end.until([&] { return end.sink.closings > 0; }, "the link"); !trouble.empty())
          return trouble;
        return end.sink.failure.empty() ? "a killed peer was reported as one that ended in order" : "";
      });
}

/// A frame with an invalid header must end the link with an error at the receiver, with no other effect.
std::string rubbish(const Both& both) {
  return both.run(
      [](End& end) -> std::string {
        end.send(make_frame(1, 100, 1, 1, nullptr));
        Made bad = make_frame(2, 100, 1, 1, nullptr);
        std::memset(bad.out.head.data() + 16, 0xff, 12);  // operations, table, data: all too long
        end.send(std::move(bad));
        end.link.flush();
        return end.until([&] { return end.sink.closings > 0 || !end.link.open(); }, "the link");
      },
      [](End& end) -> std::string {
        if (auto wrong = end.until([&] { return end.sink.closings > 0; }, "the link"); !wrong.empty()) return wrong;
        if (end.sink.frames != 1) return std::to_string(end.sink.frames) + " frames came, but only 1 was valid";
        if (end.sink.failure.find("store.bad_frame") == std::string::npos)
          return "the receiver reports " + (end.sink.failure.empty() ? "nothing" : end.sink.failure) +
                 ", not store.bad_frame";
        return {};
      });
}

struct Named {
  const char* name;
  std::string (*run)(const Both&);
  bool kills = false;
};

constexpr Named all[] = {
    {"sizes", all_sizes},
    {"segments", many_segments},
    {"tables", large_tables},
    {"both-ways", both_ways},
    {"ping-pong", ping_pong},
    {"after-sleep", after_sleep},
    {"small-pipelined", small_pipelined},
    {"held-back", held_back},
    {"stop-within", stop_within},
    {"slow-to-the-end", slow_to_the_end},
    {"placed", placed_data},
    {"keep-dropped", keep_dropped},
    {"end-in-order", end_in_order},
    {"both-end", both_end},
    {"rubbish", rubbish},
    {"peer-killed", peer_killed, true},
    {"idle-peer-killed", idle_peer_killed, true},
};

}  // namespace

std::vector<Check> check_transport(const MakeTransport& make, const TransportPlan& plan) {
  const Both both{make, plan};
  std::vector<Check> checks;
  for (const Named& check : all) {
    if (check.kills && !plan.kill) continue;
    if (!plan.only.empty() && (',' + plan.only + ',').find(',' + std::string(check.name) + ',') == std::string::npos)
      continue;
    std::string message = check.run(both);
    checks.push_back({check.name, message.empty(), std::move(message)});
  }
  return checks;
}

}  // namespace sonde::store::conformance
