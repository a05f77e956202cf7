#pragma once
/// Which of libfabric's providers a test can name.

#include <algorithm>
#include <string_view>

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

/// libfabric 2, which has no `net` any more: over shared memory the peer moves what is read of its memory, which takes
/// a turn of the peer's for each frame.
inline bool peer_moves_reads() { return std::string_view(net_or_tcp()) == "tcp"; }

}  // namespace sonde::store
