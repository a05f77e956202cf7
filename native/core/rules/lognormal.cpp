#include "core/rules/rule_base.hpp"
namespace sonde::rules {
const RuleInfo lognormal_info{"lognormal", "", "", {}};
std::unique_ptr<Rule> make_lognormal(const Options& o, const RuleContext& c) { return make_fixed({{"n", 1000}}, c); (void)o;}
}
