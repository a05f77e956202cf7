// Long because: it runs within another program's loader lock: all of its state is in this file and nowhere else.
#include "io/trace/objects.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/ticks.hpp"
#include "io/trace/confinement.hpp"
#include "io/trace/engine.hpp"
#include "io/trace/process.hpp"
#include "io/trace/system.hpp"
#include "io/trace/thread.hpp"
#include "io/trace/unseen.hpp"

namespace sonde::io {

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t word_64 = R_X86_64_64, global_data = R_X86_64_GLOB_DAT, jump_slot = R_X86_64_JUMP_SLOT,
                        relative = R_X86_64_RELATIVE;
#elif defined(__aarch64__)
constexpr std::uint32_t word_64 = R_AARCH64_ABS64, global_data = R_AARCH64_GLOB_DAT, jump_slot = R_AARCH64_JUMP_SLOT,
                        relative = R_AARCH64_RELATIVE;
#endif

/// A loaded object's dynamic section, addresses as they are in memory.
// GNU hash tables do not contain the number of symbols: the end of the last chain shows it.
std::uint32_t count_symbols(const std::uint32_t* gnu) {
  const std::uint32_t buckets = gnu[0], first = gnu[1], filter = gnu[2];
  const auto* bucket = reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const std::uint64_t*>(gnu + 4) + filter);
  const std::uint32_t* chain = bucket + buckets;
  std::uint32_t last = 0;
  for (std::uint32_t k = 0; k < buckets; ++k) last = bucket[k] > last ? bucket[k] : last;
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

struct Object {
  std::uintptr_t base = 0;
  const char* path = "";
  const char* name = "";  ///< without folders
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t *gnu_hash = nullptr, *old_hash = nullptr;
  const ElfW(Half) * versions = nullptr;   ///< the version number of each symbol; null: no versions
  const ElfW(Verneed) * needed = nullptr;  ///< the wanted versions of symbols of other objects
  const ElfW(Verdef) * defined = nullptr;  ///< versions of its own symbols
  bool symbolic = false;                   ///< the object resolves symbols to its own definitions first
  const ElfW(Rela) * plain = nullptr;
  const ElfW(Rela) * plt = nullptr;
  const ElfW(Relr) * packed = nullptr;
  std::size_t plain_count = 0, plt_count = 0, packed_count = 0;
  const ElfW(Phdr) * segments = nullptr;
  unsigned segment_count = 0;
  /// The initial values of thread-local variables, and the address of the calling thread's variables; tls_end 0: there
  /// are none.
  std::uintptr_t tls_begin = 0, tls_end = 0, tls_here = 0;

  /// Reads the whole hash table: only for objects whose symbols are needed.
  std::uint32_t symbol_count() const { return gnu_hash ? count_symbols(gnu_hash) : old_hash ? old_hash[1] : 0; }

  /// Calls `act` for each symbol with this hash in the GNU hash table: all versions of a name.
  template <typename Act> void each_of_hash(std::uint32_t hash, Act act) const {
    const std::uint32_t buckets = gnu_hash[0], first = gnu_hash[1], filter = gnu_hash[2];
    if (buckets == 0 || filter == 0) return;
    const auto* bits = reinterpret_cast<const std::uint64_t*>(gnu_hash + 4);
    const std::uint64_t some = bits[hash / 64 % filter];
    if ((some >> hash % 64 & some >> (hash >> gnu_hash[3]) % 64 & 1) == 0) return;
    const auto* bucket = reinterpret_cast<const std::uint32_t*>(bits + filter);
    const std::uint32_t* chain = bucket + buckets;
    if (bucket[hash % buckets] < first) return;
    for (std::uint32_t k = bucket[hash % buckets];; ++k) {
      if ((chain[k - first] | 1) == (hash | 1)) act(k);
      if (chain[k - first] & 1) return;
    }
  }

  template <typename Act> void each_of_name(const char* name, std::uint32_t hash, Act act) const {
    const auto one = [&](std::uint32_t k) {
      if (std::strcmp(strings + symbols[k].st_name, name) == 0) act(k);
    };
    if (gnu_hash != nullptr) return each_of_hash(hash, one);
    for (std::uint32_t k = 0, count = symbol_count(); k < count; ++k) one(k);
  }

  /// The version of a symbol that this object wants or defines; null: any.
  const char* version_of(std::uint32_t symbol) const {
    if (versions == nullptr) return nullptr;
    const unsigned number = versions[symbol] & 0x7fff;  // the highest bit: hidden from references without a version
    for (const auto* need = needed; need != nullptr; need = next(need, need->vn_next)) {
      const auto* one = next(reinterpret_cast<const ElfW(Vernaux)*>(need), need->vn_aux);
      for (unsigned k = 0; k < need->vn_cnt; ++k, one = next(one, one->vna_next))
        if ((one->vna_other & 0x7fff) == number) return strings + one->vna_name;
    }
    return own_version(number);
  }

