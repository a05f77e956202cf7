// Requests and replies: each client has its own thread and sends its next request as soon as it has a reply.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bus/probe/agent.hpp"
#include "bus/probe/drawn.hpp"
#include "bus/request.hpp"

namespace sonde::bus::probe {

namespace {

constexpr double patience_s = 5;

class Serving final : public Worker {
 public:
  Serving(std::unique_ptr<Server> server) : server_(std::move(server)) {}

 private:
  std::unique_ptr<Server> server_;
};

struct Called {
  std::vector<double> rtt, offset;
  std::uint64_t lost = 0, mismatched = 0, retried = 0;
  std::string why;  ///< reason of the first loss
};

}  // namespace

Result<Talk> Agent::serve(const Talk& told) {
  auto at = find(places_, told.text("at"));
  if (!at) return at.error();
  ServerOptions options;
  options.name = "probe";
  auto server = Server::open((*at)->bus(), told.text("service"), {},
                             [](const Incoming& in) {
                               Answer answer;
                               answer.body.assign(in.body.begin(), in.body.end());
                               return answer;
                             },
                             options);
  if (!server) return server.error();
  workers_[told.text("id")] = std::make_unique<Serving>(std::move(*server));
  return Talk::ok();
}

Result<Talk> Agent::call(const Talk& told) {
  auto at = find(places_, told.text("at"));
  if (!at) return at.error();
  const auto clients = told.number<std::size_t>("clients", 1), calls = told.number<std::size_t>("calls", 1),
             first = told.number<std::size_t>("first");
  const auto size = std::max(told.number<std::size_t>("size", 64), least_sample_bytes);
  std::vector<std::unique_ptr<Client>> open;
  for (std::size_t k = 0; k < clients && !ending(); ++k) {
    auto client = Client::open((*at)->bus(), told.text("service"));
    if (!client) return client.error();
    if (!(*client)->wait_for_server(Deadline::in_s(10)))
      return Error{"bus.no_match", "a client did not find the server within 10 s",
                   "check with 'sonde bus ls' whether the variant reaches other programs on this host"};
    open.push_back(std::move(*client));
  }
  const std::int64_t began_ns = now_ns();
  if (ending()) return Error{"bus.interrupted", "it was asked to end", ""};
  std::vector<Called> called(clients);
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < clients; ++k)
    threads.emplace_back([&, k] {
      std::vector<std::byte> body(size);
      CallOptions options;
      options.deadline_s = patience_s;
      Called& mine = called[k];
      for (std::uint64_t i = 0; i < calls && !ending(); ++i) {
        const std::uint64_t number[2] = {first + k, i};  // client, and number of the request
        std::memcpy(body.data(), number, sizeof number);
        const std::int64_t t0 = now_ns();
        auto answer = open[k]->call(body, options);
        const double rtt_s = static_cast<double>(now_ns() - t0) * 1e-9;
        mine.offset.push_back(static_cast<double>(t0 - began_ns) * 1e-9);
        mine.rtt.push_back(answer ? rtt_s : std::nan(""));
        if (!answer || answer->code != ReplyCode::ok) {
          if (mine.why.empty()) mine.why = answer ? answer->message : answer.error().what;
          ++mine.lost;
          continue;
        }
        mine.retried += static_cast<std::uint64_t>(answer->tries - 1);
        mine.mismatched += answer->body != body;
      }
    });
  for (auto& t : threads) t.join();
  const double took_s = static_cast<double>(now_ns() - began_ns) * 1e-9;
  Called all;
  // The same number of samples from each client, because all are sent as text.
  Random chance(told.number<std::uint64_t>("seed") + first);
  for (auto& one : called) {
    const auto kept = drawn(one.rtt.size(), told.number<std::size_t>("keep", calls), chance);
    keep_only(one.rtt, kept);
    keep_only(one.offset, kept);
    all.rtt.insert(all.rtt.end(), one.rtt.begin(), one.rtt.end());
    all.offset.insert(all.offset.end(), one.offset.begin(), one.offset.end());
    all.lost += one.lost;
    all.mismatched += one.mismatched;
    all.retried += one.retried;
    if (all.why.empty()) all.why = one.why;
  }
  return Talk::ok()
      .with("t0_ns", began_ns)
      .with("rtt", all.rtt)
      .with("offset", all.offset)
      .with("asked", clients * calls)
      .with("lost", all.lost)
      .with("mismatched", all.mismatched)
      .with("retried", all.retried)
      .with("took", took_s)
      .with("why", all.why);
}

}  // namespace sonde::bus::probe
