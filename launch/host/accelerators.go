package host

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A TPU is a generation of TPU chips, in the order in which they came; NoTPU is none.
type TPU int

// NoTPU is the generation of a machine without TPU chips, and v5e the first for which huge pages matter.
const (
	NoTPU TPU = -1
	v5e   TPU = 5
)

// generations are all that can be told apart, with the PCI devices that they are, where that is known.
var generations = []struct{ name, device string }{
	{"v2", ""}, {"v3", "0x0027"}, {"plc", "0x0056"}, {"v4", "0x005e"}, {"v5p", "0x0062"},
	{"v5e", "0x0063"}, {"v6e", "0x006f"}, {"7x", "0x0076"}, {"8i", "0x0083"}, {"8t", "0x007c"},
}

// String is the name of the generation.
func (v TPU) String() string {
	if v < 0 || int(v) >= len(generations) {
		return "none"
	}
	return generations[v].name
}

const googleVendor = "0x1ae0"

// TPUs counts the TPU chips of this machine and says what the last of them is (C-HOST-1).
func TPUs(root string) (n int, kind TPU) {
	kind = NoTPU
	vendors, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/vendor")) // the pattern is well formed
	for _, file := range vendors {
		if word(file) != googleVendor {
			continue
		}
		device := word(filepath.Join(filepath.Dir(file), "device"))
		for i, g := range generations {
			if device != "" && device == g.device {
				n, kind = n+1, TPU(i)
			}
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
