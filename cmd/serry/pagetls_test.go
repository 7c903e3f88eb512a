package main

import (
	"net"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// A listenerAt says that it listens at an address.
type listenerAt struct {
	net.Listener
	address string
}

func (l listenerAt) Addr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", l.address) // it is one of a test, without a name
	return a
}

// The address that is printed has a name that the certificate is for, if there is one at which browsers reach the page.
func TestPageNames(t *testing.T) {
	lab.Clause(t, "D-WEB-15")
	for _, c := range []struct {
		listen string
		names  []string
		want   string
	}{
		{"127.0.0.1:80", nil, "127.0.0.1:80"},
		{"127.0.0.1:80", []string{"coord.example.org"}, "127.0.0.1:80"},
		{"127.0.0.1:80", []string{"localhost", "coord.example.org"}, "localhost:80"},
		{"127.0.0.1:80", []string{"localhost", "127.0.0.1"}, "127.0.0.1:80"},
		{"[::1]:80", []string{"localhost"}, "localhost:80"},
		{"192.0.2.7:80", []string{"localhost", "coord.example.org"}, "192.0.2.7:80"},
		{"0.0.0.0:80", []string{"coord.example.org", "localhost"}, "coord.example.org:80"},
	} {
		if got := new(pageSettings).reached(listenerAt{address: c.listen}, c.names); got != c.want {
			t.Errorf("reached(%s) with a certificate for %q = %s; want %s", c.listen, c.names, got, c.want)
		}
	}
}
