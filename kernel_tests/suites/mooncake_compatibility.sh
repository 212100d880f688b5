# shellcheck shell=bash
# Run by integration/mooncake/e2e/run, which sees to what it needs; without a number, so that it is
# no part of a run of all suites.
# shellcheck source=integration/mooncake/e2e/suite.bash
source integration/mooncake/e2e/suite.bash
# shellcheck disable=SC2034
limit=600
prepare() { build_library; }
suite() { run_on_every_transport compatibility; }
