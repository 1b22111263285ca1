#include "net/gzip.h"

#include <dlfcn.h>

#include <algorithm>

#include "text/http1.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

// z_stream of zlib.h. The layout has not changed since 1995.
struct Stream {
  const unsigned char* next_in;
  unsigned avail_in;
  unsigned long total_in;
  unsigned char* next_out;
  unsigned avail_out;
  unsigned long total_out;
  const char* message;
  void* state;
  void* allocate;
  void* free;
  void* opaque;
  int data_type;
  unsigned long adler, reserved;
};

constexpr char kVersion[] = "1.2.11";  // zlib compares only the first digit of its version
constexpr int kOk = 0, kStreamEnd = 1, kBufferError = -5, kFinish = 4, kNoFlush = 0, kDeflated = 8, kMemoryLevel = 8;
constexpr int kFast = 1;  // higher levels make tensors hardly smaller
constexpr int kWindowBits = 15, kGzipBits = 16 + kWindowBits;
constexpr size_t kPiece = 256 << 10;
constexpr unsigned char kGzipMagic = 0x1f;  // the first byte of a gzip member

struct Zlib {
  int (*deflate_init)(Stream*, int, int, int, int, int, const char*, int) = nullptr;
  int (*deflate)(Stream*, int) = nullptr;
  int (*deflate_end)(Stream*) = nullptr;
  int (*inflate_init)(Stream*, int, const char*, int) = nullptr;
  int (*inflate)(Stream*, int) = nullptr;
  int (*inflate_reset)(Stream*) = nullptr;
  int (*inflate_end)(Stream*) = nullptr;
  bool is_there = false;

  Zlib() {
    void* library = ::dlopen("libz.so.1", RTLD_NOW);
    if (library == nullptr) return;
    is_there = find(library, "deflateInit2_", deflate_init) && find(library, "deflate", deflate) &&
               find(library, "deflateEnd", deflate_end) && find(library, "inflateInit2_", inflate_init) &&
               find(library, "inflate", inflate) && find(library, "inflateReset", inflate_reset) &&
               find(library, "inflateEnd", inflate_end);
  }

  template <typename Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }
};

const Zlib& zlib() {
  static const Zlib library;
  if (!library.is_there) {
    throw Problem(ErrorType::kUnsupportedFormat,
                  "compressed bodies are not supported, because zlib is not installed on this server",
                  "send it uncompressed");
  }
  return library;
}

int bits_of(std::string_view coding) { return coding == "deflate" ? kWindowBits : kGzipBits; }

[[noreturn]] void refuse(std::string_view coding, const char* what) {
  throw Problem(ErrorType::kInvalidInput,
                std::string("the body is not well-formed ").append(coding).append(": ").append(what));
}

}  // namespace

void load_zlib() {
  try {
    zlib();
  } catch (const Problem&) {  // the error is reported when the library is needed
  }
}

bool is_known_coding(std::string_view coding) { return coding == "gzip" || coding == "x-gzip" || coding == "deflate"; }

std::string content_coding(const std::vector<HeaderField>& fields) {
  std::string all;
  for (const HeaderField& field : fields) {
    if (!same_but_case(field.name, "content-encoding")) continue;
    for (std::string_view rest = field.value; !rest.empty();) {
      std::string_view item = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), item.size() + 1));
      std::string coding(strip(item));
      for (char& each : coding) {
        if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
      }
      if (coding.empty() || coding == "identity") continue;
      all.append(all.empty() ? "" : ", ").append(coding);
    }
  }
  return all;
}

bool accepts(std::string_view accepted, std::string_view wanted) {
  while (!accepted.empty()) {
    std::string_view item = accepted.substr(0, accepted.find(','));
    accepted.remove_prefix(std::min(accepted.size(), item.size() + 1));
    std::string_view coding = strip(item.substr(0, item.find(';')));
    std::string quality(item.substr(std::min(item.size(), item.find(';'))));
    quality.erase(std::remove(quality.begin(), quality.end(), ' '), quality.end());
    while (!quality.empty() && quality.back() == '0') quality.pop_back();
    bool is_refused = same_but_case(quality, ";q=") || same_but_case(quality, ";q=0.");
    if (!is_refused && same_but_case(coding, wanted)) return true;
  }
  return false;
}

std::string preferred_coding(std::string_view accepted) {
  return accepts(accepted, "gzip") ? "gzip" : accepts(accepted, "deflate") ? "deflate" : "";
}

std::string compress_bytes(std::string_view bytes, std::string_view coding) {
  const Zlib& its = zlib();
  Stream stream{};
  if (its.deflate_init(&stream, kFast, kDeflated, bits_of(coding), kMemoryLevel, 0, kVersion, sizeof stream) != kOk) {
    throw Problem(ErrorType::kMemoryFull);
  }
  std::string out;
  stream.next_in = reinterpret_cast<const unsigned char*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  int status = kOk;
  while (status != kStreamEnd) {
    size_t there = out.size();
    out.resize(there + kPiece);
    stream.next_out = reinterpret_cast<unsigned char*>(out.data() + there);
    stream.avail_out = kPiece;
    status = its.deflate(&stream, kFinish);
    out.resize(there + kPiece - stream.avail_out);
  }
  its.deflate_end(&stream);
  return out;
}

std::string decompress(std::string_view bytes, std::string_view coding, size_t most_bytes) {
  const Zlib& its = zlib();
  Stream stream{};
  if (its.inflate_init(&stream, bits_of(coding), kVersion, sizeof stream) != kOk) throw Problem(ErrorType::kMemoryFull);
  std::string out;
  size_t used = 0;
  stream.next_in = reinterpret_cast<const unsigned char*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  int status = kOk;
  bool is_too_long = false;
  while (status == kOk && !is_too_long) {
    // memory is not reserved for every member, because a body may contain millions of empty ones
    if (used == out.size()) out.resize(used + kPiece);
    stream.next_out = reinterpret_cast<unsigned char*>(out.data() + used);
    stream.avail_out = static_cast<unsigned>(out.size() - used);
    status = its.inflate(&stream, kNoFlush);
    used = out.size() - stream.avail_out;
    is_too_long = used > most_bytes;
    bool is_another =
        status == kStreamEnd && coding != "deflate" && stream.avail_in > 0 && *stream.next_in == kGzipMagic;
    if (is_another) status = its.inflate_reset(&stream);
  }
  out.resize(used);
  size_t rest = stream.avail_in;
  std::string message = stream.message ? stream.message : "it is damaged";
  its.inflate_end(&stream);
  if (is_too_long) {
    throw Problem(ErrorType::kTooLarge, "the body is larger than " + std::to_string(most_bytes) + " bytes",
                  "OCTET_MAX_PREDICT_BYTES raises the limit");
  }
  if (status == kBufferError) refuse(coding, "it ends too early");
  if (status != kStreamEnd) refuse(coding, message.c_str());
  if (rest > 0) refuse(coding, (std::to_string(rest) + " bytes follow its end").c_str());
  return out;
}

}  // namespace octet::plane
