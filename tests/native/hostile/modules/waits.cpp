// A transport whose server half waits for another word of the client, and then gives up: what keeps a thread busy.
#include <memory>
#include <string>

#include "store/module.hpp"

using namespace sonde;
using namespace sonde::store;

namespace {

struct Waits final : Transport {
  std::string name() const override { return "test-waits"; }
  Result<std::unique_ptr<Link>> connect(Control&, const LinkOptions&, Sink&, Deadline) override {
    return Error{"store.unreachable", "this transport connects nobody", ""};
  }
  Result<std::unique_ptr<Link>> accept(Control& control, Bytes, const LinkOptions&, Sink&, Deadline deadline) override {
    const auto word = control.receive(deadline);
    return Error{"store.unreachable", word ? "the client spoke" : word.error().what, ""};
  }
};

const TransportEntry entries[] = {{"test-waits", [] { return std::unique_ptr<Transport>(std::make_unique<Waits>()); }}};
const Module module{module_abi, "test-waits", {}, entries};

}  // namespace

extern "C" const Module* sonde_store_module() { return &module; }
