#!/usr/bin/env python3
"""Makes empty stand-ins for the CUDA libraries that the wheel of torch is linked with, so that torch
imports, and runs on processors, on a machine without the gigabytes of the real ones.

usage: torch_stubs.py TORCH_LIBRARY_DIRECTORY OUTPUT_DIRECTORY

Every function of a stand-in returns an error: "no device" for the CUDA runtime, which torch asks
first, and 1 for all others, which nobody calls then.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# Libraries that every machine has.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|z|quadmath))\.so")

# What the functions of a library begin with, where no symbol version says whose they are.
PREFIXES = {
    "libcuda.so": r"cu[A-Z]",
    "libcufile.so": r"cuFile",
    "libcusparseLt.so": r"cusparseLt",
    "libnccl.so": r"p?nccl",
    "libnvshmem_host.so": r"nvshmem",
}

NO_DEVICE = 100

# Functions that torch reads more from than an error.
SPECIAL = {
    "cudaGetErrorString": 'const char *cudaGetErrorString(int e) { return "no CUDA here"; }',
    "cudaGetErrorName": 'const char *cudaGetErrorName(int e) { return "cudaErrorNoDevice"; }',
    "cudaGetDeviceCount": f"int cudaGetDeviceCount(int *n) {{ if (n) *n = 0; return {NO_DEVICE}; }}",
    "cudaGetLastError": "int cudaGetLastError(void) { return 0; }",
}


def read(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(library, which):
    """Yields (name, version) of the defined or undefined symbols of a library."""
    for line in read("nm", "-D", which, library).splitlines():
        name, _, version = line.split()[-1].partition("@")
        yield name, version.lstrip("@")


def survey(libraries):
    """Returns the libraries that are missing, the versions that each is asked for, and the symbols
    that nobody defines."""
    present = {library.name for library in libraries}
    missing, versions, undefined, defined = set(), collections.defaultdict(set), set(), set()
    for library in libraries:
        needed = re.findall(r"NEEDED.*\[(.*)\]", read("readelf", "-dW", library))
        missing |= {name for name in needed if name not in present and not SYSTEM.match(name)}
        wanted = None
        for line in read("readelf", "-VW", library).splitlines():
            if match := re.search(r"File: (\S+)", line):
                wanted = match[1]
            if wanted and (match := re.search(r"Name: (\S+)", line)):
                versions[wanted].add(match[1])
        undefined |= set(symbols(library, "--undefined-only"))
        defined |= {name for name, _ in symbols(library, "--defined-only")}
    return missing, versions, {(name, version) for name, version in undefined if name not in defined}


def functions(library, versions, undefined):
    """Returns the names that a library has to define, by version."""
    prefix = next((p for begin, p in PREFIXES.items() if library.startswith(begin)), None)
    found = collections.defaultdict(set)
    for name, version in undefined:
        if version in versions or not version and prefix and re.match(prefix, name):
            found[version].add(name)
    return found


def compile_stub(library, versions, found, out):
    code = []
    for name in sorted(set().union(*found.values())):
        error = NO_DEVICE if name.startswith("cuda") else 1
        code.append(SPECIAL.get(name) or f"int {name}(void) {{ return {error}; }}")
    script = [
        f"{version} {{ global: {'; '.join(sorted(found[version]))}; }};" if found.get(version) else f"{version} {{ }};"
        for version in sorted(versions)
    ]
    with tempfile.TemporaryDirectory() as work:
        source, map_file = pathlib.Path(work, "stub.c"), pathlib.Path(work, "stub.map")
        source.write_text("\n".join(code) + "\n")
        map_file.write_text("\n".join(script) + "\n")
        command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{library}", source, "-o", out / library]
        if script:
            command.append(f"-Wl,--version-script={map_file}")
        subprocess.run(command, check=True)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    libraries, out = sorted(pathlib.Path(sys.argv[1]).glob("*.so*")), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    missing, versions, undefined = survey(libraries)
    for library in sorted(missing):
        compile_stub(library, versions[library], functions(library, versions[library], undefined), out)


if __name__ == "__main__":
    main()
