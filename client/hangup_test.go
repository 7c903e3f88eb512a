package client_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/stream"
)

// TestServersThatHangUp: servers that crash while a member calls them say nothing, nor does a proxy whose
// servers are not there. So do servers that speak HTTP/2 only. The member must not take the one for the other,
// however often that happens.
func TestServersThatHangUp(t *testing.T) {
	lab.Clause(t, "A-SIDE-14")
	for _, times := range []int{3, 40} {
		joinAfter(t, func(call int, far net.Conn) (served bool) {
			if call <= times {
				far.Close()
				return true
			}
			return false
		})
	}
}

// A hangUp is the connection to a server of HTTP/2 that hangs up where it hears something else.
type hangUp struct{ net.Conn }

// Write implements net.Conn.
func (c hangUp) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte(stream.Preface)) {
		c.Close()
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestStockServerThatHangsUp: a server that says nothing to a stream, and answers HTTP/2, is spoken to so.
func TestStockServerThatHangsUp(t *testing.T) {
	lab.Clause(t, "A-SIDE-14", "C-WIRE-14")
	synctest.Test(t, func(t *testing.T) {
		stockAnswers(t, func(nc net.Conn) net.Conn { return hangUp{nc} })
	})
}

// TestStandbySpeaksTheStream: a server that names no leader has shown what it speaks. However often
// servers hang up after that, nobody takes them for others.
func TestStandbySpeaksTheStream(t *testing.T) {
	lab.Clause(t, "A-SIDE-14", "A-HA-9")
	joinAfter(t, func(call int, far net.Conn) (served bool) {
		switch {
		case call == 1:
			go stream.Redirect(far, "")
		case call <= 12:
			far.Close()
		default:
			return false
		}
		return true
	})
}

// joinAfter lets a member join a service whose first connections go elsewhere: those that away takes,
// counted from 1. It must get there by a stream.
func joinAfter(t *testing.T, away func(call int, far net.Conn) (served bool)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(server.Config{Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var calls atomic.Int32
		transport, err := client.Dial("a,b", client.DialOptions{Connect: func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			if !away(int(calls.Add(1)), far) {
				go s.ServeStream(far)
			}
			return near, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m, err := client.Join(ctx, client.Config{Task: serry.TaskID{Job: "worker"}, Transport: transport})
		if err != nil || s.Hosts() != 1 {
			t.Fatalf("Join() = %v, with %d streams at the server; want a member on one", err, s.Hosts())
		}
		if err := m.Leave(ctx); err != nil {
			t.Errorf("Leave() = %v", err)
		}
		transport.Close()
	})
}
