#include "net/compressing.h"

#include <exception>
#include <utility>

#include "net/gzip.h"
#include "net/reactor.h"

namespace octet::plane {

void compress_in_background(Plane& plane, int64_t exchange, std::weak_ptr<bool> is_here, std::string bytes,
                            const std::string& coding, Compressed then) {
  struct Work {
    std::string bytes, coding;
    bool is_compressed = false;
  };
  auto work = std::make_shared<Work>(Work{std::move(bytes), coding});
  auto compress = [work] {
    try {
      work->bytes = compress_bytes(work->bytes, work->coding);
      work->is_compressed = true;
      // Without zlib or memory, the response is sent uncompressed, which every client accepts.
    } catch (const std::exception&) {
    }
  };
  plane.background.post(compress, [&plane, exchange, is_here = std::move(is_here), work, then = std::move(then)] {
    plane.with(exchange, [&](Peer&) {
      if (!is_here.expired()) then(std::move(work->bytes), work->is_compressed);
    });
  });
}

std::string join_pieces(const std::vector<std::string_view>& pieces) {
  std::string whole;
  for (std::string_view piece : pieces) whole.append(piece);
  return whole;
}

}  // namespace octet::plane
