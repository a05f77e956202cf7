#include "io/trace/engine.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <atomic>
#include <bit>
#include <cstddef>

#include "io/trace/offsets.h"
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
  keep(thread,
       Record{frame.begin, end, frame.size, frame.offset, folded(frame.handle), frame.function, frame.depth, flags});
}

/// A function that a uretprobe watches, in this process or any other, finds a return address of the kernel's where ours
/// was: in a page that is mapped as high as can be, [uprobes].
constexpr std::uint64_t highest_page = 0x7fffffffe000;
bool is_kernels(std::uint64_t back) { return back - highest_page < 4096; }

/// Whether the call was left by longjmp, or by a change of stacks, as a new call shows that will return to where the
/// stack is at `sp`: the stack has been cut above the old one; or its return address there, which is ours while it is
/// under way, has been written over by a later call. A function that jumps to another instead of calling it leaves it
/// alone. It is the caller's before the call and after it, which is when a signal's handler may look, from further
/// down; of the loader's functions it lies elsewhere.
bool left(const Frame& frame, std::uint64_t sp) {
  if (frame.sp < sp) return true;
  if (frame.sp == unfilled) return false;
  const std::uint64_t back = reinterpret_cast<const std::uint64_t*>(frame.sp)[-1];
  const bool ours = back == reinterpret_cast<std::uint64_t>(&sonde_io_returned) || is_kernels(back);
  return frame.sp == sp ? !ours : !ours && back != frame.back && frame.via == 0;
}

// A signal's handler may make traced calls between any two instructions here. It finds the frame that was being taken
// or given back either free or taken, and leaves `depth` as it was, or smaller if it found frames that were left.

void drop_left(Thread& thread, std::uint64_t sp) {
  ThreadFile& file = *thread.file;
  for (std::uint32_t depth; (depth = file.depth) != 0;) {
    Frame& last = file.frames[depth - 1];
    if (!left(last, sp)) return;
    const Frame frame = last;
    last.path = last.via = 0;
    last.sp = unfilled;
    if (!std::atomic_ref(file.depth).compare_exchange_strong(depth, depth - 1, std::memory_order_relaxed)) continue;
    if (functions[frame.function].rule != nullptr && !(frame.flags & frame_recorded))
      keep(thread, frame, frame.begin, flag_entry_only);
  }
}

/// Empty again, as a thunk expects it, which fills in neither `path` nor `via`.
void give_back(ThreadFile& file, Frame& frame) {
  const std::uint8_t depth = frame.depth;
  frame.path = frame.via = 0;
  frame.sp = unfilled;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  file.depth = depth;
}

void keep_note(Thread& thread, const Frame& frame) {
  const char* text = reinterpret_cast<const char*>(frame.path);
  const std::uint32_t most = frame.path_bytes != 0 && frame.path_bytes < longest_path ? frame.path_bytes : longest_path;
  std::uint32_t length = 0;
  while (length < most && text[length] != 0) ++length;
  if (frame.path_bytes != 0)
    while (length != 0 && text[length - 1] == ' ') --length;
  const std::uint32_t slots = 1 + (length + sizeof(Record) - 1) / sizeof(Record);
  Record* at = reserve(thread, slots);
  if (at == nullptr) return;
  Note& note = *reinterpret_cast<Note*>(at);
  note = Note{frame.begin, frame.handle, length, 0, folded(frame.handle), note_function, frame.depth, 0};
  char* to = reinterpret_cast<char*>(at + 1);
  for (std::uint32_t k = 0; k < length; ++k) to[k] = text[k];
}

}  // namespace
}  // namespace sonde::io

using namespace sonde;
using namespace sonde::io;

// The data of the thunks.
static_assert(offsetof(Function, target) == FUNCTION_TARGET && offsetof(Function, size) == FUNCTION_SIZE &&
              offsetof(Function, offset) == FUNCTION_OFFSET && offsetof(Function, file) == FUNCTION_FILE &&
              offsetof(Function, number) == FUNCTION_NUMBER && sizeof(Function) == FUNCTION_BYTES);
static_assert(offsetof(Function, size_at) == FUNCTION_SIZE_AT && offsetof(Function, offset_at) == FUNCTION_OFFSET_AT &&
              offsetof(Function, file_at) == FUNCTION_FILE_AT && offsetof(Function, quick) == FUNCTION_QUICK &&
              offsetof(Function, size_is_result) == FUNCTION_SIZE_IS_RESULT &&
              offsetof(Function, file_is_result) == FUNCTION_FILE_IS_RESULT &&
              offsetof(Function, narrow) == FUNCTION_NARROW && offsetof(Function, failures) == FUNCTION_FAILURES);
static_assert(offsetof(Reading, keep) == READING_KEEP && offsetof(Reading, sign) == READING_SIGN &&
              offsetof(Reading, less) == READING_LESS);
static_assert(offsetof(Frame, rbx) == FRAME_RBX && offsetof(Frame, back) == FRAME_BACK &&
              offsetof(Frame, sp) == FRAME_SP && offsetof(Frame, begin) == FRAME_BEGIN &&
              offsetof(Frame, size) == FRAME_SIZE && offsetof(Frame, offset) == FRAME_OFFSET &&
              offsetof(Frame, handle) == FRAME_HANDLE && offsetof(Frame, via) == FRAME_VIA &&
              offsetof(Frame, file) == FRAME_FILE && offsetof(Frame, called) == FRAME_CALLED &&
              sizeof(Frame) == FRAME_BYTES && most_frames == MOST_FRAMES && unfilled == ~std::uint64_t{0});
