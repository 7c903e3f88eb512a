package server_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// TestStreamsBesideHTTP2 shows that one listener takes both, with TLS and without.
func TestStreamsBesideHTTP2(t *testing.T) {
	lab.Clause(t, "C-WIRE-12", "A-SIDE-14")
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("tls=", secure), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := cluster(1)
				h := &host{t: t, replies: make(map[rpc.CallID]stream.Reply)}
				l := bufconn.Listen(1 << 16)
				to := stream.HostConfig{
					Addresses: []string{"lab"}, Kind: stream.Relay, Sink: h,
					Dial: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
				}
				if secure {
					ofServer, ofClient := identities(t)
					cfg.TLS, to.TLS = ofServer.Server(), ofClient.Client("lab")
				}
				s := start(t, cfg)
				go s.Serve(l)
				h.Host = stream.NewHost(to)
				h.register(0)
				time.Sleep(time.Second)
				if got := s.View().Tasks[0].State; got != serry.Connected || s.Hosts() != 1 {
					t.Errorf("the task is %v, with %d hosts; want it connected by a stream", got, s.Hosts())
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := h.Close(ctx); err != nil {
					t.Errorf("Close() = %v", err)
				}
			})
		})
	}
}

// TestLossyLink lets a host live for long behind a link that loses one packet in twenty. What is lost is
// sent again, by TCP, a fifth of a second later, then twice that, and everything behind it waits.
func TestLossyLink(t *testing.T) {
	lab.Clause(t, "C-LOST-5", "NEW-36")
	hours := 10 * time.Hour
	if testing.Short() {
		hours = 10 * time.Minute
	}
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(1))
		h := dialHost(t, s, stream.Relay)
		h.lossy(20)
		h.cut(false) // what it has now is a good one
		h.register(0)
		poll := h.poll(0)
		stop := time.Now().Add(hours)
		for time.Now().Before(stop) && h.waits(poll) {
			h.beat(0)
			time.Sleep(timeout / 4)
		}
		if !h.waits(poll) {
			t.Fatalf("the task was lost: %v", h.reply(poll).Status)
		}
	})
}
