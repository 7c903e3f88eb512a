package pystack

import (
	_ "embed"
	"os"
	"path/filepath"
)

// shim is a program that Python runs at its start when its folder is in PYTHONPATH (D-ST-8).
//
//go:embed sitecustomize.py
var shim []byte

// EnvSignal is the variable with the number of the signal at which a process with the shim writes its stacks.
const EnvSignal = "SERRY_STACK_SIGNAL"

// DumpSignal is that signal where no other is chosen: SIGRTMIN+10, as glibc counts.
const DumpSignal = 44

// WriteShim writes the shim into a folder, for PYTHONPATH.
func WriteShim(dir string) error {
	return os.WriteFile(filepath.Join(dir, "sitecustomize.py"), shim, 0o600)
}
