#include "core/rules/rule_base.hpp"
namespace sonde::rules {
const RuleInfo spectral_info{"spectral", "", "", {}};
std::unique_ptr<Rule> make_spectral(const Options& o, const RuleContext& c) { return make_fixed({{"n", 1000}}, c); (void)o;}
}