  /// The symbol that the loader would take from this object for a name in a wanted version (null: any version); 0:
  /// none. The rules are those of glibc's do_lookup_x. dlvsym is different: in a library with versions it ignores
  /// symbols without one, which most symbols of a preloaded library are.
  std::uint32_t definition(const char* name, std::uint32_t hash, const char* version) const {
    std::uint32_t found = 0, newest = 0, several = 0;
    each_of_name(name, hash, [&](std::uint32_t k) {
      if (found != 0 || symbols[k].st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbols[k].st_info) == STB_LOCAL) return;
      const bool hidden = versions != nullptr && (versions[k] & 0x8000) != 0;
      const unsigned number = versions != nullptr ? versions[k] & 0x7fffu : 0;
      if (versions == nullptr) {
        found = k;
      } else if (version != nullptr) {
        const char* own = own_version(number);
        if (own != nullptr ? std::strcmp(own, version) == 0 : !hidden) found = k;
      } else if (number < 3) {  // a reference without a version was linked before versions existed, and gets the oldest
        found = k;
      } else if (!hidden && several++ == 0) {
        newest = k;
      }
    });
    return found != 0 ? found : several == 1 ? newest : 0;
  }

  /// The first and the last address, including gaps between segments.
  std::pair<std::uintptr_t, std::uintptr_t> extent() const {
    std::uintptr_t low = ~std::uintptr_t{0}, high = 0;
    for (unsigned k = 0; k < segment_count; ++k) {
      if (segments[k].p_type != PT_LOAD) continue;
      low = std::min(low, base + segments[k].p_vaddr);
      high = std::max(high, base + segments[k].p_vaddr + segments[k].p_memsz);
    }
    return {low, high};
  }

  bool holds(std::uintptr_t address, unsigned flags) const {
    for (unsigned k = 0; k < segment_count; ++k) {
      const auto& s = segments[k];
      const std::uintptr_t at = base + s.p_vaddr;
      if (s.p_type == PT_LOAD && (s.p_flags & flags) == flags && address >= at && address < at + s.p_memsz) return true;
    }
    return false;
  }

 private:
  /// The next entry of a list of versions: each entry contains the distance to the next, 0 in the last.
  template <typename Entry> static const Entry* next(const Entry* one, std::uint32_t bytes) {
    return bytes == 0 ? nullptr : reinterpret_cast<const Entry*>(reinterpret_cast<const char*>(one) + bytes);
  }

  /// The name of a version that this object defines; null: there is none. The object's own name does not count.
  const char* own_version(unsigned number) const {
    for (const auto* one = defined; one != nullptr; one = next(one, one->vd_next))
      if (one->vd_ndx == number && (one->vd_flags & VER_FLG_BASE) == 0)
        return strings +
               reinterpret_cast<const ElfW(Verdaux)*>(reinterpret_cast<const char*>(one) + one->vd_aux)->vda_name;
    return nullptr;
  }
};

bool read_object(const dl_phdr_info& info, Object& object) {
  object.base = info.dlpi_addr;
  object.path = info.dlpi_name ? info.dlpi_name : "";
  const char* slash = std::strrchr(object.path, '/');
  object.name = slash ? slash + 1 : object.path;
  object.segments = info.dlpi_phdr;
  object.segment_count = info.dlpi_phnum;
  const ElfW(Dyn)* dynamic = nullptr;
  for (unsigned k = 0; k < info.dlpi_phnum; ++k) {
    const auto& segment = info.dlpi_phdr[k];
    if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_TLS && info.dlpi_tls_data != nullptr) {
      object.tls_begin = info.dlpi_addr + segment.p_vaddr;
      object.tls_end = object.tls_begin + segment.p_filesz;
      object.tls_here = reinterpret_cast<std::uintptr_t>(info.dlpi_tls_data);
    }
  }
  if (dynamic == nullptr) return false;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    // The C library has already added the base address to these; musl and the vDSO have not.
    std::uintptr_t at = dynamic->d_un.d_ptr;
    if (at < info.dlpi_addr) at += info.dlpi_addr;
    switch (dynamic->d_tag) {
      case DT_SYMTAB: object.symbols = reinterpret_cast<const ElfW(Sym)*>(at); break;
      case DT_STRTAB: object.strings = reinterpret_cast<const char*>(at); break;
      case DT_GNU_HASH: object.gnu_hash = reinterpret_cast<const std::uint32_t*>(at); break;
      case DT_VERSYM: object.versions = reinterpret_cast<const ElfW(Half)*>(at); break;
      case DT_VERDEF: object.defined = reinterpret_cast<const ElfW(Verdef)*>(at); break;
      case DT_SYMBOLIC: object.symbolic = true; break;
      case DT_FLAGS: object.symbolic = object.symbolic || (dynamic->d_un.d_val & DF_SYMBOLIC) != 0; break;
      case DT_VERNEED: object.needed = reinterpret_cast<const ElfW(Verneed)*>(at); break;
      case DT_HASH: object.old_hash = reinterpret_cast<const std::uint32_t*>(at); break;
      case DT_RELA: object.plain = reinterpret_cast<const ElfW(Rela)*>(at); break;
      case DT_RELASZ: object.plain_count = dynamic->d_un.d_val / sizeof(ElfW(Rela)); break;
      case DT_JMPREL: object.plt = reinterpret_cast<const ElfW(Rela)*>(at); break;
      case DT_PLTRELSZ: object.plt_count = dynamic->d_un.d_val / sizeof(ElfW(Rela)); break;
      case DT_RELR: object.packed = reinterpret_cast<const ElfW(Relr)*>(at); break;
      case DT_RELRSZ: object.packed_count = dynamic->d_un.d_val / sizeof(ElfW(Relr)); break;
      default: break;
    }
  }
  return object.symbols != nullptr && object.strings != nullptr;
}

// ---- known objects ------------------------------------------------------------------------------

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
Counts known;

