#include "net/http_exchange.h"

#include <new>

#include "net/http_connection.h"
#include "net/reading.h"

namespace octet::plane {

void HttpExchange::guard(const std::function<void()>& act) {
  try {
    act();
  } catch (const Problem& problem) {
    refuse(problem);
  } catch (const std::bad_alloc&) {
    refuse(no_memory());
  }
}

void HttpExchange::refuse(const Problem& problem) { connection_.respond(problem); }

}  // namespace octet::plane
