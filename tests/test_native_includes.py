"""Each C++ file includes the standard headers of the names that it uses.

Releases differ in the headers that a standard header includes: GCC 13 removed <cstdint> from several, and files that
had relied on that no longer compiled. The target `sonde-headers` (native/cmake/SondeHeaders.cmake) checks that each
header compiles alone with the present compiler; this file checks what another compiler needs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Header: its names, after [headers] of the C++20 standard. A name of several headers is listed with each of them.
PROVIDED = {
    "algorithm": """adjacent_find all_of any_of binary_search clamp copy copy_if copy_n count count_if equal equal_range
        fill fill_n find find_if find_if_not for_each generate includes is_sorted lexicographical_compare lower_bound
        make_heap max max_element merge min min_element minmax minmax_element mismatch move nth_element none_of
        partial_sort partition partition_point pop_heap push_heap remove remove_if replace replace_if reverse
        reverse_copy rotate sample search set_difference set_intersection set_union shuffle sort stable_partition
        stable_sort transform unique upper_bound""",
    "array": "array get to_array tuple_element_t tuple_size_v",
    "atomic": """atomic atomic_flag atomic_ref atomic_signal_fence atomic_thread_fence memory_order memory_order_acq_rel
        memory_order_acquire memory_order_relaxed memory_order_release memory_order_seq_cst""",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount rotl rotr",
    "bitset": "bitset",
    "cctype": "isalnum isalpha isdigit islower isprint ispunct isspace isupper isxdigit tolower toupper",
    "charconv": "chars_format errc from_chars from_chars_result to_chars to_chars_result",
    "chrono": "chrono",
    "cmath": """abs acos asin asinh atan atan2 cbrt ceil copysign cos erf erfc exp exp2 expm1 fabs floor fma fmax fmin
        fmod frexp hypot isfinite isinf isnan ldexp lgamma llround log log10 log1p log2 lround modf nan nearbyint
        nextafter pow remainder rint round signbit sin sinh sqrt tan tanh tgamma trunc""",
    "complex": "abs arg complex conj norm polar",
    "concepts": "convertible_to derived_from floating_point integral invocable regular same_as totally_ordered",
    "condition_variable": "condition_variable condition_variable_any cv_status",
    "csignal": "raise sig_atomic_t signal",
    "cstddef": "byte max_align_t nullptr_t to_integer",
    "cstdint": """int16_t int32_t int64_t int8_t intmax_t intptr_t uint16_t uint32_t uint64_t uint8_t uintmax_t
        uintptr_t""",
    "cstdio": """FILE fclose feof ferror fflush fgets fopen fprintf fputc fputs fread fscanf fseek ftell fwrite getc
        perror printf putchar puts remove rename setvbuf snprintf sscanf vfprintf vsnprintf""",
    "cstdlib": """_Exit abort abs aligned_alloc atexit atof atoi atol calloc div exit free getenv llabs malloc qsort
        quick_exit realloc strtod strtof strtol strtold strtoll strtoul strtoull system""",
    "cstring": """memchr memcmp memcpy memmove memset strcat strchr strcmp strcpy strcspn strerror strlen strncmp
        strncpy strpbrk strrchr strspn strstr strtok""",
    "ctime": "clock clock_t ctime difftime gmtime localtime mktime strftime time time_t timespec timespec_get tm",
    "deque": "deque",
    "exception": """current_exception exception exception_ptr make_exception_ptr rethrow_exception set_terminate
        terminate uncaught_exceptions""",
    "filesystem": "error_code filesystem",
    "fstream": "filebuf fstream ifstream ios istream ofstream ostream streamoff streampos streamsize",
    "functional": """bind equal_to function greater greater_equal hash identity invoke less less_equal minus multiplies
        not_fn plus ref reference_wrapper""",
    "future": "async future future_error future_status launch packaged_task promise shared_future",
    "initializer_list": "initializer_list",
    "iomanip": "get_time put_time quoted setfill setprecision setw",
    "ios": "boolalpha dec fixed hex ios ios_base oct scientific streamoff streampos streamsize",
    "iostream": "cerr cin clog cout endl flush hex ios istream ostream streamsize ws",
    "istream": "ios istream streamsize ws",
    "iterator": """advance back_inserter distance front_inserter inserter istream_iterator istreambuf_iterator
        make_move_iterator make_reverse_iterator next ostream_iterator prev reverse_iterator""",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": """addressof align allocator construct_at destroy_at enable_shared_from_this hash make_shared
        make_shared_for_overwrite make_unique make_unique_for_overwrite shared_ptr static_pointer_cast to_address
        unique_ptr weak_ptr""",
    "mutex": """adopt_lock call_once defer_lock lock lock_guard mutex once_flag recursive_mutex scoped_lock timed_mutex
        try_to_lock unique_lock""",
    "new": "align_val_t bad_alloc launder nothrow nothrow_t",
    "numbers": "numbers",
    "numeric": "accumulate exclusive_scan gcd inclusive_scan inner_product iota lcm midpoint partial_sum reduce",
    "optional": "make_optional nullopt nullopt_t optional",
    "ostream": "endl flush ios ostream",
    "queue": "priority_queue queue",
    "random": """bernoulli_distribution discrete_distribution exponential_distribution lognormal_distribution mt19937
        mt19937_64 normal_distribution random_device uniform_int_distribution uniform_real_distribution""",
    "regex": "cmatch regex regex_error regex_match regex_replace regex_search smatch sregex_iterator",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex shared_timed_mutex",
    "span": "as_bytes as_writable_bytes dynamic_extent span",
    "sstream": "ios istream istringstream ostream ostringstream stringbuf stringstream",
    "stdexcept": """domain_error invalid_argument length_error logic_error out_of_range overflow_error range_error
        runtime_error""",
    "stop_token": "stop_callback stop_source stop_token",
    "string": """basic_string char_traits getline hash stod stof stoi stol stold stoll stoul stoull string to_string
        u8string wstring""",
    "string_view": "basic_string_view hash string_view",
    "system_error": """errc error_category error_code error_condition generic_category make_error_code system_category
        system_error""",
    "thread": "hash jthread this_thread thread",
    "tuple": """apply forward_as_tuple get ignore make_from_tuple make_tuple tie tuple tuple_cat tuple_element_t
        tuple_size_v""",
    "type_traits": """common_type_t conditional_t decay_t enable_if_t false_type integral_constant
        invoke_result_t is_arithmetic_v is_base_of_v is_class_v is_const_v is_constant_evaluated is_convertible_v
        is_copy_constructible_v is_default_constructible_v is_enum_v is_floating_point_v is_integral_v
        is_invocable_r_v is_invocable_v is_nothrow_move_constructible_v is_pointer_v is_reference_v is_same is_same_v
        is_signed_v is_standard_layout_v is_trivially_copyable_v is_unsigned_v is_void_v make_signed_t make_unsigned_t
        remove_const_t remove_cv_t remove_cvref_t remove_pointer_t remove_reference_t true_type type_identity_t
        underlying_type_t void_t""",
    "typeinfo": "bad_cast type_info",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_multiset unordered_set",
    "utility": """as_const cmp_equal cmp_greater cmp_greater_equal cmp_less cmp_less_equal declval exchange forward get
        in_place in_place_index in_place_type in_range index_sequence index_sequence_for integer_sequence
        make_index_sequence make_pair move pair piecewise_construct swap tuple_element_t tuple_size_v""",
    "variant": """get get_if hash holds_alternative monostate variant variant_alternative_t variant_npos variant_size_v
        visit""",
    "vector": "vector",
}
# [iterator.range], [container.erasure]: with every container.
CONTAINERS = ("array", "deque", "list", "map", "regex", "set", "span", "string", "string_view")
CONTAINERS += ("unordered_map", "unordered_set", "vector")
BY_CONTAINERS = ("begin", "cbegin", "cend", "data", "empty", "end", "erase", "erase_if", "initializer_list")
BY_CONTAINERS += ("rbegin", "rend", "size", "ssize")
# With every header, in every implementation: each includes their definition.
BY_ALL = ("ptrdiff_t", "size_t")
# Names without `std::`: a pattern, and the header.
GLOBAL = {
    r"u?int(8|16|32|64|max|ptr)_t|u?int\d+_c|U?INT(8|16|32|64)_(MIN|MAX|C)|(SIZE|U?INTPTR|U?INTMAX)_MAX": "cstdint",
    r"U?(CHAR|SHRT|INT|LONG|LLONG)_(MIN|MAX)|CHAR_BIT": "climits",
    r"(DBL|FLT|LDBL)_(MIN|MAX|EPSILON|DIG)": "cfloat",
    r"PRI[diuxX](8|16|32|64|MAX|PTR)": "cinttypes",
    r"SIG(ABRT|ALRM|BUS|CHLD|CONT|FPE|HUP|ILL|INT|KILL|PIPE|PROF|QUIT|SEGV|STOP|SYS|TERM|USR[12]|WINCH)": "csignal",
    "errno": "cerrno",
    "assert": "cassert",
    "offsetof": "cstddef",
    "EXIT_(SUCCESS|FAILURE)": "cstdlib",
    "M_PI|HUGE_VAL|INFINITY|NAN": "cmath",
    "stdin|stdout|stderr": "cstdio",
    "va_(list|start|end|arg|copy)": "cstdarg",
}
# The preferred header for a name that several headers have.
PREFERRED = {"abs": "cmath", "errc": "system_error", "error_code": "system_error", "get": "tuple", "hash": "functional",
    "ios": "ios", "istream": "istream", "move": "utility", "ostream": "ostream", "ptrdiff_t": "cstddef",
    "remove": "algorithm", "size_t": "cstddef", "streamsize": "ios", "tuple_size_v": "tuple"}  # fmt: skip
COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'""",
    re.S,
)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', re.M)