/// Objects that were searched. Addresses identify them, not paths: a file may be loaded twice, or replaced by another.
struct Seen {
  std::uintptr_t base;
  const ElfW(Sym) * symbols;
  bool here;
  std::uint32_t late,
      late_count;  ///< its slots in `late`; all of its PLT where they found no room there: late_count is `untold` then
};
Seen seen[4096];
std::uint32_t seen_count;

/// Slots that were unresolved when their object was patched, by the hash of their name: a library that is loaded later
/// may resolve them to a function. Never freed: an object that is unloaded is not searched again.
struct Late {
  std::uint32_t hash, entry;  ///< the number of its relocation in the object's `plt`
};
Late late[65536];
std::uint32_t late_used;
constexpr std::uint32_t untold = ~std::uint32_t{0};

/// address -> number + 1, also of vfork; open addressing.
constexpr std::uint32_t places = 4 * most_functions;
struct Place {
  std::uint64_t address;
  std::uint32_t number_and_one;
} place[places];
/// Hashes of names, one bit each.
struct Names {
  std::uint64_t bits[1024];
  void add(std::uint32_t hash) { bits[hash / 64 % 1024] |= std::uint64_t{1} << hash % 64; }
  bool may_hold(std::uint32_t hash) const { return bits[hash / 64 % 1024] >> hash % 64 & 1; }
};
/// The names of traced functions, because most unresolved slots are for other functions. And the new names: objects
/// that were searched before need to be searched only for these.
Names names, new_names;

std::uint32_t hashed(const char* name) {
  std::uint32_t h = 5381;
  for (; *name; ++name) h = h * 33 + static_cast<unsigned char>(*name);
  return h;
}

std::uint32_t at(std::uint64_t address) {
  return static_cast<std::uint32_t>((address * 0x9e3779b97f4a7c15u) >> 40) % places;
}

std::uint32_t number_of(std::uint64_t address) {
  for (std::uint32_t k = at(address); place[k].number_and_one != 0; k = (k + 1) % places)
    if (place[k].address == address) return place[k].number_and_one;
  return 0;
}

/// Lines, not written yet, of the file with the numbers of functions; a library may have hundreds. They are written
/// before any slot leads to those functions. If that fails, no more slots are patched.
char lines[65536];
std::size_t lines_bytes;
std::uint64_t lines_written;  // at least this many: a child begins a file of its own
bool lines_lost;

void write_lines() {
  if (lines_bytes == 0 || lines_lost) return;
  char path[4096];
  Words(path, sizeof path) << process.prefix << ".functions";
  const long fd = fits(lines_written + lines_bytes)
                      ? open_apart(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)
                      : -EFBIG;
  long done = fd;
  if (fd >= 0) {
    done = sys::write(static_cast<int>(fd), lines, lines_bytes);
    sys::close(static_cast<int>(fd));
  }
  if (done != static_cast<long>(lines_bytes)) {
    lines_lost = true;
    if (tracing) {
      note_unseen(Unseen::later_libraries);
    } else {
      note_refused(why(done < 0 ? done : -ENOSPC));
    }
  }
  lines_written += lines_bytes;
  lines_bytes = 0;
}

void keep_function(std::uint32_t number, std::uint32_t rule, const char* name, const Object& object) {
  constexpr std::size_t longest = 3 * 4096 + 512;
  if (sizeof lines - lines_bytes < longest) write_lines();
  Words words(lines + lines_bytes, longest);
  words << std::uint64_t{number} << "\t" << std::uint64_t{rule} << "\t";
  words.encoded(name) << "\t";
  words.encoded(object.path) << "\n";
  lines_bytes = static_cast<std::size_t>(words.end() - lines);
}

void put(std::uint64_t address, std::uint32_t number) {
  std::uint32_t k = at(address);
  while (place[k].number_and_one != 0) k = (k + 1) % places;
  place[k] = {address, number + 1};
}

void add(const Object& object, const char* name, std::uint64_t address, const Rule* rule, std::uint32_t rule_number,
         std::uint64_t (*after)(const Frame&, std::uint64_t), bool (*watch)(const Arguments&) = nullptr) {
  const std::uint32_t h = hashed(name);
  names.add(h);
  new_names.add(h);
  if (number_of(address) != 0) return;
  if (known.functions == cost_function) {  // the last number is not for the program
    ++known.full;
    return;
  }
  const std::uint32_t number = known.functions++;
  functions[number] = {};
  functions[number].target = reinterpret_cast<void*>(address);
  functions[number].rule = rule;
  functions[number].after = after;
  functions[number].watch = watch;
  prepare(functions[number]);
  put(address, number);
  if (rule != nullptr) keep_function(number, rule_number, name, object);
}

// ---- finding functions --------------------------------------------------------------------------

/// Functions that return twice, or whose frame another function uses: a thunk cannot call them.
constexpr const char* never_traced[] = {"setjmp",
                                        "_setjmp",
                                        "__sigsetjmp",
                                        "sigsetjmp",
                                        "vfork",
                                        "__vfork",
                                        "getcontext",
                                        "swapcontext",
                                        "makecontext",
                                        "clone",
                                        "__clone",
                                        "clone3",
                                        "mcount",
                                        "_mcount",
                                        "__fentry__",
                                        "__cyg_profile_func_enter",
                                        "__cyg_profile_func_exit",
                                        "__tls_get_addr",
                                        "_dl_runtime_resolve"};

