// An implementation with one mistake, which SONDE_TEST_MISTAKE names: test_bus_conformance.cpp sees whether the suite
// finds it. All else is null's.
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bus/null.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

bool is(std::string_view mistake) {
  static const char* chosen = std::getenv("SONDE_TEST_MISTAKE");
  return chosen && mistake == chosen;
}

/// By its signal: a sanitizer would catch that, and end the process in order.
void crash() {
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}

struct MistakenWriter final : WriterPort {
  std::unique_ptr<WriterPort> port;
  std::uint64_t n = 0;
  std::vector<std::byte> held;

  explicit MistakenWriter(std::unique_ptr<WriterPort> of) : port(std::move(of)) {}
  Guid guid() const override { return port->guid(); }
  Result<void> write(Bytes payload, Bytes key) override {
    ++n;
    if (is("crash")) crash();
    if (is("hang"))
      for (;;) pause();
    if (is("lose") && n == 3000) return {};
    if (is("swap") && n == 3000) {
      held.assign(payload.begin(), payload.end());
      return {};
    }
    if (is("change") && payload.size() > 70000) {
      std::vector<std::byte> other(payload.begin(), payload.end());
      other[other.size() / 2] ^= std::byte{1};
      return port->write(other, key);
    }
    auto ok = port->write(payload, key);
    if (ok && !held.empty()) {
      ok = port->write(held, key);
      held.clear();
    }
    return ok;
  }
  Result<void> dispose(Bytes payload, Bytes key) override {
    return is("silent disposal") ? Result<void>{} : port->dispose(payload, key);
  }
  bool wait_acknowledged(Deadline deadline) override { return port->wait_acknowledged(deadline); }
  void assert_liveliness() override { port->assert_liveliness(); }
  Status status() override {
    Status status = port->status();
    if (is("uncounted")) status.incompatible = 0;
    return status;
  }
  std::vector<Guid> matched() override { return port->matched(); }
};

struct MistakenWaiter final : WaiterPort {
  std::unique_ptr<WaiterPort> port;
  explicit MistakenWaiter(std::unique_ptr<WaiterPort> of) : port(std::move(of)) {}
  Result<void> attach(ReaderPort& reader, std::uint64_t tag) override {
    return port->attach(reader, is("tag") ? tag + 1 : tag);
  }
  void detach(ReaderPort& reader) override { port->detach(reader); }
  std::vector<std::uint64_t> wait(Deadline deadline) override {
    return is("impatient") ? std::vector<std::uint64_t>{} : port->wait(deadline);
  }
  void wake() override { port->wake(); }
};

struct Mistaken final : ParticipantPort {
  std::unique_ptr<ParticipantPort> port;
  explicit Mistaken(std::unique_ptr<ParticipantPort> of) : port(std::move(of)) {}
  Guid guid() const override { return port->guid(); }
  Result<std::unique_ptr<WriterPort>> writer(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    auto made = port->writer(topic, type, qos);
    if (!made) return made.error();
    return std::unique_ptr<WriterPort>(new MistakenWriter(std::move(*made)));
  }
  Result<std::unique_ptr<ReaderPort>> reader(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    Qos other = qos;
    if (is("deaf to partitions")) other.partitions.clear();
    return port->reader(topic, type, other);
  }
  Result<std::unique_ptr<WaiterPort>> waiter() override {
    auto made = port->waiter();
    return std::unique_ptr<WaiterPort>(new MistakenWaiter(std::move(*made)));
  }
  std::vector<Participant> peers() override { return port->peers(); }
  std::vector<Endpoint> endpoints() override {
    auto all = port->endpoints();
    if (is("user data"))
      for (auto& endpoint : all) endpoint.user_data.clear();
    return all;
  }
};

const ImplementationEntry entry{"mistaken", [] { return "1"; }, [] { return null_implementation().caps(); },
                                [](const Profile& profile) -> Result<std::unique_ptr<ParticipantPort>> {
                                  Profile other = profile;
                                  if (is("one domain")) other.domain = 1;
                                  if (is("leak")) (void)dup(0);
                                  auto made = null_implementation().open(other);
                                  if (!made) return made.error();
                                  return std::unique_ptr<ParticipantPort>(new Mistaken(std::move(*made)));
                                },
                                nullptr};
const Module module{module_abi, {&entry, 1}};

struct AtExit {
  ~AtExit() {
    if (is("crash at exit")) crash();
  }
} at_exit;

}  // namespace

extern "C" __attribute__((visibility("default"))) const Module* sonde_bus_module() { return &module; }
