#pragma once
/// Cyclone's domain objects: sockets, threads, discovery. One for each process and domain id, shared by all
/// participants in it.

#include <dds/dds.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bus/module/cyclonedds/config.hpp"
#include "core/error.hpp"

namespace sonde::bus::cyclonedds {

/// A reference to a domain; the last one closes it. Owner-thread.
class Domain {
 public:
  /// A reference to the domain of this id, which is created if needed. Error: bus.open if it exists with another
  /// configuration, if its sockets must be confined and cannot be, or an error of Cyclone. Any-thread.
  static Result<std::unique_ptr<Domain>> get(std::uint32_t id, const DomainPlan& plan);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  std::uint32_t id() const { return id_; }

 private:
  explicit Domain(std::uint32_t id) : id_(id) {}
  std::uint32_t id_;
};

/// The warnings and errors that Cyclone logged on this thread since the last call, in one line. They are not printed.
std::string last_words();
/// An error with "what: Cyclone's name of the number (and its log)".
Error failed(const std::string& what, dds_return_t number, const std::string& hint = {});

}  // namespace sonde::bus::cyclonedds