bool is_denied(const char* name) {
  for (const char* one : never_traced)
    if (std::strcmp(one, name) == 0) return true;
  return false;
}

constexpr const char* special = "*?[";
bool is_pattern(const char* text) { return std::strpbrk(text, special) != nullptr; }

/// Whether a rule's pattern matches a library: its file name without folders.
bool matches(const char* pattern, const char* name) {
  return is_pattern(pattern) ? ::fnmatch(pattern, name, 0) == 0 : std::strcmp(pattern, name) == 0;
}

/// The address of a symbol. The resolver of an IFUNC is called by the loader, once and with the expected arguments.
std::uint64_t address_of(const Object& object, const ElfW(Sym) & symbol, const char* name) {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if (type == STT_FUNC) return object.base + symbol.st_value;
  void* handle = ::dlopen(object.path[0] ? object.path : nullptr, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  void* found = ::dlsym(handle, name);
  ::dlclose(handle);
  return reinterpret_cast<std::uint64_t>(found);
}

std::uint64_t after_dlopen(const Frame& frame, std::uint64_t result);
std::uint64_t after_dlmopen(const Frame& frame, std::uint64_t result);
std::uint64_t after_dlsym(const Frame& frame, std::uint64_t result);
std::uint64_t after_dlclose(const Frame& frame, std::uint64_t result);

struct Own {
  const char* name;
  std::uint64_t (*after)(const Frame&, std::uint64_t);
  bool (*watch)(const Arguments&);
};

template <Unseen what> bool watch_unseen(const Arguments&) {
  note_unseen(what);
  return false;
}

/// Notes functions of libraries with which a program does I/O that only the kernel sees.
void add_unseen(const Object& object) {
  constexpr struct {
    const char *library, *name;
    bool (*watch)(const Arguments&);
  } all[] = {{"liburing.so", "io_uring_queue_init", watch_unseen<Unseen::io_uring>},
             {"liburing.so", "io_uring_queue_init_params", watch_unseen<Unseen::io_uring>},
             {"liburing.so", "io_uring_queue_init_mem", watch_unseen<Unseen::io_uring>},
             {"liburing.so", "io_uring_setup", watch_unseen<Unseen::io_uring>},
             {"libaio.so", "io_submit", watch_unseen<Unseen::kernel_aio>}};
  for (const auto& one : all) {
    if (std::strncmp(object.name, one.library, std::strlen(one.library)) != 0) continue;
    object.each_of_name(one.name, hashed(one.name), [&](std::uint32_t k) {
      const auto& symbol = object.symbols[k];
      if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
        add(object, one.name, object.base + symbol.st_value, nullptr, 0, nullptr, one.watch);
    });
  }
}

void add_loader(const Object& object) {
  constexpr Own own[] = {{"dlopen", after_dlopen, nullptr},        {"dlmopen", after_dlmopen, nullptr},
                         {"dlsym", after_dlsym, nullptr},          {"dlvsym", after_dlsym, nullptr},
                         {"dlclose", after_dlclose, nullptr},      {"prctl", after_prctl, watch_prctl},
                         {"syscall", after_syscall, watch_syscall}};
  for (std::uint32_t k = 0, count = object.symbol_count(); k < count; ++k) {
    const auto& symbol = object.symbols[k];
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
    const char* name = object.strings + symbol.st_name;
    for (const auto& one : own)
      if (std::strcmp(name, one.name) == 0)
        add(object, name, object.base + symbol.st_value, nullptr, 0, one.after, one.watch);
    if (std::strcmp(name, "vfork") == 0 && sonde_io_vfork_target == nullptr) {
      sonde_io_vfork_target = reinterpret_cast<void*>(object.base + symbol.st_value);
      names.add(hashed(name));
      put(object.base + symbol.st_value, vfork_function);
    }
  }
}

/// Returns the name of a function that was found; null if there is none.
const char* find_functions(const TableHeader& table, const Object& object) {
  const auto* rules = reinterpret_cast<const Rule*>(&table + 1);
  const char* text = reinterpret_cast<const char*>(rules + table.rules);
  if (std::strncmp(object.name, "libc.so", 7) == 0 || std::strncmp(object.name, "libdl.so", 8) == 0) add_loader(object);
  add_unseen(object);
  std::uint32_t count = 0, library = ~0u;
  bool meant = false;
  const char* found = nullptr;
  for (std::uint32_t r = 0; r < table.rules; ++r) {
    const Rule& rule = rules[r];
    if (rule.library != library) {  // rules of one library are neighbours and share its name
      library = rule.library;
      meant = matches(text + library, object.name);
    }
    if (!meant) continue;
    const auto take = [&](std::uint32_t k, const char* name) {
      const auto& symbol = object.symbols[k];
      const unsigned type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC) || is_denied(name)) return;
      if (const std::uint64_t address = address_of(object, symbol, name)) {
        add(object, name, address, &rule, r, nullptr);
        found = name;
      }
    };
    const char* wanted = text + rule.name;
    const std::size_t plain = std::strcspn(wanted, special);  // the fixed beginning of the names
    if (wanted[plain] == 0 && object.gnu_hash != nullptr) {
      object.each_of_hash(hashed(wanted), [&](std::uint32_t k) {
        const char* name = object.strings + object.symbols[k].st_name;
        if (std::strcmp(wanted, name) == 0) take(k, name);
      });
      continue;
    }
    if (count == 0) count = object.symbol_count();
    for (std::uint32_t k = 0; k < count; ++k) {
      const char* name = object.strings + object.symbols[k].st_name;
      if (std::strncmp(wanted, name, plain) == 0 && matches(wanted, name)) take(k, name);
    }
  }
  return found;
}

