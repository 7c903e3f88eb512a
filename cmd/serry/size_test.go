package main

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "2KiB": 2 << 10, "512MiB": 512 << 20, "8GiB": 8 << 30, "1TiB": 1 << 40, "1048576": 1 << 20,
	} {
		var s, again size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("Set(%q) = %d, %v; want %d", text, s, err, want)
		}
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("Set(%q) = %d, %v; want %d", s.String(), again, err, s)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "1.5GiB", "8GB", "9223372036854775807TiB"} {
		if err := new(size).Set(text); err == nil {
			t.Errorf("Set(%q) = nil; want an error", text)
		}
	}
}
