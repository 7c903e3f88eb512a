package proc

import (
	"math"
	"os"
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	p, err := Start(t.Context(), "/bin/sh", "-c", "echo sh: serving on host:1; read forever")
	if err != nil {
		t.Fatal(err)
	}
	if addr, err := p.Address(); addr != "host:1" || err != nil {
		t.Errorf("Address() = %q, %v; want host:1", addr, err)
	}
	p.Kill()
	<-p.Ended()
	if _, err := Start(t.Context(), "/bin/sh", "-c", "echo no module of that name >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "no module of that name") {
		t.Errorf("Start() of a process that ends: %v; want what it said", err)
	}
}

func TestCost(t *testing.T) {
	before, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	x := 1.
	for range 1_000_000 {
		x = math.Sqrt(x + 1)
	}
	after, err := CPUTime(os.Getpid())
	if err != nil || after <= before {
		t.Errorf("CPUTime() = %v, then %v after work (%v), error %v; want more", before, after, x, err)
	}
	held, peak, err := Memory(os.Getpid())
	if err != nil || held <= 0 || peak < held {
		t.Errorf("Memory() = %d, %d, %v; want some, and a peak not below it", held, peak, err)
	}
	if _, err := statusField("Name:\tx\n", "VmRSS:"); err == nil {
		t.Error("statusField() of a text without the line succeeded; want an error")
	}
}