// ---- patching -----------------------------------------------------------------------------------

/// Makes slots writable, a page at a time, that became read-only after relocation.
class Pages {
 public:
  explicit Pages(const Object& object) : object_(object) {}
  ~Pages() { close(); }
  void store(void** slot, void* value) {
    const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(slot) & ~(size_ - 1);
    if (page != open_) {
      close();
      // Only pages that the loader made read-only; code is never written.
      if (!object_.holds(reinterpret_cast<std::uintptr_t>(slot), PF_W)) return;
      if (hardened(reinterpret_cast<std::uintptr_t>(slot))) {
        if (confined && !permitted(__NR_mprotect, static_cast<long>(page), static_cast<long>(size_),
                                   PROT_READ | PROT_WRITE, 0, 0, 0))
          return;
        if (::mprotect(reinterpret_cast<void*>(page), size_, PROT_READ | PROT_WRITE) != 0) return;
        protect_ = true;
      }
      open_ = page;
    }
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    ++known.slots;
  }

 private:
  bool hardened(std::uintptr_t address) const {
    for (unsigned k = 0; k < object_.segment_count; ++k) {
      const auto& s = object_.segments[k];
      if (s.p_type != PT_GNU_RELRO) continue;
      const std::uintptr_t begin = (object_.base + s.p_vaddr) & ~(size_ - 1),
                           end = (object_.base + s.p_vaddr + s.p_memsz) & ~(size_ - 1);
      if (address >= begin && address < end) return true;
    }
    return false;
  }
  void close() {
    if (open_ != 0 && protect_) ::mprotect(reinterpret_cast<void*>(open_), size_, PROT_READ);
    open_ = 0;
    protect_ = false;
  }
  const Object& object_;
  const std::uintptr_t size_ = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::uintptr_t open_ = 0;
  bool protect_ = false;
};

/// All objects while slots are patched, in the order of loading. The loader searches the objects of the program's start
/// in this order; only the loader knows which of the others it searches for which object.
Object there[sizeof seen / sizeof *seen];
std::uint32_t there_count, begun_count;

/// The pointer that the loader finds in the libraries of a handle, which is RTLD_DEFAULT or a result of dlopen; 0: not
/// found.
std::uint64_t found_by(void* handle, const char* name, std::uint32_t hash, const char* version) {
  bool asked = false;
  std::uint64_t exact = 0, any = 0;
  for (std::uint32_t k = 0; k < there_count; ++k) {
    const std::uint32_t symbol = there[k].definition(name, hash, version);
    const std::uint64_t address = symbol != 0 ? address_of(there[k], there[k].symbols[symbol], name) : 0;
    if (address == 0 || (handle == RTLD_DEFAULT && k < begun_count)) {
      if (address != 0) return address;
      continue;
    }
    if (!asked) {
      exact = version ? reinterpret_cast<std::uint64_t>(::dlvsym(handle, name, version)) : 0;
      any = reinterpret_cast<std::uint64_t>(::dlsym(handle, name));
      asked = true;
    }
    if (address == exact || address == any) return address;
  }
  return 0;
}

/// The dlopen that loaded an object: its libraries are searched after the global ones, or before them.
struct Opened {
  void* handle;  ///< null: loaded at the program's start, or by an unknown call
  bool first;    ///< RTLD_DEEPBIND
};

/// The future target of an unresolved slot, for which the loader was not called yet. The version counts: another
/// version of the same name may have other arguments, for example glfs_fsync.
std::uint64_t resolved(const Object& object, std::uint32_t symbol, const Opened& opened) {
  const char* name = object.strings + object.symbols[symbol].st_name;
  const std::uint32_t hash = hashed(name);
  const char* version = object.version_of(symbol);
  const auto found_in = [&](void* handle) { return found_by(handle, name, hash, version); };
  std::uint64_t found = 0;
  if (const std::uint32_t own = object.symbolic ? object.definition(name, hash, version) : 0)
    found = address_of(object, object.symbols[own], name);
  if (found == 0 && opened.first) found = found_in(opened.handle);
  if (found == 0) found = found_in(RTLD_DEFAULT);
  if (found == 0 && opened.handle != nullptr) found = found_in(opened.handle);
  if (found != 0 || object.path[0] == 0) return found;
  if (void* handle = ::dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD)) {
    found = found_in(handle);
    ::dlclose(handle);
  }
  return found;
}

/// Points slots of traced functions to their thunks. In an object that was patched before, only slots that the loader
/// resolves late, and only those with new names, can lead to libraries that were loaded since.
class Patching {
 public:
  Patching(const Object& object, Seen& told, const Opened& opened)
      : object_(object), told_(told), opened_(opened), pages_(object) {}

  void first() {
    told_.late = late_used;
    told_.late_count = 0;
    for (std::size_t k = 0; k < object_.plt_count; ++k) {
      const std::uint32_t symbol = unresolved(object_.plt[k]);
      if (symbol == 0) {
        resolved_one(object_.plt[k]);
        continue;
      }
      const std::uint32_t hash = hashed(object_.strings + object_.symbols[symbol].st_name);
      if (names.may_hold(hash) && late_one(object_.plt[k], symbol)) continue;
      if (late_used == sizeof late / sizeof *late) told_.late_count = untold;
      if (told_.late_count == untold) continue;
      late[late_used++] = {hash, static_cast<std::uint32_t>(k)};
      ++told_.late_count;
    }
    for (std::size_t k = 0; k < object_.plain_count; ++k) resolved_one(object_.plain[k]);
    packed();
  }

