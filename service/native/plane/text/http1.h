// A parser for HTTP/1.1 (RFC 9112): heads, and chunked bodies. It is strict: constructs that the RFC merely tolerates
// are refused, such as bare line feeds, folded lines, spaces before a colon, or two lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octet::plane {

struct HeaderField {
  std::string_view name;   // As it was sent.
  std::string_view value;  // Without surrounding white space.
};

// The head of a request. Its views refer to the bytes that were parsed.
struct RequestHead {
  std::string_view method;
  std::string_view target;  // origin-form: /path?query
  int minor_version = 1;
  std::vector<HeaderField> fields;
  size_t bytes = 0;  // length of the head

  std::optional<uint64_t> content_length;
  bool is_chunked = false;
  bool keeps_alive = true;
  bool expects_continue = false;

  std::string_view path() const { return target.substr(0, target.find('?')); }
  // Returns the value of the first field with this name, which must be in lower case, or an empty string.
  std::string_view find(std::string_view lower_name) const;
  bool has(std::string_view lower_name) const;
};

// The head of a response. Its views refer to the bytes that were parsed.
struct ResponseHead {
  int status = 0;
  std::string_view reason;
  std::vector<HeaderField> fields;
  size_t bytes = 0;  // length of the head

  std::optional<uint64_t> content_length;
  bool is_chunked = false;
  bool keeps_alive = true;

  std::string_view find(std::string_view lower_name) const;
};

// The reason why a head was rejected. The connection ends after a response with this status.
struct BadHead {
  int status;
  const char* what;
};

enum class HeadState : uint8_t { kWhole, kUnfinished, kBad };

// Parses bytes that begin with a request, or with the line break that some clients send after the body of the previous
// one.
HeadState read_head(std::string_view bytes, size_t longest, RequestHead& head, BadHead& bad);

// Parses bytes that begin with a response (section 4) of HTTP/1.1, on the client's side.
HeadState read_response(std::string_view bytes, size_t longest, ResponseHead& head, BadHead& bad);

// A chunked body (section 7.1), parsed incrementally.
class ChunkedBody {
 public:
  // Removes the next piece of content from the front of `bytes`, without its framing. `content` is empty if more bytes
  // are needed, and at the end. Returns false if the body is malformed.
  bool next(std::string_view& bytes, std::string_view& content);
  bool is_over() const { return state_ == State::kOver; }

 private:
  enum class State : uint8_t {
    kSize,
    kExtension,
    kSizeEnd,
    kData,
    kDataEnd,
    kDataEndLine,
    kTrailer,
    kTrailerName,
    kTrailerValue,
    kTrailerLineEnd,
    kTrailerEnd,
    kOver
  };

  bool step(char each);

  State state_ = State::kSize;
  uint64_t left_ = 0;   // Remaining bytes of the chunk.
  int digits_ = 0;      // Digits of its size so far.
  size_t framing_ = 0;  // Bytes of extensions and trailers so far.
};

bool same_but_case(std::string_view one, std::string_view other);
bool is_token(std::string_view text);  // RFC 9110 section 5.6.2
std::string_view strip(std::string_view text);
// Returns true if a comma-separated list of tokens contains this token, which must be in lower case.
bool lists(std::string_view value, std::string_view lower_token);
// Decodes percent-encoding. Returns no value if it is malformed.
std::optional<std::string> decode_percent(std::string_view text);

}  // namespace octet::plane
