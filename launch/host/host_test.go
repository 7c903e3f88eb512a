package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// machine is a root with files in it.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// pci adds a device.
func pci(files map[string]string, slot, vendor, device string) map[string]string {
	if files == nil {
		files = make(map[string]string)
	}
	files["sys/bus/pci/devices/"+slot+"/vendor"] = vendor + "\n"
	files["sys/bus/pci/devices/"+slot+"/device"] = device + "\n"
	return files
}

func TestTPUs(t *testing.T) {
	clause.Cite(t, "TC-HOST-03", "C-HOST-1")
	for _, c := range []struct {
		name  string
		files map[string]string
		n     int
		kind  TPU
		text  string
	}{
		{"two v5e", pci(pci(nil, "0", "0x1ae0", "0x0063"), "1", "0x1ae0", "0x0063"), 2, v5e, "v5e"},
		{"other vendor", pci(nil, "0", "0x10de", "0x0063"), 0, NoTPU, "none"},
		{"unknown device", pci(nil, "0", "0x1ae0", "0x9999"), 0, NoTPU, "none"},
		{"the last counts", pci(pci(nil, "0", "0x1ae0", "0x0027"), "1", "0x1ae0", "0x007c"), 2, 9, "8t"},
		{"nothing", nil, 0, NoTPU, "none"},
	} {
		n, kind := TPUs(machine(t, c.files))
		if n != c.n || kind != c.kind || kind.String() != c.text {
			t.Errorf("%s: TPUs() = %d, %v; want %d, %v", c.name, n, kind, c.n, c.text)
		}
	}
}

func TestHugePages(t *testing.T) {
	clause.Cite(t, "TC-HOST-04", "C-HOST-2")
	const always, madvise = "[always] madvise never\n", "always [madvise] never\n"
	for _, c := range []struct {
		name, device, mode string
		want               bool
	}{
		{"v5e, on demand", "0x0063", madvise, true},
		{"v5e, always", "0x0063", always, false},
		{"v5e, no file", "0x0063", "", true},
		{"v5p", "0x0062", madvise, false},
		{"no chip", "0x9999", madvise, false},
	} {
		files := pci(nil, "0", "0x1ae0", c.device)
		if c.mode != "" {
			files[hugePagesFile] = c.mode
		}
		f, found := hugePages(machine(t, files))
		if found != c.want || found && (f.Severity != Warning || f.Remedy == "" || c.mode != "" && !strings.Contains(f.Observed, "[madvise]")) {
			t.Errorf("%s: hugePages() = %+v, %v; want %v", c.name, f, found, c.want)
		}
	}
}

func TestSharedMemory(t *testing.T) {
	clause.Cite(t, "TC-HOST-01", "C-HOST-8")
	size := func(string, *unix.Statfs_t) error { return nil }
	for _, c := range []struct {
		name string
		stat func(string, *unix.Statfs_t) error
		want float64
	}{
		{"128 MiB", func(_ string, st *unix.Statfs_t) error { st.Blocks, st.Frsize = 131072, 1024; return nil }, 128},
		{"error", func(string, *unix.Statfs_t) error { return errors.New("no") }, 0},
		{"nothing told", size, 0},
	} {
		if got := SharedMemory("x", c.stat); got != c.want {
			t.Errorf("%s: SharedMemory() = %v; want %v", c.name, got, c.want)
		}
	}
	if got := SharedMemory(filepath.Join(t.TempDir(), "none"), unix.Statfs); got != 0 {
		t.Errorf("SharedMemory() of nothing = %v; want 0", got)
	}
}

// amd is a node of a machine with AMD GPUs.
func amd(units string) string { return "cpu_cores_count 0\nsimd_count " + units + "\n" }

func TestAMD(t *testing.T) {
	clause.Cite(t, "TC-HOST-02", "C-HOST-7")
	const nodes = "sys/class/kfd/kfd/topology/nodes/"
	tree := map[string]string{nodes + "0/properties": amd("0"), nodes + "1/properties": amd("208"), nodes + "2/properties": amd("208")}
	large := map[string]string{nodes + "0/properties": amd("208") + strings.Repeat("x", 20<<10), nodes + "1/properties": "", nodes + "2/x": ""}
	for _, c := range []struct {
		name  string
		files map[string]string
		limit int
		want  int
	}{
		{"two", tree, 0, 2},
		{"limit", tree, 1, 1},
		{"too large, empty, missing", large, 0, 0},
		{"no such directory", nil, 0, 0},
		{"windows", map[string]string{"dev/dxg": ""}, 0, 1},
		{"not a directory", map[string]string{"sys/class/kfd/kfd/topology/nodes": ""}, 0, -1},
	} {
		if got := AMD(machine(t, c.files), c.limit); got != c.want {
			t.Errorf("%s: AMD(%d) = %d; want %d", c.name, c.limit, got, c.want)
		}
	}
	if n := AMD("/", 1); n < -1 || n > 1 {
		t.Errorf("AMD() of this machine = %d; want -1 to 1", n)
	}
	root := machine(t, tree)
	if f, found := sharedMemory(root); !found || f.ID != "shared-memory" { // there is no /dev/shm
		t.Errorf("sharedMemory() with two GPUs and no /dev/shm = %+v, %v; want a warning", f, found)
	}
}

func TestNVIDIA(t *testing.T) {
	clause.Cite(t, "C-HOST-6")
	for _, name := range []string{"dev/nvidia0", "dev/nvidiactl", "dev/dxg"} {
		if !NVIDIA(machine(t, map[string]string{name: ""})) {
			t.Errorf("NVIDIA() with %s = false; want true", name)
		}
	}
	if NVIDIA(machine(t, map[string]string{"dev/null": ""})) {
		t.Error("NVIDIA() with nothing = true; want false")
	}
}

// Check finds all that is wrong, and nothing about a machine where all is well.
func TestCheck(t *testing.T) {
	clause.Cite(t, "P-HOST-1", "P-HOST-3")
	bad := Check(machine(t, pci(nil, "0", "0x1ae0", "0x0063")))
	ids := make(map[string]bool)
	for _, f := range bad {
		ids[f.ID] = true
		if f.Observed == "" || f.Expected == "" || f.Remedy == "" || f.Severity == "" {
			t.Errorf("%+v; want everything said", f)
		}
	}
	if !ids["huge-pages"] || !ids["boot-id"] {
		t.Errorf("Check() = %+v; want huge-pages and boot-id", bad)
	}
	good := Check(machine(t, map[string]string{"proc/sys/kernel/random/boot_id": "01234567-89ab-cdef-0123-456789abcdef\n"}))
	for _, f := range good {
		if f.ID != "open-files" { // that one is of this process
			t.Errorf("Check() of a good machine found %+v", f)
		}
	}
}