  void again() {
    if (told_.late_count == untold) {
      for (std::size_t k = 0; k < object_.plt_count; ++k) again(object_.plt[k]);
      return;
    }
    for (std::uint32_t k = 0; k < told_.late_count; ++k) {
      const Late& one = late[told_.late + k];
      if (new_names.may_hold(one.hash)) again(object_.plt[one.entry]);
    }
  }

 private:
  void** slot(const ElfW(Rela) & entry) const { return reinterpret_cast<void**>(object_.base + entry.r_offset); }

  void by_value(void** slot) {
    void* const before = *slot;
    const std::uint32_t n = number_of(reinterpret_cast<std::uint64_t>(before));
    if (n == 0) return;
    pages_.store(slot, thunk(n - 1));
    // The initial values for new threads; the variables of this thread already exist.
    const auto at = reinterpret_cast<std::uintptr_t>(slot);
    if (at < object_.tls_begin || at + sizeof *slot > object_.tls_end) return;
    void** const copy = reinterpret_cast<void**>(object_.tls_here + (at - object_.tls_begin));
    if (*copy == before) *copy = thunk(n - 1);
  }

  void resolved_one(const ElfW(Rela) & entry) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info));
    if (type == word_64 || type == global_data || type == jump_slot || type == relative) by_value(slot(entry));
  }

  /// The symbol of a slot that still points back into this object's own PLT; else 0.
  std::uint32_t unresolved(const ElfW(Rela) & entry) const {
    const auto symbol = static_cast<std::uint32_t>(ELF64_R_SYM(entry.r_info));
    const auto value = reinterpret_cast<std::uint64_t>(*slot(entry));
    if (static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info)) != jump_slot || symbol == 0 ||
        !object_.holds(value, PF_X))
      return 0;
    const auto& told = object_.symbols[symbol];
    const bool own = told.st_shndx != SHN_UNDEF && object_.base + told.st_value == value;
    return own || number_of(value) != 0 ? 0 : symbol;
  }

  /// Whether the slot leads to a traced function now.
  bool late_one(const ElfW(Rela) & entry, std::uint32_t symbol) {
    const std::uint64_t target = resolved(object_, symbol, opened_);
    const std::uint32_t n = target ? number_of(target) : 0;
    if (n != 0) pages_.store(slot(entry), thunk(n - 1));
    return n != 0;
  }

  void again(const ElfW(Rela) & entry) {
    const std::uint32_t symbol = unresolved(entry);
    if (symbol == 0) {
      resolved_one(entry);
    } else if (new_names.may_hold(hashed(object_.strings + object_.symbols[symbol].st_name))) {
      late_one(entry, symbol);
    }
  }

  void packed();

  const Object& object_;
  Seen& told_;
  const Opened opened_;
  Pages pages_;
};

/// Packed relative relocations: an address, then bit maps of the 63 words that follow each.
void Patching::packed() {
  std::uintptr_t where = 0;
  for (std::size_t k = 0; k < object_.packed_count; ++k) {
    const ElfW(Relr) entry = object_.packed[k];
    if ((entry & 1) == 0) {
      where = object_.base + entry;
      by_value(reinterpret_cast<void**>(where));
      where += sizeof(void*);
    } else {
      for (unsigned bit = 1; bit < 64; ++bit)
        if (entry >> bit & 1) by_value(reinterpret_cast<void**>(where + (bit - 1) * sizeof(void*)));
      where += 63 * sizeof(void*);
    }
  }
}

// ---- walking ------------------------------------------------------------------------------------

const TableHeader* the_table;
const void* the_own;

bool is_ours(const Object& object) { return object.holds(reinterpret_cast<std::uintptr_t>(the_own), 0); }
bool is_loader(const Object& object) {
  return std::strncmp(object.name, "ld-linux", 8) == 0 || std::strncmp(object.name, "ld-musl", 7) == 0;
}

bool is_mpi(const Object& object) { return std::strncmp(object.name, "libmpi", 6) == 0; }
bool is_hdf5(const Object& object) { return std::strncmp(object.name, "libhdf5", 7) == 0; }

/// Only the program's MPI library knows the sizes of its datatypes.
void find_mpi(const Object& object) {
  if (!is_mpi(object) || mpi.type_size != nullptr) return;
  void* handle = ::dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
  };
  find(mpi.type_f2c, "PMPI_Type_f2c");
  find(mpi.type_size_x, "PMPI_Type_size_x");
  find(mpi.type_size, "PMPI_Type_size");
  find(mpi.status_f2c, "PMPI_Status_f2c");
  find(mpi.get_count, "PMPI_Get_count");
  find(mpi.get_elements_x, "PMPI_Get_elements_x");
  find(mpi.no_status, "MPI_F_STATUS_IGNORE");
  mpi.byte = reinterpret_cast<std::uint64_t>(::dlsym(handle, "ompi_mpi_byte"));
  ::dlclose(handle);
}

