// Prints the list of system calls of a process with the number of its argument, an instruction a line; of one that uses
// cards, if there is another argument.
#include <cstdio>
#include <cstdlib>

#include "control/lockdown.h"

int main(int, char** arguments) {
  for (const sock_filter& each : octet::plane::filter_of(std::atoi(arguments[1]), false, arguments[2] != nullptr)) {
    std::printf("%u %u %u %u\n", each.code, each.k, each.jt, each.jf);
  }
}
