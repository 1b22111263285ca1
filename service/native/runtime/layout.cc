#include "layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "config.h"
#include "json.h"
#include "sha256.h"

namespace octet {

namespace {

constexpr char kArtifactType[] = "application/vnd.octet.artifact.v1";
constexpr char kLibraryMediaType[] = "application/vnd.octet.library.v1";
constexpr char kConstantsMediaType[] = "application/vnd.octet.constants.v1";
constexpr char kLayoutVersion[] = "1.0.0";
// The distribution specification recommends that registries accept manifests of at least this size.
constexpr size_t kMostDocumentBytes = 4 << 20;
constexpr size_t kHexDigits = 2 * kDigestBytes;
constexpr char kDigestPrefix[] = "sha256:";

// An OCI descriptor: a reference to a blob.
struct Descriptor {
  const char* media_type = "";
  const char* artifact_type = "";
  const char* digest = "";
  int64_t bytes = 0;

  const char* hex() const { return digest + sizeof kDigestPrefix - 1; }
};

bool is_digest(const char* text) {
  if (strncmp(text, kDigestPrefix, sizeof kDigestPrefix - 1) != 0) return false;
  const char* hex = text + sizeof kDigestPrefix - 1;
  return strlen(hex) == kHexDigits && strspn(hex, "0123456789abcdef") == kHexDigits;
}

Descriptor read_descriptor(Json& json) {
  Descriptor found;
  json.object([&](std::string_view name) {
    if (name == "mediaType") {
      found.media_type = json.string();
    } else if (name == "artifactType") {
      found.artifact_type = json.string();
    } else if (name == "digest") {
      found.digest = json.string();
    } else if (name == "size") {
      found.bytes = json.integer(0, INT64_MAX);
    } else {
      json.skip();
    }
  });
  if (!json.is_failed() && !is_digest(found.digest)) json.refuse("a descriptor lacks a SHA-256 digest");
  return found;
}

// Does not follow links below the folder, because its contents may come from an attacker.
octet_status open_at(int folder, const char* name, int flags, File& file) {
  file.reset(openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags));
  return file.is_open() ? OCTET_OK : fail_system(errno, "%s", name);
}

octet_status size_of(const File& file, const char* name, int64_t& bytes) {
  struct stat found;
  if (fstat(file.descriptor(), &found) != 0) return fail_system(errno, "%s", name);
  if (!S_ISREG(found.st_mode)) return fail(OCTET_CORRUPT, "%s is not a file", name);
  bytes = found.st_size;
  return OCTET_OK;
}

octet_status read_all(const File& file, const char* name, size_t most, List<char>& content) {
  int64_t bytes;
  octet_status status = size_of(file, name, bytes);
  if (status != OCTET_OK) return status;
  if (static_cast<uint64_t>(bytes) > most) return fail(OCTET_CORRUPT, "%s has %" PRId64 " bytes", name, bytes);
  if (!content.reserve(static_cast<size_t>(bytes))) return OCTET_NO_MEMORY;
  char chunk[4096];
  ssize_t got;
  while ((got = read(file.descriptor(), chunk, sizeof chunk)) > 0) {
    if (content.size() + static_cast<size_t>(got) > most) return fail(OCTET_CORRUPT, "%s grew while it was read", name);
    for (ssize_t index = 0; index < got; ++index) {
      if (!content.add(chunk[index])) return OCTET_NO_MEMORY;
    }
  }
  return got == 0 ? OCTET_OK : fail_system(errno, "%s", name);
}

class Blobs {
 public:
  octet_status open(int folder) {
    File blobs;
    octet_status status = open_at(folder, "blobs", O_DIRECTORY, blobs);
    return status != OCTET_OK ? status : open_at(blobs.descriptor(), "sha256", O_DIRECTORY, folder_);
  }

  octet_status open(const Descriptor& blob, File& file) const {
    int64_t bytes = 0;
    octet_status status = open_at(folder_.descriptor(), blob.hex(), 0, file);
    if (status == OCTET_OK) status = size_of(file, blob.digest, bytes);
    if (status != OCTET_OK) return status;
    if (bytes != blob.bytes) {
      return fail(OCTET_CORRUPT, "blob %s has %" PRId64 " bytes, not %" PRId64, blob.digest, bytes, blob.bytes);
    }
    return check_digest(blob, file);
  }

  octet_status read(const Descriptor& blob, size_t most, List<char>& content) const {
    File file;
    octet_status status = open(blob, file);
    return status != OCTET_OK ? status : read_all(file, blob.digest, most, content);
  }

