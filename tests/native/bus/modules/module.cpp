// Modules that test_bus_registry.cpp loads: MODULE_KIND says which, one that works ("mock") and each way in which one
// can be wrong.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bus/implementation.hpp"
#include "core/clock.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

constexpr std::string_view kind = MODULE_KIND;

/// Of domain 4, where readers and waiters can be had: told in its writers' status, as alive and lost.
std::atomic<bool> waiter_ends{false}, reader_went_meanwhile{false};

struct Reader final : ReaderPort {
  ~Reader() override {
    if (waiter_ends) reader_went_meanwhile = true;
  }
  Guid guid() const override { return {}; }
  std::size_t take(std::size_t, const Taker&) override { return 0; }
  Status status() override { return {}; }
  std::vector<Guid> matched() override { return {}; }
};

struct Waiter final : WaiterPort {
  /// Takes its time: as one does that goes through its readers.
  ~Waiter() override {
    waiter_ends = true;
    for (int k = 0; k < 300 && !reader_went_meanwhile; ++k) sleep_until(now_s() + 1e-3);
    waiter_ends = false;
  }
  Result<void> attach(ReaderPort&, std::uint64_t) override { return {}; }
  void detach(ReaderPort&) override {}
  std::vector<std::uint64_t> wait(Deadline) override { return {}; }
  void wake() override {}
};

struct Writer final : WriterPort {
  Guid guid() const override { return {}; }
  Result<void> write(Bytes, Bytes) override { throw 7; }
  Result<void> dispose(Bytes, Bytes) override { throw std::runtime_error("no dispose"); }
  bool wait_acknowledged(Deadline) override { return true; }
  void assert_liveliness() override {}
  Status status() override {
    Status out;
    out.alive = waiter_ends, out.lost = reader_went_meanwhile;
    return out;
  }
  std::vector<Guid> matched() override { return {}; }
};

struct Participant final : ParticipantPort {
  explicit Participant(bool whole) : whole_(whole) {}
  Guid guid() const override { return {}; }
  Result<std::unique_ptr<WriterPort>> writer(const std::string&, const TypePtr&, const Qos&) override {
    return std::unique_ptr<WriterPort>(new Writer);
  }
  Result<std::unique_ptr<ReaderPort>> reader(const std::string&, const TypePtr&, const Qos&) override {
    if (!whole_) throw std::runtime_error("no reader today");
    return std::unique_ptr<ReaderPort>(new Reader);
  }
  Result<std::unique_ptr<WaiterPort>> waiter() override {
    return std::unique_ptr<WaiterPort>(whole_ ? new Waiter : nullptr);
  }
  std::vector<sonde::bus::Participant> peers() override { return {}; }
  std::vector<Endpoint> endpoints() override { return {}; }

 private:
  bool whole_;
};

/// Tells of itself what it was opened with, in the error of a domain that no other test has.
Result<std::unique_ptr<ParticipantPort>> open(const Profile& profile) {
  if (profile.domain == 1) throw std::runtime_error("no domain 1");
  if (profile.domain == 2) return std::unique_ptr<ParticipantPort>();
  if (profile.domain == 3) return Error{"bus.open", "participant " + profile.participant, "no hint"};
  return std::unique_ptr<ParticipantPort>(new Participant(profile.domain == 4));
}

Caps caps() {
  Caps caps;
  caps.udp4 = caps.tcp4 = caps.across_processes = caps.ownership = caps.security = true;
  return caps;
}

[[maybe_unused]] const ImplementationEntry mock[] = {
    {"mock", [] { return "1.2.3"; }, caps, open, []() -> std::size_t { return 0; }}};
[[maybe_unused]] const ImplementationEntry incomplete[] = {{"incomplete", [] { return "1"; }, caps, nullptr, nullptr}};
[[maybe_unused]] const ImplementationEntry taken[] = {{"null", [] { return "1"; }, caps, open, nullptr}};

/// As libraries do that were made for programs of their own.
[[maybe_unused]] void greedy(int) {}
struct TakesSignals {
  TakesSignals() {
    if (kind == "mock") std::signal(SIGTERM, greedy);
  }
} takes_signals;

}  // namespace

#ifndef MODULE_WITHOUT_SYMBOL
extern "C" __attribute__((visibility("default"))) const Module* sonde_bus_module() {
  static Module module;
  if (kind == "throws") throw std::runtime_error("no module today");
  if (kind == "nothing") return nullptr;
  if (kind == "abi") module.abi = module_abi + 1;
  module.implementations = kind == "incomplete" ? incomplete : kind == "taken" ? taken : mock;
  return &module;
}
#endif
