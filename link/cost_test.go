//go:build unix

package link_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A thousand idle links, over TCP and over sockets of the host, cost at most 64 KiB each and two goroutines, also after they
// were used.
func TestIdleCost(t *testing.T) {
	clause.Cite(t, "CL-TRN-23", "CL-DES-4")
	if testing.Short() || raceEnabled {
		t.Skip("a thousand links")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < 6000 {
		t.Skipf("%d files may be open: %v", files.Cur, err)
	}
	for name, tcpOnly := range map[string]bool{"tcp": true, "unix": false} {
		t.Run(name, func(t *testing.T) { idleCost(t, tcpOnly) })
	}
}

func idleCost(t *testing.T, tcpOnly bool) {
	const nets = 33 // linked with each other: 1,056 ends of links
	w := &world{job: newJob(), t: t, options: link.Options{TCPOnly: tcpOnly}}
	var all []*link.Net
	for i := range nets {
		all = append(all, w.join(life(i, uint64(100+i))))
	}
	before, goroutines := memoryUse(), runtime.NumGoroutine()
	ends := 0
	for i, m := range all {
		for _, n := range all[:i] {
			a, b := w.linked(m, n)
			exchange(t, a, b, uint64(i))
			ends += 2
		}
	}
	// Bulk lanes rest after a while.
	most := goroutines + 2*ends + 20
	for range 600 {
		if runtime.NumGoroutine() <= most {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	if got := runtime.NumGoroutine(); got > most {
		t.Errorf("%d idle links have %d goroutines; want at most two each", ends, got-goroutines)
	}
	each := (memoryUse() - before) / int64(ends)
	t.Logf("%d idle links: %d bytes and %.2f goroutines each", ends, each, float64(runtime.NumGoroutine()-goroutines)/float64(ends))
	if each > 64<<10 {
		t.Errorf("an idle link costs %d bytes; want at most 64 KiB", each)
	}
}

// memoryUse is what the heap and the stacks take.
func memoryUse() int64 {
	runtime.GC()
	runtime.GC() // the first one empties pools into their victims
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
