#include "io/trace/engine.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <atomic>
#include <bit>
#include <cstddef>

#include "io/trace/offsets.h"
#include "io/trace/process.hpp"
#include "io/trace/system.hpp"
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

/// If a uretprobe, of this process or another, watches a function, the kernel has replaced our return address by one of
/// its own, in the page [uprobes], which is mapped as high as possible.
constexpr std::uint64_t highest_page = 0x7fffffffe000;
bool is_kernels(std::uint64_t back) { return back - highest_page < 4096; }

/// Whether the call was left by longjmp or by a change of stacks. A new call, whose stack is at `sp` after its return,
/// shows it: the stack has been cut above the old call, or a later call has overwritten the old call's return address
/// on the stack, which is ours while the call is in progress. A function that jumps to another one instead of calling
/// it does not change that address. Before and after the call it is the caller's address, as a signal handler further
/// down the stack may see it; for the loader's functions it is stored elsewhere.
bool left(const Frame& frame, std::uint64_t sp) {
  if (frame.sp < sp) return true;
  if (frame.sp == unfilled) return false;
  const std::uint64_t back = reinterpret_cast<const std::uint64_t*>(frame.sp)[-1];
  const bool ours = back == reinterpret_cast<std::uint64_t>(&sonde_io_returned) || is_kernels(back);
  return frame.sp == sp ? !ours : !ours && back != frame.back && frame.via == 0;
}

// A signal handler may make traced calls between any two instructions here. It finds the frame that is being taken or
// given back either free or taken. It leaves `depth` unchanged, or smaller if it found frames that were left.

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

/// Empties the frame again, as thunks expect it, because they do not fill in `path` and `via`.
void give_back(ThreadFile& file, Frame& frame) {
  const std::uint8_t depth = frame.depth;
  frame.path = frame.via = 0;
  frame.sp = unfilled;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  file.depth = depth;
}

/// The whole name of a file that a call has just opened under a name that begins in some folder: the same name is
/// another file in another folder. Without a descriptor, it is the name in the working directory. 0: not known.
std::uint32_t whole_name(const Frame& frame, const char* name, char* to, std::uint32_t room) {
  const bool descriptor = functions[frame.function].rule->file.width == Width::i32;
  char link[64] = "/proc/self/cwd";
  if (descriptor) Words(link, sizeof link) << "/proc/self/fd/" << frame.handle;
  const long got = sys::call(__NR_readlinkat, -100, sys::of(link), sys::of(to), room);
  if (got <= 0 || to[0] != '/') return 0;
  auto length = static_cast<std::uint32_t>(got);
  if (descriptor || length == room) return length < room ? length : 0;
  to[length++] = '/';
  while (*name != 0 && length < room) to[length++] = *name++;
  return length < room ? length : 0;
}

void keep_note(Thread& thread, const Frame& frame) {
  const char* text = reinterpret_cast<const char*>(frame.path);
  const std::uint32_t most = frame.path_bytes != 0 && frame.path_bytes < longest_path ? frame.path_bytes : longest_path;
  std::uint32_t length = 0;
  while (length < most && text[length] != 0) ++length;
  if (frame.path_bytes != 0)
    while (length != 0 && text[length - 1] == ' ') --length;
  char whole[longest_path];
  std::uint32_t more = 0;
  if (length != 0 && text[0] != '/' && frame.path_bytes == 0) {
    const auto begin = static_cast<std::uint64_t>(ticks());
    more = whole_name(frame, text, whole, sizeof whole);
    note_own(thread, begin);
  }
  const std::uint32_t bytes = length + (more != 0 ? 1 + more : 0);
  const std::uint32_t slots = 1 + (bytes + sizeof(Record) - 1) / sizeof(Record);
  Record* at = reserve(thread, slots);
  if (at == nullptr) return;
  Note& note = *reinterpret_cast<Note*>(at);
  note = Note{frame.begin, frame.handle, bytes, 0, folded(frame.handle), note_function, frame.depth, 0};
  char* to = reinterpret_cast<char*>(at + 1);
  for (std::uint32_t k = 0; k < length; ++k) to[k] = text[k];
  if (more != 0) to[length] = 0;
  for (std::uint32_t k = 0; k < more; ++k) to[length + 1 + k] = whole[k];
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

/// Handles calls that a thunk cannot: a thread's first call, values that are not in registers, a stack that is not the
/// thread's own, and a shadow stack that is full.
extern "C" __attribute__((visibility("hidden"))) Entry sonde_io_enter(const Function* called, Arguments* kept) {
  const Function& function = *called;
  Arguments& arguments = *kept;
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

/// The end of calls that name files, of calls of the loader, whose results the tracer needs, and of calls that find a
/// full block. `end`: the processor's ticks. Returns the call's result for the program.
extern "C" __attribute__((visibility("hidden"))) std::uint64_t sonde_io_exit(Frame* frame, std::uint64_t result,
                                                                             std::uint64_t end) {
  if (tick_kind != register_ticks) end = static_cast<std::uint64_t>(ticks());
  Thread& thread = *current;
  const Function& function = *frame->called;
  Frame mine = *frame;
  give_back(*thread.file, *frame);
  std::uint8_t flags = read_after(mine, function, result);
  if (function.rule == nullptr) return function.after(mine, result);
  const From named = function.rule->path.from;
  if (counts_bytes(named)) {
    if (!(flags & flag_failed)) flags |= read_moved(thread, mine, function);
  } else if (mine.path != 0 && !(flags & flag_failed)) {
    keep_note(thread, mine);
  }
  keep(thread, mine, end, flags);
  return function.after ? function.after(mine, result) : result;
}

/// The frame of the thunk that is being unwound: the value of rbx (3 in DWARF's numbering) there. libgcc_s is not
/// linked, because every program would then load it, not only those that unwind.
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

/// Called when unwinding passes a thunk: an exception ended the call, or its thread is being cancelled.
extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code sonde_io_personality(int, _Unwind_Action actions,
                                                                                          std::uint64_t,
                                                                                          _Unwind_Exception*,
                                                                                          _Unwind_Context* context) {
  const std::uint64_t at = (actions & _UA_CLEANUP_PHASE) && current != nullptr ? frame_address(context) : 0;
  if (at == 0) return _URC_CONTINUE_UNWIND;
  Thread& thread = *current;
  const auto first = reinterpret_cast<std::uint64_t>(thread.file->frames);
  // Not if the thunk is unwound before it has a frame, for example from a signal handler.
  if (at >= first && at < first + sizeof thread.file->frames) {
    Frame& frame = *reinterpret_cast<Frame*>(at);
    // The frame stays taken, because the unwinder reads it again after this. The next call finds that it was left.
    if (functions[frame.function].rule != nullptr && !(frame.flags & frame_recorded))
      keep(thread, frame, ticks(), flag_thrown);
    frame.flags |= frame_recorded;
  }
  return _URC_CONTINUE_UNWIND;
}
