#pragma once
/// The frame in which checks run: a backend that can be opened again, and expectations with descriptions. Owner-thread.

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/conformance/backend.hpp"

namespace sonde::store::conformance {

/// The space in which the checks work.
constexpr std::string_view space = "conformance";

/// Ends a check that cannot continue; never leaves check_backend().
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The answers of a batch and the memory that they point into.
struct Answers {
  std::vector<Outcome> outcomes;
  std::unique_ptr<Arena> arena = std::make_unique<Arena>();
  const Outcome& operator[](std::size_t k) const { return outcomes[k]; }
  const Outcome& one() const { return outcomes.front(); }
};

class Suite {
 public:
  Suite(Role role, const Open& open, const std::function<void(std::string_view)>& begin)
      : role_(role), open_(open), begin_(begin) {}

  /// Opens the backend, or opens it again after it has settled and ended the previous one.
  void open();
  Backend& backend() { return *backend_; }
  const Caps& caps() const { return caps_; }
  Result<std::unique_ptr<Backend>> try_open(const Settings& besides) { return open_(besides); }
  void close();

  /// Runs one check: `body` throws Failed, or calls expect().
  template <typename Body> void check(const std::string& name, Body&& body) {
    const std::string full = std::string(name_of(role_)) + ": " + name;
    if (begin_) begin_(full);
    checks_.push_back({full, true, {}});
    try {
      if (!backend_) open();
      body();
    } catch (const std::exception& e) {
      checks_.back().passed = false;
      if (!checks_.back().message.empty()) checks_.back().message += "; ";
      checks_.back().message += e.what();
    }
  }

  /// Executes the operations and returns the answers. Fails the check if an outcome is left pending.
  Answers run(const std::vector<Op>& ops, Safety safety = Safety::network);
  Outcome run_one(const Op& op, Answers& keep, Safety safety = Safety::network);
  Status status(const Op& op, Safety safety = Safety::network) { return run({op}, safety).one().status; }

  void expect(bool good, const std::string& message) {
    if (!good) throw Failed(message);
  }
  void expect(Status found, Status wanted, const std::string& what) {
    if (found != wanted)
      throw Failed(what + ": " + std::string(name_of(found)) + " instead of " + std::string(name_of(wanted)));
  }

  std::vector<Check> take() { return std::move(checks_); }

 private:
  Role role_;
  const Open& open_;
  const std::function<void(std::string_view)>& begin_;
  std::unique_ptr<Backend> backend_;
  Caps caps_;
  std::vector<Check> checks_;
};

/// A text of n bytes that depends on the position and the seed.
std::string pattern(std::size_t n, unsigned seed);
/// At most 40 bytes of a name or value, with unprintable bytes as \xNN.
std::string shown(std::string_view text);

/// Expects the outcome of a read or get to be all of `wanted`, with its length.
void expect_text(Suite& suite, const Outcome& found, std::string_view wanted, const std::string& what);

void check_data(Suite& suite);
void check_kv(Suite& suite);
void check_db(Suite& suite);

}  // namespace sonde::store::conformance
