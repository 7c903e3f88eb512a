package server

import (
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// A host whose connections break again and again in the TLS handshake is one line of the log, though each has a port
// of its own, and leaves the other lines to other hosts.
func TestRefusedPortsAreOneReason(t *testing.T) {
	clause.Cite(t, "A-TLS-7", "SEC-103")
	var log strings.Builder
	r := newRefusals(slog.New(slog.NewTextHandler(&log, nil)))
	here := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8476}
	for port := range 1000 {
		peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 10_000 + port}
		r.add(peer, &net.OpError{Op: "read", Net: "tcp", Source: here, Addr: peer, Err: syscall.ECONNRESET})
	}
	r.add(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 8), Port: 1}, syscall.ECONNRESET)
	if n := strings.Count(log.String(), "connection refused"); n != 2 {
		t.Errorf("1,000 connections of a host and one of another are %d lines; want 2", n)
	}
}
