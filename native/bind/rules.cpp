#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_rules(nb::module_&) {}