/// Notes the n-th library that looks like HDF5.
void find_hdf5(const Object& object, unsigned& n) {
  if (!is_hdf5(object) || n == most_hdf5) return;
  void* handle = ::dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    return function != nullptr && object.holds(reinterpret_cast<std::uint64_t>(function), PF_X);
  };
  Hdf5 found{};
  found.low = ~std::uint64_t{0};
  if (find(found.kind, "H5Iget_type") && find(found.type_bytes, "H5Tget_size") &&
      find(found.points, "H5Sget_select_npoints") && find(found.dataset_space, "H5Dget_space") &&
      find(found.attribute_space, "H5Aget_space") && find(found.close_space, "H5Sclose") &&
      find(found.type_class, "H5Tget_class") && find(found.has_class, "H5Tdetect_class") &&
      find(found.is_variable_text, "H5Tis_variable_str") && find(found.members, "H5Tget_nmembers") &&
      find(found.member, "H5Tget_member_type") && find(found.element, "H5Tget_super") &&
      find(found.close_type, "H5Tclose")) {
    for (unsigned k = 0; k < object.segment_count; ++k) {
      const auto& s = object.segments[k];
      if (s.p_type != PT_LOAD || (s.p_flags & PF_X) == 0) continue;
      found.low = std::min<std::uint64_t>(found.low, object.base + s.p_vaddr);
      found.high = std::max<std::uint64_t>(found.high, object.base + s.p_vaddr + s.p_memsz);
    }
    hdf5[n++] = found;
  }
  ::dlclose(handle);
}

/// The numbers of loaded and unloaded objects so far: if they are unchanged, no object needs to be checked.
struct Turnover {
  unsigned long long loaded, unloaded;
};
Turnover turnover() {
  Turnover now{};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* what) {
        *static_cast<Turnover*>(what) = {info->dlpi_adds, info->dlpi_subs};
        return 1;
      },
      &now);
  return now;
}
Turnover last;

template <typename Do> void each_object(Do act) {
  const auto step = [](dl_phdr_info* info, std::size_t, void* what) {
    Object object;
    if (read_object(*info, object)) (*static_cast<Do*>(what))(object);
    return 0;
  };
  ::dl_iterate_phdr(step, static_cast<void*>(&act));
}

/// While `act` runs, no object is loaded or unloaded.
template <typename Do> void held(Do act) {
  const auto once = [](dl_phdr_info*, std::size_t, void* what) {
    (*static_cast<Do*>(what))();
    return 1;
  };
  ::dl_iterate_phdr(once, &act);
}

bool is_kernels(const Object& object) { return std::strncmp(object.name, "linux-vdso", 10) == 0; }

/// The position of this object in `seen`; the size of `seen` if it is not there.
std::uint32_t place_of(const Object& object) {
  std::uint32_t k = 0;
  while (k < seen_count && !(seen[k].base == object.base && seen[k].symbols == object.symbols)) ++k;
  return k;
}

/// The work to do while the loader's lock is held.
struct Locked {
  void (*act)(void* what);
  void* what;
};
constinit thread_local const Locked* locked __attribute__((tls_model("initial-exec")));

}  // namespace

extern "C" {
static void sonde_io_nothing() {}
/// Called by dlsym, which holds the loader's lock at that time.
__attribute__((used)) static void (*sonde_io_resolve())() {
  if (const Locked* const todo = locked) {
    locked = nullptr;
    todo->act(todo->what);
  }
  return sonde_io_nothing;
}
__attribute__((visibility("default"))) void sonde_io_with_loader() __attribute__((ifunc("sonde_io_resolve")));
}