def headers_by_name() -> dict[str, set[str]]:
    """The headers of each name of namespace std."""
    names: dict[str, set[str]] = {}
    for header, provided in PROVIDED.items():
        for name in provided.split():
            names.setdefault(name, set()).add(header)
    return (
        names
        | {name: {*names.get(name, {"iterator"}), *CONTAINERS} for name in BY_CONTAINERS}
        | {name: {*PROVIDED, *GLOBAL.values()} for name in BY_ALL}
    )


HEADERS = headers_by_name()


def includes(text: str) -> set[str]:
    """The standard headers that a file includes, those of C under their C++ names."""
    found = {match[1] for match in INCLUDE.finditer(text) if match[1]}
    return found | {f"c{name.removesuffix('.h')}" for name in found if name.endswith(".h")}


def lacking(path: Path, text: str) -> dict[str, str]:
    """Names that a file uses without including their header, each with the header to include; "" for an unknown name.

    The includes of the header of the same name (`x.hpp` for `x.cpp`) count: the two change together.
    """
    have = includes(text)
    own = path.with_suffix(".hpp")
    if path.suffix == ".cpp" and own.exists() and re.search(rf'["/]{re.escape(own.name)}"', text):
        have |= includes(own.read_text())
    code = COMMENT_OR_TEXT.sub(" ", INCLUDE.sub("", text))
    found: dict[str, str] = {}
    for name in re.findall(r"(?<![\w:])(?:::)?std::(?:ranges::)?(\w+)", code):
        providers = HEADERS.get(name, set())
        if not providers:
            found[f"std::{name}"] = ""
        elif not providers & have:
            found[f"std::{name}"] = PREFERRED.get(name) or min(providers)
    for pattern, header in GLOBAL.items():
        if header not in have and (match := re.search(rf"(?<![\w.>:])(?:::)?(?:{pattern})\b", code)):
            found[match[0].removeprefix("::")] = header
    return found


