# The compiler of ziglang's package for CMake: clang with the headers of one glibc, for either architecture.
#
# ZIG: the program. OCTET_ARCHITECTURE: x86_64 or aarch64.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${OCTET_ARCHITECTURE})
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ZIG OCTET_ARCHITECTURE)

# The oldest glibc that the wheels of apache-tvm-ffi run on.
set(OCTET_GLIBC 2.28)
set(zig_target -target ${OCTET_ARCHITECTURE}-linux-gnu.${OCTET_GLIBC})
set(CMAKE_C_COMPILER ${ZIG} cc ${zig_target})
set(CMAKE_CXX_COMPILER ${ZIG} c++ ${zig_target})

# CMake would determine the following by linking programs. For these, zig would compile the whole C++ library, which takes a
# minute on one core.
foreach(language C CXX)
  set(CMAKE_${language}_COMPILER_ID_RUN TRUE)
  set(CMAKE_${language}_COMPILER_ID Clang)
  set(CMAKE_${language}_COMPILER_VERSION 22.1)
  set(CMAKE_${language}_COMPILER_FRONTEND_VARIANT GNU)
  set(CMAKE_${language}_COMPILER_WORKS TRUE)
  set(CMAKE_${language}_ABI_COMPILED TRUE)
  set(CMAKE_${language}_SIZEOF_DATA_PTR 8)
  set(CMAKE_${language}_BYTE_ORDER LITTLE_ENDIAN)
endforeach()
set(CMAKE_C_STANDARD_COMPUTED_DEFAULT 17)
set(CMAKE_CXX_STANDARD_COMPUTED_DEFAULT 17)
