// Modules that test_bus_registry.cpp loads: MODULE_KIND says which, one that works ("mock") and each way in which one can be wrong.
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "bus/implementation.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

constexpr std::string_view kind = MODULE_KIND;

struct Waiter final : WaiterPort {
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
  Status status() override { return {}; }
  std::vector<Guid> matched() override { return {}; }
};

struct Participant final : ParticipantPort {
  Guid guid() const override { return {}; }
  Result<std::unique_ptr<WriterPort>> writer(const std::string&, const TypePtr&, const Qos&) override { return std::unique_ptr<WriterPort>(new Writer); }
  Result<std::unique_ptr<ReaderPort>> reader(const std::string&, const TypePtr&, const Qos&) override { throw std::runtime_error("no reader today"); }
  Result<std::unique_ptr<WaiterPort>> waiter() override { return std::unique_ptr<WaiterPort>(); }
  std::vector<sonde::bus::Participant> peers() override { return {}; }
  std::vector<Endpoint> endpoints() override { return {}; }
};

/// Tells of itself what it was opened with, in the error of a domain that no other test has.
Result<std::unique_ptr<ParticipantPort>> open(const Profile& profile) {
  if (profile.domain == 1) throw std::runtime_error("no domain 1");
  if (profile.domain == 2) return std::unique_ptr<ParticipantPort>();
  if (profile.domain == 3) return Error{"bus.open", "participant " + profile.participant, "no hint"};
  return std::unique_ptr<ParticipantPort>(new Participant);
}

Caps caps() {
  Caps caps;
  caps.udp4 = caps.tcp4 = caps.across_processes = caps.ownership = caps.security = true;
  return caps;
}

const ImplementationEntry mock[] = {{"mock", [] { return "1.2.3"; }, caps, open, []() -> std::size_t { return 0; }}};
const ImplementationEntry incomplete[] = {{"incomplete", [] { return "1"; }, caps, nullptr, nullptr}};
const ImplementationEntry taken[] = {{"null", [] { return "1"; }, caps, open, nullptr}};

/// As libraries do that were made for programs of their own.
[[maybe_unused]] void greedy(int) {}
struct TakesSignals {
  TakesSignals() { if (kind == "mock") std::signal(SIGTERM, greedy); }
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
