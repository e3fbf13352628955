#!/bin/sh
# Builds hookpg.cpp against the torch of a Python: build_hookpg.sh PYTHON OUT_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
torch=$("$1" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
mkdir -p "$2"
g++ -std=c++20 -O1 -fPIC -shared -w -DTORCH_EXTENSION_NAME=hookpg -DTORCH_API_INCLUDE_EXTENSION_H -DUSE_DISTRIBUTED -DUSE_C10D_GLOO \
    -I"$torch/include" -I"$torch/include/torch/csrc/api/include" -I"$include" \
    "$here/hookpg.cpp" -o "$2/hookpg.so" \
    -L"$torch/lib" -Wl,-rpath,"$torch/lib" -lc10 -ltorch_cpu -ltorch_python
echo "$2/hookpg.so"
