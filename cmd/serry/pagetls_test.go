package main

import (
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire/mtls"
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

// A server shows its certificate to browsers wherever its page is. A relay, whose certificate is one to show to the service, does so only where other
// hosts reach the page.
func TestPageSpeaksHTTPS(t *testing.T) {
	lab.Clause(t, "D-WEB-15")
	dir := t.TempDir()
	a, err := mtls.NewAuthority(dir, "job", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Issue(dir, mtls.Subject{Name: "coord", Hosts: []string{"coord.example.org"}, Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	id, err := mtls.Load(mtls.Files{Cert: filepath.Join(dir, "coord.pem"), Key: filepath.Join(dir, "coord-key.pem"), CA: filepath.Join(dir, "ca.pem")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		identity  *mtls.Identity
		shownOnly bool
		listen    string
		want      string
	}{
		{nil, false, "127.0.0.1:80", "http"},
		{nil, false, "0.0.0.0:80", "http"},
		{id, false, "127.0.0.1:80", "https"},
		{id, false, "0.0.0.0:80", "https"},
		{id, true, "127.0.0.1:80", "http"},
		{id, true, "192.0.2.7:80", "https"},
	} {
		s := pageSettings{identity: c.identity, shownOnly: c.shownOnly}
		config := web.Config{Hosts: []string{"here"}}
		scheme, names, err := s.secure(&config, listenerAt{address: c.listen})
		secured := c.want == "https"
		if err != nil || scheme != c.want || (config.TLS != nil) != secured || slices.Contains(config.Hosts, "coord.example.org") != secured || (len(names) > 0) != secured {
			t.Errorf("page at %s, certificate %v, of a server %v: %s, %q, hosts %q, %v; want %s", c.listen, c.identity != nil, !c.shownOnly, scheme, names, config.Hosts, err, c.want)
		}
	}
}
