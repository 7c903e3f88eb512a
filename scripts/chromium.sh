#!/usr/bin/env bash
# Installs what the tests of the page need, where it is missing: Debian's Chromium and node by apt, as root, and
# playwright-core, which drives the browser, and typescript, which checks the types of its files, by npm into .cache/browser at the root
# of the repository.
#
# usage: scripts/chromium.sh
#
# exit: 0 all is there, 3 something is missing and cannot be installed here, which is said on stderr.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly playwright=1.56.1 typescript=5.9.3 missing=3

say() { echo "chromium: $*" >&2; }

packages=()
command -v chromium >/dev/null || packages+=(chromium)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
[[ ${#packages[@]} -eq 0 ]] || scripts/apt.sh "${packages[@]}"

stamp=.cache/browser/playwright-$playwright-typescript-$typescript
[[ -e $stamp ]] && exit 0
mkdir -p .cache/browser
exec 9>.cache/browser.lock
flock 9
[[ -e $stamp ]] && exit 0
npm install --silent --no-audit --no-fund --ignore-scripts --prefix .cache/browser "playwright-core@$playwright" "typescript@$typescript" >/dev/null ||
	{ say "playwright-core $playwright and typescript $typescript cannot be installed: the package registry is out of reach"; exit $missing; }
touch "$stamp"