 private:
  static octet_status check_digest(const Descriptor& blob, const File& file) {
    uint8_t chunk[1 << 14], digest[kDigestBytes];
    Sha256 hash;
    ssize_t got;
    for (off_t at = 0; (got = pread(file.descriptor(), chunk, sizeof chunk, at)) > 0; at += got) {
      hash.update(chunk, static_cast<size_t>(got));
    }
    if (got < 0) return fail_system(errno, "blob %s", blob.digest);
    hash.finish(digest);
    char hex[kHexDigits + 1];
    for (size_t index = 0; index < kHexDigits; ++index) {
      hex[index] = "0123456789abcdef"[digest[index / 2] >> (index % 2 == 0 ? 4 : 0) & 15];
    }
    hex[kHexDigits] = '\0';
    if (strcmp(hex, blob.hex()) == 0) return OCTET_OK;
    return fail(OCTET_CORRUPT, "blob %s hashes to %s%s", blob.digest, kDigestPrefix, hex);
  }

  File folder_;
};

octet_status check_version(int folder) {
  File file;
  List<char> text;
  octet_status status = open_at(folder, "oci-layout", 0, file);
  if (status == OCTET_OK) status = read_all(file, "oci-layout", kMostDocumentBytes, text);
  if (status != OCTET_OK) return status;
  Json json("oci-layout", text.begin(), text.size(), Json::Members::kAny);
  const char* version = "";
  json.object(
      [&](std::string_view name) { name == "imageLayoutVersion" ? void(version = json.string()) : json.skip(); });
  json.finish();
  if (!json.is_failed() && strcmp(version, kLayoutVersion) != 0) {
    json.refuse(OCTET_UNSUPPORTED, "image layout version \"%.32s\", but only %s is known", version, kLayoutVersion);
  }
  return json.status();
}

// Finds the only artifact that the index lists. The descriptor's strings are in `text`.
octet_status find_artifact(int folder, List<char>& text, Descriptor& artifact) {
  File file;
  octet_status status = open_at(folder, "index.json", 0, file);
  if (status == OCTET_OK) status = read_all(file, "index.json", kMostDocumentBytes, text);
  if (status != OCTET_OK) return status;
  Json json("index.json", text.begin(), text.size(), Json::Members::kAny);
  int artifacts = 0;
  json.object([&](std::string_view name) {
    if (name != "manifests") return json.skip();
    json.array([&](size_t) {
      Descriptor found = read_descriptor(json);
      if (strcmp(found.artifact_type, kArtifactType) != 0) return;
      artifact = found;
      ++artifacts;
    });
  });
  json.finish();
  if (json.is_failed() || artifacts == 1) return json.status();
  return fail(OCTET_INVALID, "the folder contains %d artifacts; exactly one is required", artifacts);
}

struct Parts {
  Descriptor config, library, constants;
};

octet_status read_manifest(List<char>& text, Parts& parts) {
  Json json("the manifest", text.begin(), text.size(), Json::Members::kAny);
  int libraries = 0, constants = 0;
  json.object([&](std::string_view name) {
    if (name == "config") {
      parts.config = read_descriptor(json);
    } else if (name == "layers") {
      json.array([&](size_t) {
        Descriptor layer = read_descriptor(json);
        if (strcmp(layer.media_type, kLibraryMediaType) == 0) parts.library = layer, ++libraries;
        if (strcmp(layer.media_type, kConstantsMediaType) == 0) parts.constants = layer, ++constants;
      });
    } else {
      json.skip();
    }
  });
  json.finish();
  if (json.is_failed()) return json.status();
  if (strcmp(parts.config.media_type, kOlderConfigMediaType) == 0) return fail_older();
  if (strcmp(parts.config.media_type, kConfigMediaType) != 0) {
    return fail(OCTET_UNSUPPORTED, "the artifact's config is of type \"%.128s\", and this release reads %s; %s",
                parts.config.media_type, kConfigMediaType, kWhatToDo);
  }
  if (libraries == 1 && constants == 1) return OCTET_OK;
  return fail(OCTET_CORRUPT, "the manifest lists %d libraries and %d constants layers, not one each", libraries,
              constants);
}

octet_status open_parts(int folder, Layout& layout) {
  Blobs blobs;
  Descriptor artifact;
  Parts parts;
  List<char> index, manifest;
  octet_status status = check_version(folder);
  if (status == OCTET_OK) status = find_artifact(folder, index, artifact);
  if (status == OCTET_OK) status = blobs.open(folder);
  if (status == OCTET_OK) status = blobs.read(artifact, kMostDocumentBytes, manifest);
  if (status == OCTET_OK) status = read_manifest(manifest, parts);
  if (status == OCTET_OK) status = blobs.read(parts.config, kMostConfigBytes, layout.config);
  if (status == OCTET_OK) status = blobs.open(parts.library, layout.library);
  if (status == OCTET_OK) status = blobs.open(parts.constants, layout.constants);
  return status;
}

}  // namespace

octet_status Layout::open(const char* path) {
  File folder(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return fail_system(errno, "%s", path);
  octet_status status = open_parts(folder.descriptor(), *this);
  if (status == OCTET_OK) return OCTET_OK;
  char why[768];
  snprintf(why, sizeof why, "%s", octet_error());
  return fail(status, "%.200s: %s", path, why);
}

}  // namespace octet
