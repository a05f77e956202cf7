#pragma once
/// Which of libfabric's providers a test can name.

#include <algorithm>
#include <string>

#include "core/clock.hpp"
#include "store/transport.hpp"

namespace sonde::store {

/// "net", or "tcp" where libfabric has it no more: libfabric 2 took its code into `tcp`. Needs a build with libfabric.
inline const char* net_or_tcp() {
  static const bool there = [] {
    const auto found = (*open_transport("ofi-rdm"))->probe(Deadline::in_s(60));
    return std::any_of(found.begin(), found.end(), [](const Found& f) { return f.provider == "net"; });
  }();
  return there ? "net" : "tcp";
}

}  // namespace sonde::store