namespace {

/// Runs `act` with the loader's lock held. dlopen takes this lock first, then that of the list of objects, which
/// dl_iterate_phdr also takes. A call of dlsym inside dl_iterate_phdr would take them in the opposite order, and wait
/// forever for a thread that loads a library. No function of the C library just takes the loader's lock, but it is held
/// while an indirect function is resolved.
template <typename Do> void with_loader(Do act) {
  const Locked todo{[](void* what) { (*static_cast<Do*>(what))(); }, &act};
  locked = &todo;
  std::ignore = ::dlsym(RTLD_DEFAULT, "sonde_io_with_loader");
  if (locked == nullptr) return;
  locked = nullptr;  // another object has a function of this name before ours
  act();
}

void look(const Opened& opened);

void look_again(const Opened& opened) {
  with_loader([&] { look(opened); });
}

/// Called with the loader's lock held, perhaps by a thread in a library's constructor: `lock` is taken after it.
void look(const Opened& opened) {
  ::pthread_mutex_lock(&lock);
  const Turnover now = turnover();
  if (now.loaded == last.loaded || lines_lost) {
    ::pthread_mutex_unlock(&lock);
    return;
  }
  last.loaded = now.loaded;
  const std::uint32_t seen_before = seen_count;
  new_names = {};
  bool mpi = false, any_hdf5 = false, reachable = false;
  each_object([&](const Object& object) {
    if (place_of(object) != seen_count || seen_count == sizeof seen / sizeof *seen) return;
    seen[seen_count++] = {object.base, object.symbols, true, 0, 0};
    ++known.objects;
    mpi = mpi || is_mpi(object);
    any_hdf5 = any_hdf5 || is_hdf5(object);
    // The loader calls its own functions with its lock held.
    if (is_ours(object) || is_loader(object)) return;
    // Slots of older objects never lead to objects loaded with RTLD_LOCAL, as most plug-ins are.
    const char* const one = find_functions(*the_table, object);
    reachable = reachable || (one != nullptr && ::dlsym(RTLD_DEFAULT, one) != nullptr);
  });
  write_lines();
  if (lines_lost) {
    ::pthread_mutex_unlock(&lock);
    return;
  }
  if (mpi) each_object(find_mpi);
  if (any_hdf5) {
    unsigned n = 0;
    each_object([&](const Object& object) { find_hdf5(object, n); });
  }
  if (seen_count != seen_before) {
    held([&] {
      there_count = 0;
      each_object([](const Object& object) {  // no slot may lead into the kernel's object
        if (!is_kernels(object) && there_count < sizeof there / sizeof *there) there[there_count++] = object;
      });
      if (begun_count == 0) begun_count = there_count;
      for (const Object& object : std::span(there, there_count)) {
        if (is_ours(object) || is_loader(object)) continue;
        const std::uint32_t k = place_of(object);
        if (k == seen_count) continue;
        Patching patching(object, seen[k], k >= seen_before ? opened : Opened{});
        if (k >= seen_before) {
          patching.first();
        } else if (reachable) {
          patching.again();
        }
      }
    });
  }
  ::pthread_mutex_unlock(&lock);
}

struct Quiet {
  Thread& thread = *current;
  std::uint64_t begin = static_cast<std::uint64_t>(ticks());
  Busy busy{thread};
  ~Quiet() { note_own(thread, begin); }
};

/// For the loader's functions, `size` and `offset` hold the second and third argument, see read_before().
std::uint64_t after_opening(std::uint64_t result, std::uint64_t mode) {
  if (result == 0) return result;
  const Quiet quiet;
  look_again({reinterpret_cast<void*>(result), (mode & RTLD_DEEPBIND) != 0});
  return result;
}

std::uint64_t after_dlopen(const Frame& frame, std::uint64_t result) { return after_opening(result, frame.size); }

/// Libraries in a separate namespace have a separate C library, whose functions are not traced.
std::uint64_t after_dlmopen(const Frame& frame, std::uint64_t result) {
  if (result != 0) {
    const Quiet quiet;
    Lmid_t which = LM_ID_BASE;
    if (::dlinfo(reinterpret_cast<void*>(result), RTLD_DI_LMID, &which) == 0 && which != LM_ID_BASE) {
      note_unseen(Unseen::own_namespace);
      return result;
    }
  }
  return after_opening(result, frame.offset);
}

std::uint64_t after_dlsym(const Frame&, std::uint64_t result) { return instead(result); }

std::uint64_t after_dlclose(const Frame&, std::uint64_t result) {
  const Quiet quiet;
  forget_objects();
  return result;
}

}  // namespace

bool patch_objects(const TableHeader& table, const void* own) {
  the_table = &table;
  the_own = own;
  look_again({});
  return !lines_lost;
}

void forget_objects() {
  ::pthread_mutex_lock(&lock);
  const Turnover now = turnover();
  if (now.unloaded == last.unloaded) {
    ::pthread_mutex_unlock(&lock);
    return;
  }
  last.unloaded = now.unloaded;
  for (std::uint32_t k = 0; k < seen_count; ++k) seen[k].here = false;
  each_object([](const Object& object) {
    if (const std::uint32_t k = place_of(object); k != seen_count) seen[k].here = true;
  });
  std::uint32_t kept = 0;
  bool gone = false;
  for (std::uint32_t k = 0; k < seen_count; ++k) {
    if (seen[k].here) {
      seen[kept++] = seen[k];
    } else {
      gone = true;
    }
  }
  seen_count = kept;
  if (gone) {
    // Numbers stay in use, because records contain them; addresses of unloaded objects are forgotten.
    for (std::uint32_t k = 0; k < places; ++k) place[k] = {};
    bool held[most_functions] = {};
    each_object([&](const Object& object) {
      const auto [low, high] = object.extent();
      for (std::uint32_t number = 0; number < known.functions; ++number) {
        const auto address = reinterpret_cast<std::uint64_t>(functions[number].target);
        if (!held[number] && address >= low && address < high) held[number] = object.holds(address, PF_X);
      }
    });
    for (std::uint32_t number = 0; number < known.functions; ++number) {
      if (!held[number]) continue;
      put(reinterpret_cast<std::uint64_t>(functions[number].target), number);
    }
    if (sonde_io_vfork_target != nullptr) put(reinterpret_cast<std::uint64_t>(sonde_io_vfork_target), vfork_function);
  }
  ::pthread_mutex_unlock(&lock);
}

std::uint64_t instead(std::uint64_t address) {
  ::pthread_mutex_lock(&lock);
  const std::uint32_t n = address != 0 && !lines_lost ? number_of(address) : 0;
  ::pthread_mutex_unlock(&lock);
  return n == 0 ? address : reinterpret_cast<std::uint64_t>(thunk(n - 1));
}

const void* return_in(const void* address) {
  const void* found = nullptr;
  each_object([&](const Object& object) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (unsigned k = 0; found == nullptr && k < object.segment_count; ++k) {
      const auto& s = object.segments[k];
      const std::uintptr_t begin = object.base + s.p_vaddr, end = begin + s.p_filesz;
      if (s.p_type == PT_LOAD && (s.p_flags & PF_X) && at >= begin && at < end)
        found = std::memchr(reinterpret_cast<const void*>(begin), 0xc3, end - begin);
    }
  });
  return found;
}

const Counts& counts() { return known; }

}  // namespace sonde::io
