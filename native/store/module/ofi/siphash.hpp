#pragma once
/// SipHash-2-4, a keyed hash of short texts: without the key its 64 bits can be neither predicted nor forged. Pure;
/// any-thread. Source: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012, section 2
/// and appendix A.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sonde::store::ofi {

/// 16 random bytes from the kernel.
using SipKey = std::array<std::byte, 16>;

/// Takes a text in pieces, and returns its hash at the end.
class SipHash {
 public:
  explicit SipHash(const SipKey& key) {
    std::uint64_t k[2];
    std::memcpy(k, key.data(), sizeof k);
    v0_ = k[0] ^ 0x736f6d6570736575u;
    v1_ = k[1] ^ 0x646f72616e646f6du;
    v2_ = k[0] ^ 0x6c7967656e657261u;
    v3_ = k[1] ^ 0x7465646279746573u;
  }

  void add(std::span<const std::byte> text) {
    const std::byte* at = text.data();
    std::size_t left = text.size();
    if (left == 0) return;
    const std::size_t held = bytes_ % word_bytes;
    bytes_ += left;
    if (held) {
      const std::size_t n = left < word_bytes - held ? left : word_bytes - held;
      std::memcpy(word_.data() + held, at, n);
      if (held + n < word_bytes) return;
      take(word_.data());
      at += n;
      left -= n;
    }
    for (; left >= word_bytes; at += word_bytes, left -= word_bytes) take(at);
    std::memcpy(word_.data(), at, left);
  }

  /// Call it once: bytes added after it have no effect.
  std::uint64_t end() {
    const std::size_t held = bytes_ % word_bytes;
    std::memset(word_.data() + held, 0, word_bytes - held);
    word_[word_bytes - 1] = static_cast<std::byte>(bytes_);
    take(word_.data());
    v2_ ^= 0xff;
    for (int k = 0; k < 4; ++k) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  static constexpr std::size_t word_bytes = 8;

  void take(const std::byte* at) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    v3_ ^= word;
    round();
    round();
    v0_ ^= word;
  }

  void round() {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  std::uint64_t v0_, v1_, v2_, v3_;
  std::size_t bytes_ = 0;
  std::array<std::byte, word_bytes> word_{};
};

}  // namespace sonde::store::ofi
