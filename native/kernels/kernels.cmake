# Sources of the kernels for the target's architecture, and the flags that reach only each ISA's file.
# Sets OUZEL_KERNEL_SOURCES; include it from the CMakeLists.txt that defines the target. The include root is native/.
# Fused multiply-adds are written out, so contraction must stay off, or the bits differ from machine to machine.
set(OUZEL_NATIVE ${CMAKE_CURRENT_LIST_DIR}/..)
set(OUZEL_KERNEL_SOURCES ${OUZEL_NATIVE}/base/cpu.cc ${OUZEL_NATIVE}/kernels/choice.cc)

macro(ouzel_isa name)
  set(OUZEL_ISA_FILE ${OUZEL_NATIVE}/kernels/isa/${name}.cc)
  set_source_files_properties(${OUZEL_ISA_FILE} PROPERTIES COMPILE_OPTIONS
                              "-O3;-ffp-contract=off;-fno-math-errno;${ARGN}")
  list(APPEND OUZEL_KERNEL_SOURCES ${OUZEL_ISA_FILE})
endmacro()

ouzel_isa(plain)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  ouzel_isa(avx2 -mavx2 -mfma -mf16c)
  ouzel_isa(avxvnni -mavxvnni -mavx2 -mfma -mf16c)
  ouzel_isa(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c)
  ouzel_isa(avx512vnni -mavx512vnni -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  ouzel_isa(neon)
  ouzel_isa(neondot -march=armv8.2-a+dotprod)
endif()
