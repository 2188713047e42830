# SPDX-License-Identifier: Apache-2.0
# Sourced by ci/gpu/trace and ci/gpu/diff. Two versions of NCCL in NCCL_A and NCCL_B: what ci/gpu/pack_nccl made and lies in
# $WHEELS (.whl), and the one that PyTorch brings.
unpack_nccl() { # PYTHON
    local packed names=(NCCL_A NCCL_B) i=0 own
    for packed in "${WHEELS:-.whl}"/libnccl-*.so.2.xz; do
        [ -f "$packed" ] && [ $i -lt 2 ] || continue
        mkdir -p "/tmp/upgate-nccl/$i"
        # As PyTorch's is named: what looks for libnccl.so.2 finds it loaded.
        "$1" -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' \
            "$packed" "/tmp/upgate-nccl/$i/libnccl.so.2" || return
        export "${names[i]}=/tmp/upgate-nccl/$i/libnccl.so.2"
        i=$((i + 1))
    done
    own=$("$1" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null)
    [ $i = 1 ] && [ -f "$own" ] && export NCCL_B=$own
    echo "NCCL: ${NCCL_A:-none carried}, ${NCCL_B:-none}"
}
