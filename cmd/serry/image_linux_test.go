package main

import (
	"os"
	"slices"
	"testing"
)

func TestImageMappings(t *testing.T) {
	const smaps = `00400000-02000000 r-xp 00000000 fe:00 77 /usr/bin/serry
Size:              28672 kB
Anonymous:             0 kB
02000000-04000000 r--p 01c00000 fe:00 77 /usr/bin/serry
Anonymous:             0 kB
04000000-04100000 r--p 03c00000 fe:00 77 /usr/bin/serry
Anonymous:             8 kB
04100000-04200000 rw-p 03d00000 fe:00 77 /usr/bin/serry
Anonymous:             0 kB
c000000000-c004000000 rw-p 00000000 00:00 0
Anonymous:           900 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 78 /usr/lib/libc.so
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x2000000}, {0x2000000, 0x4000000}}
	if got := imageMappings([]byte(smaps), "/usr/bin/serry"); !slices.Equal(got, want) {
		t.Errorf("imageMappings() = %x; want %x: what can be read again from the file, and nothing else", got, want)
	}
}

// TestShedImage: the program goes on with what it has shed.
func TestShedImage(t *testing.T) {
	smaps, err := os.ReadFile("/proc/self/smaps")
	exe, exeErr := os.Readlink("/proc/self/exe")
	if err != nil || exeErr != nil || len(imageMappings(smaps, exe)) == 0 {
		t.Fatalf("no mapping of %s found, errors %v and %v", exe, err, exeErr)
	}
	shedImage()
	if got := newRoot().Name(); got != "serry" {
		t.Errorf("after shedImage the root command is %q; want serry", got)
	}
}
