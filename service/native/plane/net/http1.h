// HTTP/1.1 (RFC 9112) as a server reads it: heads and bodies, whole and strict. What is merely tolerated is refused:
// bare line feeds, folded lines, spaces before a colon, two lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octet::plane {

struct HeaderField {
  std::string_view name;   // as it came
  std::string_view value;  // without the spaces around it
};

// Its views are of the bytes that were read.
struct RequestHead {
  std::string_view method;
  std::string_view target;  // origin-form: /path?query
  int minor_version = 1;
  std::vector<HeaderField> fields;
  size_t bytes = 0;         // of the head

  std::optional<uint64_t> content_length;
  bool is_chunked = false;
  bool keeps_alive = true;
  bool expects_continue = false;

  std::string_view path() const { return target.substr(0, target.find('?')); }
  // The value of the first field of this name, in lower case; empty where there is none.
  std::string_view find(std::string_view lower_name) const;
  bool has(std::string_view lower_name) const;
};

// Of a response. Its views are of the bytes that were read.
struct ResponseHead {
  int status = 0;
  std::string_view reason;
  std::vector<HeaderField> fields;
  size_t bytes = 0;         // of the head

  std::optional<uint64_t> content_length;
  bool is_chunked = false;
  bool keeps_alive = true;

  std::string_view find(std::string_view lower_name) const;
};

// What is wrong with a head: the connection ends with this status.
struct BadHead {
  int status;
  const char* what;
};

enum class HeadState : uint8_t { kWhole, kUnfinished, kBad };

// Of bytes that begin with a request, or with the line break that some clients send behind the last one's body.
HeadState read_head(std::string_view bytes, size_t longest, RequestHead& head, BadHead& bad);

// Of bytes that begin with a response (section 4) of HTTP/1.1, as a client reads it.
HeadState read_response(std::string_view bytes, size_t longest, ResponseHead& head, BadHead& bad);

// A body in chunks (section 7.1), read as it comes.
class ChunkedBody {
 public:
  // Takes the next piece of content off the front of `bytes`, without what frames it; empty where more bytes are
  // needed, and at the end. False: it is not well formed.
  bool next(std::string_view& bytes, std::string_view& content);
  bool is_over() const { return state_ == State::kOver; }

 private:
  enum class State : uint8_t {
    kSize, kExtension, kSizeEnd, kData, kDataEnd, kDataEndLine, kTrailer, kTrailerName, kTrailerValue, kTrailerLineEnd, kTrailerEnd, kOver
  };

  bool step(char each);

  State state_ = State::kSize;
  uint64_t left_ = 0;      // of the chunk
  int digits_ = 0;         // of its size
  size_t framing_ = 0;     // bytes of extensions and trailers so far
};

bool same_but_case(std::string_view one, std::string_view other);
bool is_token(std::string_view text);  // RFC 9110 section 5.6.2
std::string_view stripped(std::string_view text);
// Whether a list of tokens, separated by commas, has this one, in lower case.
bool lists(std::string_view value, std::string_view lower_token);
// Percent-decoded; empty optional where it is not.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace octet::plane
