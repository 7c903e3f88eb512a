package pystack

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// The file in which a process waits, and its mount. A pipe with a name stands for storage that does not answer.
func TestFileOf(t *testing.T) {
	clause.Cite(t, "D-HG-10")
	path := filepath.Join(t.TempDir(), "check point.bin")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path, os.O_RDWR, 0) // so that opening it does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	c := start(t, "sh", "-c", `exec 0<"$0"; echo; read x`, path)
	c.line(t)
	got := FileOf(c.pid())
	for got == "" { // it is on its way to the read
		got = FileOf(c.pid())
	}
	if !strings.HasPrefix(got, path+" on /") || !strings.HasSuffix(got, ")") {
		t.Errorf("FileOf() = %q; want %q and its mount", got, path)
	}
	if got := FileOf(start(t, "sleep", "1000").pid()); got != "" {
		t.Errorf("FileOf() of a process that sleeps = %q; want none", got)
	}
}

func TestMountOf(t *testing.T) {
	clause.Cite(t, "D-HG-10")
	const list = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /data rw shared:7 master:1 - nfs4 server:/export rw
31 30 0:41 / /data/my\040model rw - fuse.gcsfuse my\134bucket rw
32 22 0:42 / /data rw - nfs4 other:/export rw
garbage
33 22 0:43 / /x - short
`
	for path, want := range map[string]string{
		"/data/my model/a":  `/data/my model (fuse.gcsfuse, my\bucket)`,
		"/data/my modelled": "/data (nfs4, other:/export)",
		"/database":         "/ (ext4, /dev/sda1)",
		"/data":             "/data (nfs4, other:/export)",
	} {
		if got := mountOf(list, path); got != want {
			t.Errorf("mountOf(%q) = %q; want %q", path, got, want)
		}
	}
	if got := mountOf("", "/a"); got != "" {
		t.Errorf("mountOf() without a list = %q", got)
	}
}

func FuzzMountOf(f *testing.F) {
	f.Add(`31 30 0:41 / /data/my\040model rw - fuse.gcsfuse my\134bucket rw`, "/data/my model/a", "0 0x3 0x7f")
	f.Fuzz(func(_ *testing.T, list, path, call string) {
		mountOf(list, path)
		fileArgument(call)
	})
}
