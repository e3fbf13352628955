#!/bin/sh
# Lets a CUDA wheel of torch be imported on a machine without CUDA, without downloading the gigabytes of NVIDIA's
# wheels: for each library that torch links and that is not there, an empty stand-in with the symbols (and their
# versions) that torch asks for at load time. Nothing in them can be called. Gloo needs none of them.
#
# Before: pip install --no-deps torch, and of NVIDIA's wheels only the small ones whose code runs when torch loads:
# nvidia-cuda-runtime, nvidia-cuda-cupti, nvidia-cufile.
#
# usage: stub_cuda.sh SITE_PACKAGES
set -eu
cd "$1/torch/lib"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for lib in *.so; do readelf -Ws --dyn-syms "$lib"; done 2>/dev/null |
    awk '$7 == "UND" { split($8, part, "@"); print part[1], part[2] }' | sort -u > "$work/wanted"
stub() { # FILE SYMBOL_PATTERN
    grep -E "^($2)" "$work/wanted" > "$work/these" || true
    awk '{ print "char " $1 "[256];" }' "$work/these" | sort -u > "$work/stub.c"
    awk '{ of[$2] = of[$2] " " $1 ";" } END { for (v in of) if (v != "") print v " {" of[v] " };" }' \
        "$work/these" > "$work/stub.map"
    versions=""
    [ ! -s "$work/stub.map" ] || versions="-Wl,--version-script=$work/stub.map"
    gcc -shared -fPIC -w "-Wl,-soname,$1" ${versions:+"$versions"} -x c "$work/stub.c" -o "$1"
    echo "$1: $(wc -l < "$work/these") symbols"
}
stub libnvshmem_host.so.3 'nvshmem'
stub libcublas.so.13 'cublas[A-KM-Z]|cublasL[^t]'
stub libcublasLt.so.13 'cublasLt'
stub libcudnn.so.9 'cudnn'
stub libcufft.so.12 'cufft'
stub libcusolver.so.12 'cusolver'
stub libcusparse.so.12 'cusparse[A-KM-Z]|cusparseL[^t]'
stub libcusparseLt.so.0 'cusparseLt'
stub libnccl.so.2 'p?nccl'
stub libnvrtc.so.13 'nvrtc'
