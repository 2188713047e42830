# SPDX-License-Identifier: Apache-2.0
# The Python environments, sourced by ci/setup: two of the demo, three that are only made when asked for. baseline: the torch of the
# distribution (1.13 in Debian 12), or an older one of PyPI where the archive has none. candidate: a
# current torch of PyPI. An environment is made under another name and renamed when it works, so
# that a half-made one is never seen; .upgate-env inside says what it was made from. Needs say() and
# packages.sh.

candidate_torch=torch==2.13.0
fallback_torch=torch==2.5.1 # baseline where the archive has no python3-torch
jax=jax==0.6.2 # the last for Python 3.10 to 3.13; envs/jax is made by ci/setup --jax only
# envs/torchrec is made by ci/setup --torchrec only, over the candidate's torch, whose release they are of. torchrec by itself asks for
# fbgemm-gpu, the CUDA build.
torchrec=torchrec==1.8.0
torchrec_needs=(fbgemm-gpu-cpu==1.8.0 tensordict torchmetrics==1.0.3 tqdm pyre-extensions)
# envs/ray is made by ci/setup --ray only, over the candidate's torch.
ray="ray[train]==2.60.0"
python=/usr/bin/python3
# The OpenMP build of OpenBLAS shares torch's threads. Without it Debian's torch computes with the
# reference BLAS: 5.5 instead of 128 GFLOP/s in a 256x256 matrix product on one core of a 2-core
# Xeon VM.
packages_archive_torch=(python3-torch python3-numpy libopenblas0-openmp)

version_of_package() { dpkg-query -W -f='${Version}' "$1" 2>/dev/null; }
version_of_python() { "$python" -c 'import platform; print(platform.python_version())'; }

# What the environment would be made from now; equal to its .upgate-env when nothing has changed.
env_recipe() {
    if [[ $1 == jax ]]; then
        echo "pip $jax numpy, python $(version_of_python)"
    elif [[ $1 == torchrec ]]; then
        echo "over $(env_recipe candidate): $torchrec ${torchrec_needs[*]}"
    elif [[ $1 == ray ]]; then
        echo "over $(env_recipe candidate): $ray"
    elif [[ $1 == candidate ]]; then
        echo "pip $candidate_torch numpy, python $(version_of_python)"
    elif [[ -z $(packages_missing "${packages_archive_torch[@]}") ]]; then
        echo "archive torch $(version_of_package python3-torch), python $(version_of_python)"
    else
        echo "pip $fallback_torch numpy, python $(version_of_python)"
    fi
}

env_ready() {
    local dir=$root/envs/$1
    [[ -x $dir/bin/python && -f $dir/.upgate-env ]] || return 1
    [[ $(<"$dir/.upgate-env") == "$(env_recipe "$1")" ]]
}

# pip's compilation of 5,900 files takes one core; compileall takes all of them.
env_pip() {
    local dir=$1
    shift
    say "pip install $* (a CUDA build is a few GB)"
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$dir/bin/python" -m pip install --quiet --no-input \
        --no-compile --retries 2 --timeout 15 --progress-bar off "$@" >&2 || return 1
    "$dir/bin/python" -m compileall -q -j 0 "$dir"/lib/python*/site-packages >/dev/null 2>&1 || true
}

env_site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# Make the environment in directory $2. Ends with a real import, on which everything depends.
env_fill() {
    local name=$1 dir=$2 recipe=$3
    case $recipe in
        archive*) "$python" -m venv --without-pip --system-site-packages "$dir" || return 1 ;;
        pip*)
            local spec=${recipe#pip }
            # shellcheck disable=SC2086
            "$python" -m venv "$dir" && env_pip "$dir" ${spec%,*} || return 1
            ;;
        over*)
            "$python" -m venv "$dir" && env_site "$root/envs/candidate" >"$(env_site "$dir")/candidate.pth" || return 1
            if [[ $name == ray ]]; then
                env_pip "$dir" "$ray" || return 1
            else
                env_pip "$dir" "${torchrec_needs[@]}" && env_pip "$dir" --no-deps "$torchrec" || return 1
            fi
            "$dir/bin/python" -s -W ignore -c 'import sys; name = sys.argv[1]; print("ci/setup: %s %s" % (name, __import__(name).__version__))' \
                "$name" >&2
            return
            ;;
    esac
    if [[ $name == jax ]]; then
        "$dir/bin/python" -s -c 'import jax; jax.numpy.ones(2).sum(); print("ci/setup: jax " + jax.__version__)' >&2
        return
    fi
    "$dir/bin/python" -s - "$name" >&2 <<'EOF'
import platform
import sys

import numpy
import torch
from torch import distributed

torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
print("ci/setup: %s: torch %s, numpy %s, Python %s, %s" % (
    sys.argv[1], torch.__version__, numpy.__version__, platform.python_version(),
    "CUDA " + torch.version.cuda if torch.version.cuda else "CPU only"))
if not distributed.is_available():
    sys.exit("ci/setup: this torch has no torch.distributed, which the ddp workload needs")
EOF
}

env_ensure() {
    local name=$1 recipe dir lock
    env_ready "$name" && return 0
    packages_ensure python3 python3-venv || return 1
    # python3-torch may be installed without the rest, or be absent from the archive of this
    # release.
    if [[ $name == baseline ]]; then
        if package_known python3-torch || { apt update && package_known python3-torch; }; then
            packages_ensure "${packages_archive_torch[@]}" || return 1
        fi
    fi
    env_ready "$name" && return 0
    recipe=$(env_recipe "$name")
    mkdir -p "$root/envs" && touch "$root/envs/.lock" || return 1 # exec would end the shell
    exec {lock}>"$root/envs/.lock"
    flock "$lock"
    if ! env_ready "$name"; then
        rm -rf "$root/envs/.new-$name"
        dir=$root/envs/.new-$name
        env_fill "$name" "$dir" "$recipe" || {
            rm -rf "$dir"
            exec {lock}>&-
            return 1
        }
        env_move "$name" "$dir" "$recipe"
    fi
    exec {lock}>&-
}

# Give the environment its name. The scripts of a venv hold its path.
env_move() {
    local final=$root/envs/$1 dir=$2 script
    for script in "$dir"/bin/* "$dir/pyvenv.cfg"; do
        [[ -f $script && ! -L $script ]] && grep -Iq "$dir" "$script" &&
            sed -i "s|$dir|$final|g" "$script"
    done
    echo "$3" >"$dir/.upgate-env"
    rm -rf "$final"
    mv "$dir" "$final"
}

# The torch server of reference_models/serve stands on aiohttp: of the distribution where its torch is, else of PyPI. Not part
# of the recipe: an environment made before is not made again for it.
env_serving() {
    local name=$1 dir=$root/envs/$1
    "$dir/bin/python" -c 'import aiohttp' 2>/dev/null && return 0
    if [[ $(env_recipe "$name") == archive* ]]; then
        packages_ensure python3-aiohttp || return 1
    else
        env_pip "$dir" aiohttp || return 1
    fi
    "$dir/bin/python" -c 'import aiohttp'
}

envs_missing() {
    say "the two PyTorch environments could not be made: no network or no permission"
    say "What works without them: the build, the tests, and the native workloads:"
    say "    build/release/upgate ab ci/plans/native.yaml"
    exit 4
}
