#include "io/trace/engine.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

#include "io/trace/thread.hpp"
#include "io/trace/values.hpp"

namespace sonde::io {

Function functions[most_functions];
bool tracing;

namespace {

void keep(Thread& thread, const Record& record) {
  Record* to = reserve(thread);
  if (to == nullptr) [[unlikely]] {
    std::atomic_ref(thread.file->dropped).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  *to = record;
}

void keep(Thread& thread, const Frame& frame, std::uint64_t end, std::uint8_t flags) {
  keep(thread, Record{frame.begin, end, frame.size, frame.offset, folded(frame.handle), frame.function, frame.depth, flags});
}

/// Whether the call was left by longjmp, or by a change of stacks, as a new call shows that will return to where the stack is at `sp`:
/// the stack has been cut above the old one; or its return address there, which is ours while it is under way, has been written over
/// by a later call. A function that jumps to another instead of calling it leaves it alone. It is the caller's before the call and
/// after it, which is when a signal's handler may look, from further down; of the loader's functions it lies elsewhere.
bool left(const Frame& frame, std::uint64_t sp) {
  if (frame.sp < sp) return true;
  if (frame.sp == unfilled) return false;
  const std::uint64_t back = reinterpret_cast<const std::uint64_t*>(frame.sp)[-1];
  const bool ours = back == reinterpret_cast<std::uint64_t>(&sonde_io_returned);
  return frame.sp == sp ? !ours : !ours && back != frame.back && frame.via == 0;
}

// A signal's handler may make traced calls between any two instructions here. It finds the frame that was being taken or given back
// either free or taken, and leaves `depth` as it was, or smaller if it found frames that were left.

void drop_left(Thread& thread, std::uint64_t sp) {
  ThreadFile& file = *thread.file;
  for (std::uint32_t depth; (depth = file.depth) != 0;) {
    Frame& last = file.frames[depth - 1];
    if (!left(last, sp)) return;
    const Frame frame = last;
    last.sp = unfilled;
    if (!std::atomic_ref(file.depth).compare_exchange_strong(depth, depth - 1, std::memory_order_relaxed)) continue;
    if (functions[frame.function].rule != nullptr && !(frame.flags & frame_recorded)) keep(thread, frame, frame.begin, flag_entry_only);
  }
}

void give_back(ThreadFile& file, Frame& frame) {
  const std::uint8_t depth = frame.depth;
  frame.sp = unfilled;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  file.depth = depth;
}

void keep_note(Thread& thread, const Frame& frame) {
  const char* text = reinterpret_cast<const char*>(frame.path);
  std::uint32_t length = 0;
  while (length < longest_path && text[length] != 0) ++length;
  const std::uint32_t slots = 1 + (length + sizeof(Record) - 1) / sizeof(Record);
  Record* at = reserve(thread, slots);
  if (at == nullptr) return;
  Note& note = *reinterpret_cast<Note*>(at);
  note = Note{frame.begin, frame.handle, length, 0, folded(frame.handle), note_function, frame.depth, 0};
  char* to = reinterpret_cast<char*>(at + 1);
  for (std::uint32_t k = 0; k < length; ++k) to[k] = text[k];
}

/// Of functions that name files, and of the loader's, whose results mean something to the tracer itself; and where a block is full.
[[gnu::noinline]] std::uint64_t exit_slowly(Thread& thread, Frame* frame, const Function& function, std::uint64_t result, std::uint64_t end) {
  if (tick_kind != register_ticks) end = static_cast<std::uint64_t>(ticks());
  Frame mine = *frame;
  give_back(*thread.file, *frame);
  const std::uint8_t flags = read_after(mine, function, result);
  if (function.rule == nullptr) return function.after(mine, result);
  if (mine.path != 0 && !(flags & flag_failed)) keep_note(thread, mine);
  keep(thread, mine, end, flags);
  return function.after ? function.after(mine, result) : result;
}

}  // namespace
}  // namespace sonde::io

using namespace sonde;
using namespace sonde::io;

/// Several narrow members by one store: each by its own costs as much as everything else that is written.
static void put_word(void* to, std::size_t at, std::uint64_t word) { std::memcpy(static_cast<std::byte*>(to) + at, &word, sizeof word); }
static_assert(std::endian::native == std::endian::little);
static_assert(offsetof(Frame, depth) == offsetof(Frame, function) + 2 && offsetof(Frame, flags) == offsetof(Frame, function) + 3);
static_assert(offsetof(Record, function) == offsetof(Record, file) + 4 && offsetof(Record, depth) == offsetof(Record, function) + 2 &&
              offsetof(Record, flags) == offsetof(Record, function) + 3);

struct Entry {
  Frame* frame;
  void* target;
};

/// A thread's first call; a stack that is not its own; too deep: not in the way of the others.
[[gnu::noinline]] static Entry enter_slowly(const Function& function, const Arguments& arguments) {
  const auto number = static_cast<std::uint32_t>(&function - functions);
  const std::uint64_t sp = arguments.sp();
  Thread* thread = current != nullptr ? current : begin_thread(sp);
  if (thread == nullptr || thread->busy) return {nullptr, function.target};
  ThreadFile& file = *thread->file;
  const bool own_stack = sp > file.stack_low && sp <= file.stack_high;
  if (own_stack) drop_left(*thread, sp);
  const std::uint32_t depth = own_stack ? take(file.depth, 1) : most_frames;
  if (depth >= most_frames) {
    if (own_stack) take(file.depth, ~0u);
    Frame frame{};
    frame.function = static_cast<std::uint16_t>(number);
    frame.depth = static_cast<std::uint8_t>(file.depth < most_frames ? file.depth : most_frames);
    read_before(*thread, frame, function, arguments);
    frame.begin = static_cast<std::uint64_t>(ticks());
    keep(*thread, frame, frame.begin, flag_entry_only);
    return {nullptr, function.target};
  }
  Frame& frame = file.frames[depth];
  frame.back = arguments.back;
  frame.function = static_cast<std::uint16_t>(number);
  frame.depth = static_cast<std::uint8_t>(depth);
  frame.flags = 0;
  read_before(*thread, frame, function, arguments);
  frame.begin = static_cast<std::uint64_t>(ticks());
  std::atomic_signal_fence(std::memory_order_release);
  frame.sp = sp;
  return {&frame, function.target};
}

// Neither of these two calls anything but as its last deed, so that no register has to be saved: that would cost as much as the rest.

extern "C" __attribute__((visibility("hidden"))) Entry sonde_io_enter(std::uint32_t number, const Arguments* arguments) {
  const Function& function = functions[number];
  Thread* const thread = current;
  if (!tracing) [[unlikely]] return {nullptr, function.target};
  if (!function.quick || thread == nullptr || thread->busy) [[unlikely]] return enter_slowly(function, *arguments);
  ThreadFile& file = *thread->file;
  const std::uint64_t sp = arguments->sp();
  const std::uint32_t around = file.depth;
  if (sp <= file.stack_low || sp > file.stack_high || around >= most_frames - 1 || (around != 0 && left(file.frames[around - 1], sp))) [[unlikely]]
    return enter_slowly(function, *arguments);
  const std::uint32_t depth = take(file.depth, 1);
  Frame& frame = file.frames[depth];
  frame.back = arguments->back;
  put_word(&frame, offsetof(Frame, function), number | std::uint64_t{depth} << 16);  // and no flags
  frame.path = frame.via = 0;
  frame.size = quickly(function.size, *arguments);
  frame.offset = quickly(function.offset, *arguments);
  frame.handle = quickly(function.file, *arguments);
  frame.begin = read_ticks<register_ticks>();
  std::atomic_signal_fence(std::memory_order_release);
  frame.sp = sp;
  return {&frame, function.target};
}

extern "C" __attribute__((visibility("hidden"))) std::uint64_t sonde_io_exit(Frame* frame, std::uint64_t result) {
  const std::uint64_t end = read_ticks<register_ticks>();
  Thread& thread = *current;
  ThreadFile& file = *thread.file;
  const Function& function = functions[frame->function];
  if (!function.quick) [[unlikely]] return exit_slowly(thread, frame, function, result, end);
  Record* const to = reserve_quickly(file);
  if (to == nullptr) [[unlikely]] return exit_slowly(thread, frame, function, result, end);
  const auto narrow = static_cast<std::int64_t>(static_cast<std::int32_t>(result)), wide = static_cast<std::int64_t>(result);
  const std::int64_t value = function.narrow ? narrow : wide;
  const bool failed = (function.failures >> (value < 0 ? 0 : value > 0 ? 1 : 2)) & 1;
  const std::uint64_t told = failed ? 0 : static_cast<std::uint64_t>(value);
  const std::uint64_t handle = function.file_is_result ? told : frame->handle;
  to->begin = frame->begin;
  to->end = end;
  to->size = function.size_is_result ? told : frame->size;
  to->offset = frame->offset;
  const std::uint64_t what = frame->function | std::uint32_t{frame->depth} << 16 | (failed ? std::uint32_t{flag_failed} << 24 : 0);
  put_word(to, offsetof(Record, file), folded(handle) | what << 32);
  give_back(file, *frame);
  return result;
}

/// The frame of the thunk that is being unwound: what rbx (3, by DWARF's numbers) is there. Not linked: libgcc_s would come into every
/// program, where only those that unwind have it.
static std::uint64_t frame_address(_Unwind_Context* context) {
  static _Unwind_Word (*get_register)(_Unwind_Context*, int);
  if (get_register == nullptr) {
    void* library = ::dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    get_register = reinterpret_cast<_Unwind_Word (*)(_Unwind_Context*, int)>(::dlsym(library, "_Unwind_GetGR"));
    ::dlclose(library);
  }
  return get_register ? get_register(context, 3) : 0;
}

/// Unwinding passes a thunk: the call has ended by an exception, or its thread is cancelled.
extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code sonde_io_personality(int, _Unwind_Action actions, std::uint64_t,
                                                                                          _Unwind_Exception*, _Unwind_Context* context) {
  const std::uint64_t at = (actions & _UA_CLEANUP_PHASE) && current != nullptr ? frame_address(context) : 0;
  if (at == 0) return _URC_CONTINUE_UNWIND;
  Thread& thread = *current;
  const auto first = reinterpret_cast<std::uint64_t>(thread.file->frames);
  // Not where the thunk itself is unwound before it has a frame, as from a handler of a signal.
  if (at >= first && at < first + sizeof thread.file->frames) {
    Frame& frame = *reinterpret_cast<Frame*>(at);
    // The frame stays taken: who unwinds reads it again after this. The next call finds it left.
    if (functions[frame.function].rule != nullptr && !(frame.flags & frame_recorded)) keep(thread, frame, ticks(), flag_thrown);
    frame.flags |= frame_recorded;
  }
  return _URC_CONTINUE_UNWIND;
}
