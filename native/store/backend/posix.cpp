#include "store/backend/built_in.hpp"