def sources() -> list[Path]:
    folders = (ROOT / "native", ROOT / "tests" / "native", ROOT / "examples")
    return sorted(path for folder in folders for path in folder.rglob("*.[ch]pp"))


def test_each_file_includes_the_standard_headers_that_it_uses() -> None:
    files = sources()
    assert len(files) > 500
    wrong = [
        f"{path.relative_to(ROOT)}: {name} needs #include <{header}>"
        if header
        else f"{path.relative_to(ROOT)}: {name}: name its header in PROVIDED"
        for path in files
        for name, header in lacking(path, path.read_text()).items()
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("std::uint64_t n;", {"std::uint64_t": "cstdint"}),
        ("#include <string>\nstd::uint64_t n;", {"std::uint64_t": "cstdint"}),
        ("#include <cstdint>\nstd::uint64_t n;", {}),
        ("#include <stdint.h>\nuint64_t n;", {}),
        ("uint64_t n;", {"uint64_t": "cstdint"}),
        ("// std::uint64_t\n/* std::vector */ auto s = \"std::string\" R\"(std::map)\";", {}),
        ("#include <vector>\nstd::size_t n = std::size(v);", {}),
        ("#include <map>\nstd::ranges::sort(v);", {"std::sort": "algorithm"}),
        ("#include <iostream>\nstd::cout << errno << std::endl;", {"errno": "cerrno"}),
        ("#include <memory>\nstd::hash<T> h; auto p = std::move(q);", {"std::move": "utility"}),
        ("a.errno_text(x->stdout); my::uint64_t x; n = 1'000'000; std::vector v{'\"'};", {"std::vector": "vector"}),
        ("std::no_such_name x;", {"std::no_such_name": ""}),
    ],
)  # fmt: skip
def test_a_missing_include_is_found(tmp_path: Path, text: str, wrong: dict[str, str]) -> None:
    assert lacking(tmp_path / "a.hpp", text) == wrong


def test_a_source_has_what_the_header_of_its_name_includes(tmp_path: Path) -> None:
    (tmp_path / "a.hpp").write_text("#include <string>\n")
    (tmp_path / "b.hpp").write_text("#include <string>\n")
    text = '#include "room/a.hpp"\n#include "room/b.hpp"\nstd::string s;'
    assert lacking(tmp_path / "a.cpp", text) == {}
    assert lacking(tmp_path / "c.cpp", text) == {"std::string": "string"}