static_assert(std::endian::native == std::endian::little && offsetof(Frame, function) == FRAME_FUNCTION &&
              offsetof(Frame, depth) == FRAME_DEPTH && offsetof(Frame, flags) == FRAME_DEPTH + 1 &&
              FRAME_DEPTH == FRAME_FUNCTION + 2);
static_assert(offsetof(ThreadFile, depth) == FILE_DEPTH && offsetof(ThreadFile, current) == FILE_CURRENT &&
              offsetof(ThreadFile, used) == FILE_USED && offsetof(ThreadFile, stack_low) == FILE_STACK_LOW &&
              offsetof(ThreadFile, stack_high) == FILE_STACK_HIGH && offsetof(ThreadFile, frames) == FILE_FRAMES &&
              offsetof(ThreadFile, blocks) == FILE_BLOCKS);
static_assert(sizeof(BlockHeader) == BLOCK_HEADER && block_bytes == BLOCK_BYTES && block_records == BLOCK_RECORDS);
static_assert(offsetof(Record, begin) == RECORD_BEGIN && offsetof(Record, end) == RECORD_END &&
              offsetof(Record, size) == RECORD_SIZE && offsetof(Record, offset) == RECORD_OFFSET &&
              offsetof(Record, file) == RECORD_FILE && offsetof(Record, function) == RECORD_FUNCTION &&
              offsetof(Record, depth) == RECORD_FUNCTION + 2 && offsetof(Record, flags) == RECORD_FUNCTION + 3 &&
              flag_failed == FLAG_FAILED);

void* sonde_io_vfork_target;

struct Entry {
  Frame* frame;
  void* target;
};

/// For what a thunk does not do itself: a thread's first call; values that are not in registers; a stack that is not
/// the thread's own; too deep: not in the way of the others.
extern "C" __attribute__((visibility("hidden"))) Entry sonde_io_enter(const Function* called, const Arguments* kept) {
  const Function& function = *called;
  const Arguments& arguments = *kept;
  if (!tracing) return {nullptr, function.target};
  if (function.watch != nullptr && !function.watch(arguments)) return {nullptr, function.target};
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
    frame.function = static_cast<std::uint16_t>(function.number);
    frame.depth = static_cast<std::uint8_t>(file.depth < most_frames ? file.depth : most_frames);
    read_before(*thread, frame, function, arguments);
    frame.begin = static_cast<std::uint64_t>(ticks());
    keep(*thread, frame, frame.begin, flag_entry_only);
    return {nullptr, function.target};
  }
  Frame& frame = file.frames[depth];
  frame.back = arguments.back;
  frame.called = called;
  frame.function = static_cast<std::uint16_t>(function.number);
  frame.depth = static_cast<std::uint8_t>(depth);
  frame.flags = 0;
  read_before(*thread, frame, function, arguments);
  frame.begin = static_cast<std::uint64_t>(ticks());
  std::atomic_signal_fence(std::memory_order_release);
  frame.sp = sp;
  return {&frame, function.target};
}

/// The end of calls of functions that name files, and of the loader's, whose results the tracer itself needs; and where
/// a block is full. `end`: the processor's ticks. Returns the program's result of the call.
extern "C" __attribute__((visibility("hidden"))) std::uint64_t sonde_io_exit(Frame* frame, std::uint64_t result,
                                                                             std::uint64_t end) {
  if (tick_kind != register_ticks) end = static_cast<std::uint64_t>(ticks());
  Thread& thread = *current;
  const Function& function = *frame->called;
  Frame mine = *frame;
  give_back(*thread.file, *frame);
  const std::uint8_t flags = read_after(mine, function, result);
  if (function.rule == nullptr) return function.after(mine, result);
  if (mine.path != 0 && !(flags & flag_failed)) keep_note(thread, mine);
  keep(thread, mine, end, flags);
  return function.after ? function.after(mine, result) : result;
}

/// The frame of the thunk that is being unwound: what rbx (3, by DWARF's numbers) is there. Not linked: libgcc_s would
/// come into every program, where only those that unwind have it.
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
extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code sonde_io_personality(int, _Unwind_Action actions,
                                                                                          std::uint64_t,
                                                                                          _Unwind_Exception*,
                                                                                          _Unwind_Context* context) {
  const std::uint64_t at = (actions & _UA_CLEANUP_PHASE) && current != nullptr ? frame_address(context) : 0;
  if (at == 0) return _URC_CONTINUE_UNWIND;
  Thread& thread = *current;
  const auto first = reinterpret_cast<std::uint64_t>(thread.file->frames);
  // Not where the thunk itself is unwound before it has a frame, as from a handler of a signal.
  if (at >= first && at < first + sizeof thread.file->frames) {
    Frame& frame = *reinterpret_cast<Frame*>(at);
    // The frame stays taken: who unwinds reads it again after this. The next call finds it left.
    if (functions[frame.function].rule != nullptr && !(frame.flags & frame_recorded))
      keep(thread, frame, ticks(), flag_thrown);
    frame.flags |= frame_recorded;
  }
  return _URC_CONTINUE_UNWIND;
}
