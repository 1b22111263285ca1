// The functions of `octet.h` for teams.
#include "array.h"
#include "error.h"
#include "octet.h"
#include "team.h"

using octet::Array;
using octet::Core;

namespace {

constexpr int32_t kMostProcessors = octet::Mask::kMost;

// Collects one Core per number in `cores`, in the order of their first processors. Returns how many there are.
int32_t gather(const int32_t* processors, const int32_t* cores, const int32_t* caches, int32_t count,
               Array<Core>& found, Array<int32_t>& numbers) {
  int32_t made = 0;
  for (int32_t each = 0; each < count; ++each) {
    int32_t at = 0;
    while (at < made && numbers[at] != cores[each]) ++at;
    if (at == made) numbers[made++] = cores[each];
    found[at].processors.add(processors[each]);
    found[at].cache = caches[each];
  }
  return made;
}

}  // namespace

octet_team* octet_team_default(void) { return octet::default_team(); }

octet_team* octet_team_new(const int32_t* processors, const int32_t* cores, const int32_t* caches, int32_t count,
                           int32_t budget, double window_s) {
  if (count < 1 || count > kMostProcessors || budget < 0 || budget > kMostProcessors || !(window_s >= 0)) {
    octet::fail(OCTET_INVALID, "invalid team: %d processors, a budget of %d, a window of %g s", count, budget,
                window_s);
    return nullptr;
  }
  for (int32_t each = 0; each < count; ++each) {
    if (processors[each] < 0 || processors[each] >= octet::Mask::kMost) {
      octet::fail(OCTET_INVALID, "invalid processor number %d: it must be from 0 to %d", processors[each],
                  octet::Mask::kMost - 1);
      return nullptr;
    }
  }
  Array<Core> found(count);
  Array<int32_t> numbers(count);
  octet_team* team = nullptr;
  if (found.size() == count && numbers.size() == count) {
    int32_t made = gather(processors, cores, caches, count, found, numbers);
    team = octet_team::make(&found[0], made, budget == 0 ? made : budget, window_s);
  }
  if (team == nullptr) octet::fail(OCTET_SYSTEM, "out of memory for a team of %d processors", count);
  return team;
}

void octet_team_free(octet_team* team) {
  if (team != nullptr) team->destroy();
}

void octet_team_enter(octet_team* team, int32_t threads) {
  (team == nullptr ? octet::default_team() : team)->enter(threads);
}

void octet_team_leave(octet_team* team) { (team == nullptr ? octet::default_team() : team)->leave(); }

int32_t octet_team_cores(octet_team* team) { return team->budget().cores(); }

int32_t octet_team_free_cores(octet_team* team) { return team->budget().free(); }

int32_t octet_team_waiting(octet_team* team) { return team->budget().waiting(); }
