package main

import "testing"

func TestGarbagePercent(t *testing.T) {
	for _, tt := range []struct {
		held uint64
		want int
	}{{0, 400}, {4 << 20, 400}, {32 << 20, 200}, {64 << 20, 100}, {1 << 30, 50}} {
		if got := garbagePercent(tt.held); got != tt.want {
			t.Errorf("garbagePercent(%d MiB) = %d; want %d", tt.held>>20, got, tt.want)
		}
	}
}
