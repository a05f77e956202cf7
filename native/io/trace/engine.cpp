#include "io/trace/engine.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include "io/trace/thread.hpp"
#include "io/trace/values.hpp"

namespace sonde::io {

Function functions[most_functions];
bool tracing;

namespace {

void keep(Thread& thread, const Frame& frame, std::uint64_t end, std::uint8_t flags) {
  Record* record = reserve(thread);
  if (record == nullptr) return;
  *record = Record{frame.begin, end, frame.size, frame.offset, folded(frame.handle), frame.function, frame.depth, flags};
}

/// Frames whose calls longjmp left behind, as the stack pointer of a new call shows, which would return to `back`. One at the very
/// place of the new call is left behind, too, unless the function jumped to the new one instead of calling it.
void drop_stale(Thread& thread, std::uint64_t sp, std::uint64_t back) {
  ThreadFile& file = *thread.file;
  const bool jumped = back == reinterpret_cast<std::uint64_t>(&sonde_io_returned);
  while (file.depth != 0) {
    const Frame& frame = file.frames[file.depth - 1];
    if (frame.sp > sp || (frame.sp == sp && jumped)) return;
    --file.depth;
    if (functions[frame.function].rule != nullptr) keep(thread, frame, frame.begin, flag_entry_only);
  }
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

}  // namespace
}  // namespace sonde::io

using sonde::ticks;
using namespace sonde::io;

struct Entry {
  Frame* frame;
  void* target;
};

extern "C" __attribute__((visibility("hidden"))) Entry sonde_io_enter(std::uint32_t number, const Arguments* arguments) {
  const Function& function = functions[number];
  Thread* thread = current;
  const std::uint64_t sp = arguments->sp();
  if (!tracing) [[unlikely]] return {nullptr, function.target};
  if (thread == nullptr) [[unlikely]] {
    thread = begin_thread(sp);
    if (thread == nullptr) return {nullptr, function.target};
  }
  if (thread->busy) return {nullptr, function.target};
  ThreadFile& file = *thread->file;
  const bool own_stack = sp > file.stack_low && sp <= file.stack_high;
  if (own_stack) drop_stale(*thread, sp, arguments->back);
  if (!own_stack || file.depth == most_frames) [[unlikely]] {
    Frame frame{};
    frame.function = static_cast<std::uint16_t>(number);
    frame.depth = static_cast<std::uint8_t>(file.depth);
    read_before(*thread, frame, function, *arguments);
    frame.begin = ticks();
    keep(*thread, frame, frame.begin, flag_entry_only);
    return {nullptr, function.target};
  }
  Frame& frame = file.frames[file.depth];
  frame.sp = sp;
  frame.back = arguments->back;
  frame.function = static_cast<std::uint16_t>(number);
  frame.depth = static_cast<std::uint8_t>(file.depth);
  frame.flags = 0;
  read_before(*thread, frame, function, *arguments);
  ++file.depth;
  frame.begin = ticks();
  return {&frame, function.target};
}

extern "C" __attribute__((visibility("hidden"))) std::uint64_t sonde_io_exit(Frame* frame, std::uint64_t result) {
  const std::uint64_t end = ticks();
  Thread& thread = *current;
  const Function& function = functions[frame->function];
  thread.file->depth = frame->depth;
  const std::uint8_t flags = read_after(*frame, function, result);
  if (function.rule == nullptr) return function.after(*frame, result);
  if (frame->path != 0 && !(flags & flag_failed)) [[unlikely]] keep_note(thread, *frame);
  keep(thread, *frame, end, flags);
  return function.after ? function.after(*frame, result) : result;
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
    thread.file->depth = frame.depth;
    if (functions[frame.function].rule != nullptr) keep(thread, frame, ticks(), flag_thrown);
  }
  return _URC_CONTINUE_UNWIND;
}
