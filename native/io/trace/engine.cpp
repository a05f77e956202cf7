#include "io/trace/engine.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include "io/trace/thread.hpp"
#include "io/trace/values.hpp"

namespace sonde::io {

Function functions[most_functions];
bool tracing;

namespace {

/// Frames above the stack pointer of a new call belong to calls that longjmp left behind.
void drop_stale(ThreadFile& file, std::uint64_t sp) {
  while (file.depth != 0 && file.frames[file.depth - 1].sp <= sp - 8) --file.depth;
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

void keep(Thread& thread, const Frame& frame, std::uint64_t end, std::uint8_t flags) {
  Record* record = reserve(thread);
  if (record == nullptr) return;
  *record = Record{frame.begin, end, frame.size, frame.offset, folded(frame.handle), frame.function, frame.depth, flags};
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
  if (own_stack) drop_stale(file, sp);
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

/// Not linked: libgcc_s would come into every program, where only those that unwind have it.
static _Unwind_Word frame_address(_Unwind_Context* context) {
  static _Unwind_Word (*get_cfa)(_Unwind_Context*);
  if (get_cfa == nullptr) {
    void* library = ::dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    get_cfa = reinterpret_cast<_Unwind_Word (*)(_Unwind_Context*)>(::dlsym(library, "_Unwind_GetCFA"));
    ::dlclose(library);
  }
  return get_cfa ? get_cfa(context) : 0;
}

/// Unwinding passes a thunk: the call has ended by an exception, or its thread is cancelled.
extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code sonde_io_personality(int, _Unwind_Action actions, std::uint64_t,
                                                                                          _Unwind_Exception*, _Unwind_Context* context) {
  const _Unwind_Word at = (actions & _UA_CLEANUP_PHASE) && current != nullptr ? frame_address(context) : 0;
  if (at != 0) {
    Frame& frame = *reinterpret_cast<Frame*>(at);
    Thread& thread = *current;
    thread.file->depth = frame.depth;
    if (functions[frame.function].rule != nullptr) keep(thread, frame, ticks(), flag_thrown);
  }
  return _URC_CONTINUE_UNWIND;
}
