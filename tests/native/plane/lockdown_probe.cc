// Prints the system call filter of the process with the id given as argument, one instruction per line. A second
// argument selects the filter for GPUs.
#include <cstdio>
#include <cstdlib>

#include "control/system_call_filter.h"

int main(int, char** arguments) {
  for (const sock_filter& each : octet::plane::filter_of(std::atoi(arguments[1]), false, arguments[2] != nullptr)) {
    std::printf("%u %u %u %u\n", each.code, each.k, each.jt, each.jf);
  }
}
