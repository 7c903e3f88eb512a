package main

import (
	"os"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// A page on the loopback of another host cannot be reached by a link.
func TestFarPages(t *testing.T) {
	lab.Clause(t, "D-WEB-4")
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		page, address string
		want          bool
	}{
		{"", "192.0.2.7:8476", false},
		{"http://192.0.2.7:8480/", "192.0.2.7:8476", false},
		{"http://127.0.0.1:8480/", "192.0.2.7:8476", true},
		{"http://localhost:8480/", "far.example.org:8476", true},
		{"http://[::1]:8480/", "127.0.0.1:8476", false},
		{"http://127.0.0.1:8480/", name + ":8476", false},
		{"http://127.0.0.1:8480/%zz", "192.0.2.7:8476", false},
	} {
		if got := isFar(serverStatus{Page: c.page, Address: c.address}); got != c.want {
			t.Errorf("isFar(%q of %q) = %v; want %v", c.page, c.address, got, c.want)
		}
	}
}
