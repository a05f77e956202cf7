// Cases of requests and replies over an implementation.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bus/conformance/scene.hpp"
#include "bus/request.hpp"

namespace sonde::bus::conformance {

namespace {

std::vector<std::byte> body_of(std::uint32_t client, std::uint32_t number, std::size_t bytes) {
  std::vector<std::byte> body(8 + bytes, static_cast<std::byte>(client + number));
  std::memcpy(body.data(), &client, 4);
  std::memcpy(body.data() + 4, &number, 4);
  return body;
}

/// Calls of many clients on `buses`, each in its own thread. Returns the first error, or an empty text.
std::string storm(Scene& scene, const std::vector<std::shared_ptr<Bus>>& buses, const std::string& service,
                  std::uint32_t clients, std::uint32_t calls) {
  std::vector<std::string> failed(clients);
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> threads;
  for (std::uint32_t c = 0; c < clients; ++c)
    threads.emplace_back([&, c] {
      auto client = Client::open(buses[c % buses.size()], service);
      if (!client) {
        failed[c] = client.error().what;
        return;
      }
      for (std::uint32_t k = 0; k < calls && failed[c].empty(); ++k) {
        const auto body = body_of(c, k, k % 300);
        auto answer = (*client)->call(body, {"", 60, 0.5});
        if (!answer) failed[c] = "call " + std::to_string(k) + ": " + answer.error().what;
        else if (answer->code != ReplyCode::ok)
          failed[c] = "call " + std::to_string(k) + ": " + std::string(name_of(answer->code)) + ": " + answer->message;
        else if (answer->body != body) failed[c] = "call " + std::to_string(k) + " got the answer of another";
        if (++done % 1000 == 0) scene.at(std::to_string(done) + " calls are answered");
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& why : failed)
    if (!why.empty()) return why;
  return {};
}

Server::Handler echo() {
  return [](const Incoming& in) {
    Answer answer;
    answer.body.assign(in.body.begin(), in.body.end());
    return answer;
  };
}

void calls(Scene& scene, std::uint32_t clients, std::uint32_t each) {
  const std::string service = scene.topic("service");
  const auto bus = scene.open(), one = scene.open(), two = scene.open();
  auto server = need(Server::open(bus, service, {}, echo(), {"server", 2}), "no server");
  const std::string failed = storm(scene, {one, two, bus}, service, clients, each);
  expect(failed.empty(), failed);
  expect(server->counts().answered == std::uint64_t{clients} * each, std::to_string(server->counts().answered) +
                                                                         " requests were executed instead of " +
                                                                         std::to_string(clients * each));
}

void big(Scene& scene) {
  const std::string service = scene.topic("big");
  const auto bus = scene.open(), far = scene.open();
  auto server = need(Server::open(bus, service, {}, echo(), {"server", 1}), "no server");
  auto client = need(Client::open(far, service), "no client");
  for (const std::size_t bytes : {0u, 1u, 1000u, 65536u, 1048576u}) {
    const auto body = body_of(1, static_cast<std::uint32_t>(bytes), bytes);
    auto answer = need(client->call(body, {"", 60, 2}), "a call of " + std::to_string(bytes) + " B");
    expect(answer.code == ReplyCode::ok && answer.body == body,
           "a call of " + std::to_string(bytes) + " B came back otherwise");
  }
}

void across(Scene& scene, std::uint32_t clients, std::uint32_t each) {
  const std::string service = scene.topic("served");
  auto server = scene.peer("serve", service);
  const auto one = scene.open(), two = scene.open();
  const std::string failed = storm(scene, {one, two}, service, clients, each);
  expect(failed.empty(), failed);
}

/// A client that has found its server sends one request, although the answer takes longer than the retry time for lost
/// answers.
void first(Scene& scene) {
  for (int k = 0; k < 3; ++k) {
    const std::string service = scene.topic("first" + std::to_string(k));
    const auto bus = scene.open(), far = scene.open();
    auto server = need(Server::open(bus, service, {},
                                    [](const Incoming& in) {
                                      std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                      Answer answer;
                                      answer.body.assign(in.body.begin(), in.body.end());
                                      return answer;
                                    },
                                    {"server", 1}),
                       "no server");
    auto client = need(Client::open(far, service), "no client");
    expect(client->wait_for_server(Deadline::in_s(patience_s)), "a client does not find its server");
    const auto body = body_of(1, 1, 100);
    const auto answer = need(client->call(body, {"", patience_s, 10}), "the first call");
    expect(answer.code == ReplyCode::ok && answer.body == body, "the first call came back otherwise");
    expect(answer.tries == 1, "the first call was sent " + std::to_string(answer.tries) + " times");
    expect(server->counts().requests == 1,
           "the server heard " + std::to_string(server->counts().requests) + " requests instead of one");
  }
}

void killed(Scene& scene) {
  const auto brief = [](Profile& profile) {
    profile.discovery.lease_s = 2;
    profile.discovery.announce_s = 0.5;
  };
  const std::string service = scene.topic("again");
  const auto bus = scene.open(brief);
  auto server = scene.peer("serve", service, brief);
  std::atomic<bool> over{false};
  std::atomic<std::uint32_t> answered{0};
  std::vector<std::string> failed(4);
  std::vector<std::thread> threads;
  for (std::uint32_t c = 0; c < failed.size(); ++c)
    threads.emplace_back([&, c] {
      auto client = Client::open(bus, service);
      for (std::uint32_t k = 0; client && !over && failed[c].empty(); ++k) {
        const auto body = body_of(c, k, 20);
        auto answer = (*client)->call(body, {"", 60, 0.2});
        if (!answer) failed[c] = answer.error().what;
        else if (answer->body != body) failed[c] = "a call got another's answer";
        ++answered;
      }
    });
  std::string wrong;
  for (int k = 0; k < 2 && wrong.empty(); ++k) {
    const std::uint32_t before = answered;
    scene.at("before kill " + std::to_string(k));
    if (!until([&] { return answered > before + 40; })) wrong = "calls are not answered";
    server->kill();
    try {
      server = scene.peer("serve", service, brief);
    } catch (const Failed& e) {
      wrong = e.what();
    }
  }
  const std::uint32_t before = answered;
  if (wrong.empty() && !until([&] { return answered > before + 40; }, 2 * patience_s))
    wrong = "after the server was killed and started again calls are not answered";
  over = true;
  for (auto& thread : threads) thread.join();
  expect(wrong.empty(), wrong);
  for (const auto& why : failed) expect(why.empty(), why);
}

std::string no_partitions(const Caps& caps) {
  return caps.partitions ? "" : "partitions, in which replies find their client";
}
std::string no_processes(const Caps& caps) { return !caps.across_processes ? "other processes" : no_partitions(caps); }

}  // namespace

std::vector<Entry> request_cases() {
  return {
      {"requests: 10 clients of 3 participants, 100 calls each, each executed once", true, false, 180, no_partitions,
       [](Scene& scene) { calls(scene, 10, 100); }},
      {"requests: a client that found its server asks once", true, false, 180, no_partitions, first},
      {"requests: 0 B to 1 MiB", false, false, 180, no_partitions, big},
      {"requests: to another process", true, false, 180, no_processes, [](Scene& scene) { across(scene, 10, 100); }},
      {"requests: a server is killed and started again, and no call is lost", false, false, 240, no_processes, killed},
      {"requests: 100 clients of 3 participants, 1000 calls each", false, true, 900, no_partitions,
       [](Scene& scene) { calls(scene, 100, 1000); }},
      {"requests: 100 clients to another process, 1000 calls each", false, true, 900, no_processes,
       [](Scene& scene) { across(scene, 100, 1000); }},
  };
}

}  // namespace sonde::bus::conformance
