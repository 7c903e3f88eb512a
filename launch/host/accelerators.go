package host

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A TPU is a generation of TPU chips, in the order in which they came.
type TPU int

// The generations that can be told apart.
const (
	NoTPU TPU = iota - 1
	TPUv2
	TPUv3
	TPUplc
	TPUv4
	TPUv5p
	TPUv5e
	TPUv6e
	TPU7x
	TPU8i
	TPU8t
)

// String is the name of the generation.
func (v TPU) String() string {
	names := []string{"v2", "v3", "plc", "v4", "v5p", "v5e", "v6e", "7x", "8i", "8t"}
	if v < 0 || int(v) >= len(names) {
		return "none"
	}
	return names[v]
}

const googleVendor = "0x1ae0"

// tpuDevices says which PCI devices of that vendor are TPU chips.
var tpuDevices = map[string]TPU{
	"0x0027": TPUv3, "0x0056": TPUplc, "0x005e": TPUv4, "0x0062": TPUv5p, "0x0063": TPUv5e,
	"0x006f": TPUv6e, "0x0076": TPU7x, "0x0083": TPU8i, "0x007c": TPU8t,
}

// TPUs counts the TPU chips of this machine and says what the last of them is (C-HOST-1).
func TPUs(root string) (n int, kind TPU) {
	kind = NoTPU
	vendors, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/vendor")) // the pattern is well formed
	for _, file := range vendors {
		if word(file) != googleVendor {
			continue
		}
		if v, ok := tpuDevices[word(filepath.Join(filepath.Dir(file), "device"))]; ok {
			n, kind = n+1, v
		}
	}
	return n, kind
}

// word is what a file holds, without space around it; nothing if it cannot be read.
func word(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// NVIDIA says whether an NVIDIA GPU can be seen (C-HOST-6).
func NVIDIA(root string) bool {
	for _, name := range []string{"dev/nvidia0", "dev/nvidiactl", "dev/dxg"} {
		if exists(filepath.Join(root, name)) {
			return true
		}
	}
	return false
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// maxProperties is the largest description of a node that is looked at.
const maxProperties = 16384

// AMD counts the AMD GPUs of this machine, but not beyond limit if that is more than 0. It is -1 if
// that cannot be found out (C-HOST-7).
func AMD(root string, limit int) int {
	if exists(filepath.Join(root, "dev/dxg")) {
		return 1
	}
	dir := filepath.Join(root, "sys/class/kfd/kfd/topology/nodes")
	nodes, err := os.ReadDir(dir)
	switch {
	case os.IsNotExist(err):
		return 0
	case err != nil:
		return -1
	}
	n := 0
	for _, node := range nodes {
		if computes(filepath.Join(dir, node.Name(), "properties")) {
			if n++; n == limit {
				break
			}
		}
	}
	return n
}

// computes says whether a node has units that compute; one that cannot be read has none.
func computes(file string) bool {
	info, err := os.Stat(file)
	if err != nil || info.Size() < 1 || info.Size() > maxProperties {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "simd_count "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			return err == nil && n > 0
		}
	}
	return false
}
