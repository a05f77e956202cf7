#include "io/trace/cost.hpp"

#include "core/ticks.hpp"
#include "io/trace/engine.hpp"
#include "io/trace/system.hpp"
#include "io/trace/thread.hpp"

namespace sonde::io {

namespace {

constexpr unsigned batches = 8;

[[gnu::noinline]] long nothing(long size, long, long) {
  asm volatile("");
  return size;
}

template <typename Call> std::uint64_t batch(Call call) {
  const auto begin = static_cast<std::uint64_t>(ticks());
  for (long k = 0; k < static_cast<long>(cost_calls); ++k) call(k, k, k);
  return static_cast<std::uint64_t>(ticks()) - begin;
}

}  // namespace

Cost measure_cost() {
  auto* file = static_cast<ThreadFile*>(sys::map(sizeof(ThreadFile), -1, false));
  if (file == nullptr) return {};
  free_frames(*file);
  const auto sp = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  file->stack_low = sp - 65536;
  file->stack_high = sp + 65536;
  Rule rule{};
  rule.fails = Fails::negative;
  rule.size = {From::result, 0, 0, Width::i64};
  rule.offset = {From::arg, 1, 0, Width::i64};
  rule.file = {From::arg, 2, 0, Width::i64};
  rule.result = Width::i64;
  Function& function = functions[cost_function];
  function = {};
  function.target = reinterpret_cast<void*>(&nothing);
  function.rule = &rule;
  prepare(function);
  Thread thread{file, -1, 0, 0, 0, false, false, nullptr, nullptr, {}};
  Thread* const before = current;
  const bool was_tracing = tracing;
  set_current(&thread);
  tracing = true;
  // Volatile, because otherwise the compiler calls it directly or not at all.
  long (*volatile plain)(long, long, long) = &nothing;
  long (*volatile traced)(long, long, long) = reinterpret_cast<long (*)(long, long, long)>(thunk(cost_function));
  Cost least{unknown, unknown};
  std::uint64_t least_plain = unknown;
  for (unsigned k = 0; k < batches; ++k) {
    const std::uint64_t without = batch([&](long a, long b, long c) { plain(a, b, c); });
    if (without < least_plain) least_plain = without;
    file->used[0] = 0;
    const std::uint64_t all = batch([&](long a, long b, long c) { traced(a, b, c); });
    const auto* records = reinterpret_cast<const Record*>(file->blocks[0] + sizeof(BlockHeader));
    std::uint64_t inside = 0;
    for (unsigned r = 0; r < cost_calls; ++r) inside += records[r].end - records[r].begin;
    if (all < least.all) least.all = all;
    if (inside < least.inside) least.inside = inside;
  }
  tracing = was_tracing;
  set_current(before);
  function = {};
  sys::unmap(file, sizeof *file);
  least.all -= least.all < least_plain ? least.all : least_plain;
  if (least.inside > least.all) least.inside = least.all;
  return least;
}

}  // namespace sonde::io
