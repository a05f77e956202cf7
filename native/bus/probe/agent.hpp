#pragma once
/// A program of a measurement: executes commands (talk.hpp) until its input ends. `sonde-busprobe peer` is one.
/// Owner-thread.
///
///   hello                                                 pid, host, namespace, instructions
///   reach     hosts interfaces                            this host's address, addresses, interfaces by which those
///                                                         reach it
///   check     variant [clean away]                        whether it is available: version, across (processes), detail
///   open      id variant domain [participant peers servers serve]     a participant
///   sender    id at topic [best_effort keep_all partitions]
///   receiver  id at topic [best_effort keep_all partitions]           address
///   connect   id addresses          matched  id n within_s
///   echo      id from to size [spin]                      a thread that answers
///   collect   id from [board subscriber]                  a thread that counts
///   ping      from to size n burst_s burst [pause_s settle spin audit same_host warm_from warm_to warm_n]    what a
///       message and its answer cost
///   board                                                 address
///   fan       to subscribers size n burst_s burst         what a message to all costs
///   flood     to size burst_s burst                       as fast as it goes: sent, refused, began_ns, ended_ns
///   count     ids burst                                   of collectors: received, first_s, last_s
///   join      variant domain topic entities first n treatment within_s [at_ns after_s wait peers servers]     makes
///       participants, at_ns by this
///             host's clock and after_s later; waits until all match
///   serve     id at service         call  at service clients first calls size [keep seed]     requests; reports
///       `keep` samples of each client
///   usage · traffic · lock · awake on · port · close ids
/// open, join and check take addresses and interfaces, too: PlaceOptions.
/// Each is answered by "ok …" or "error code what hint".

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bus/probe/board.hpp"
#include "bus/probe/counters.hpp"
#include "bus/probe/talk.hpp"
#include "bus/probe/way.hpp"

namespace sonde::bus::probe {

/// A thread of the agent. The destructor ends it.
class Worker {
 public:
  virtual ~Worker() = default;
};

/// Counts the messages of a receiver, and confirms them on the board.
class Collector : public Worker {
 public:
  struct Counted {
    std::uint64_t received = 0;              ///< distinct messages of the burst
    std::int64_t first_ns = 0, last_ns = 0;  ///< CLOCK_MONOTONIC at the arrival of the first and of the last
  };
  virtual Counted counted(std::uint32_t burst) = 0;
};

/// Answers messages of a receiver with a sender; both are exclusively its own.
std::unique_ptr<Worker> make_echo(Receiver& from, Sender& to, std::size_t size, bool spin);
std::unique_ptr<Collector> make_collector(Receiver& from, std::unique_ptr<SharedBoard> board, std::uint32_t subscriber);
/// Keeps all processors from idling, with threads of the lowest priority (SCHED_IDLE).
std::unique_ptr<Worker> make_awake();

/// Participants for a measurement of discovery.
class Crowd {
 public:
  virtual ~Crowd() = default;
  /// Adds the numbers of existing and of expected matches.
  virtual void count(std::size_t& have, std::size_t& wanted) = 0;
};

class Agent {
 public:
  explicit Agent(std::string name_space) : namespace_(std::move(name_space)) {}
  ~Agent();
  Talk answer(const Talk& told);

 private:
  Result<Talk> act(const Talk& told);
  Result<Talk> reach(const Talk& told);
  Result<Talk> check(const Talk& told);
  Result<Talk> open(const Talk& told);
  Result<Talk> end(const Talk& told);
  Result<Talk> ping(const Talk& told);
  Result<Talk> fan(const Talk& told);
  Result<Talk> flood(const Talk& told);
  Result<Talk> count(const Talk& told);
  Result<Talk> join(const Talk& told);
  Result<Talk> serve(const Talk& told);
  Result<Talk> call(const Talk& told);
  Result<Talk> close(const Talk& told);
  Result<Talk> usage_now() const;

  template <typename T> Result<T*> find(std::map<std::string, std::unique_ptr<T>>& all, const std::string& id) {
    const auto it = all.find(id);
    if (it == all.end())
      return Error{"bus.internal", "a command names '" + id + "', which the program does not have", ""};
    return it->second.get();
  }
  template <typename T>
  Result<std::vector<T*>> find_all(std::map<std::string, std::unique_ptr<T>>& all,
                                   const std::vector<std::string>& ids) {
    std::vector<T*> found;
    for (const auto& id : ids) {
      auto one = find(all, id);
      if (!one) return one.error();
      found.push_back(*one);
    }
    if (found.empty()) return Error{"bus.internal", "a command names no endpoint", ""};
    return found;
  }

  std::string namespace_;
  Instructions instructions_;
  // Members are destroyed in the reverse order.
  std::map<std::string, std::unique_ptr<Place>> places_;
  std::map<std::string, std::unique_ptr<Sender>> senders_;
  std::map<std::string, std::unique_ptr<Receiver>> receivers_;
  std::unique_ptr<SharedBoard> board_;
  std::vector<std::unique_ptr<Crowd>> crowds_;
  std::map<std::string, std::unique_ptr<Collector>> collectors_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;
};

/// The options of a place in a command.
PlaceOptions place_in(const Talk& told);

/// The parent process has ended. Long operations end soon, so that the program can end in order.
bool ending();

/// Runs `sonde-busprobe peer`. name_space: "", "new", or the process whose namespace it enters.
int run_peer(const std::string& name_space);

}  // namespace sonde::bus::probe
