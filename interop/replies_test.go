package interop

import (
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry/internal/lab"
)

// The tests of this file are T-REAL-7: what an unmodified client does with
// each reply, which is what the server's own answers were chosen by. The
// server here is a script; the client is real, in both dialects.

// scriptedBeats is the heartbeat timeout, in seconds, of clients whose heartbeats are tested. Half of it is both the
// pace and the deadline of a beat, so a script that a busy machine slows down still answers in time.
const scriptedBeats = 10

func TestClientRegisters(t *testing.T) {
	lab.Clause(t, "T-REAL-7", "A-CON-3", "A-CON-4", "C-CLI-1")
	t.Parallel()
	for _, row := range []struct {
		name    string
		answers []answer
		init    int    // register timeout, seconds
		dies    string // in connect, saying so; connects if empty
	}{
		{"again after errors that may pass (R-11)", []answer{
			refused(codes.Unavailable), refused(codes.Unknown), refused(codes.Aborted).with(p0()), refused(codes.Internal).with(p0()),
			refused(codes.DeadlineExceeded), refused(codes.InvalidArgument), registered(incarnation)}, 300, ""},
		{"no more after an error of the service (R-12)", []answer{refused(codes.InvalidArgument).with(p0())}, 300, "INVALID_ARGUMENT"},
		{"no more after the deadline (R-13)", []answer{refused(codes.Unavailable)}, 1, "UNAVAILABLE"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			scripted(t, both, clientConfig{init: row.init}, func(t *testing.T, s *script, c *client) {
				s.on("RegisterTask", row.answers...)
				if row.dies != "" {
					c.begin("connect")
					c.aborts(row.dies)
					return
				}
				connect(c)
				if n := s.drain("RegisterTask"); n != len(row.answers) {
					t.Errorf("RegisterTask came %d times; want %d", n, len(row.answers))
				}
				leave(c)
			})
		})
	}
}

func TestClientBeats(t *testing.T) {
	lab.Clause(t, "T-REAL-7", "A-HB-3", "A-HB-4", "A-HB-6", "A-TOL-1", "C-CLI-3")
	t.Parallel()
	good := registered(incarnation)
	for _, row := range []struct {
		name    string
		answers []answer
		dies    []string // saying so; lives if nil
		venvs   []venv
	}{
		{"lives on UNAVAILABLE three times in a row",
			[]answer{refused(codes.Unavailable), refused(codes.Unavailable), refused(codes.Unknown), good}, nil, both},
		{"dies of the fourth", []answer{refused(codes.Unavailable)}, []string{"UNAVAILABLE", "Heartbeat"}, both},
		{"dies of CANCELLED", []answer{refused(codes.Canceled)}, []string{"CANCELLED", "Heartbeat"}, both},
		{"dies of a stored error", []answer{refused(codes.Aborted).with(p0())}, []string{"ABORTED", "as scripted"}, both},
		{"dies of another incarnation (R-8)", []answer{registered(incarnation + 1)}, []string{"ABORTED", "Leader incarnation ID mismatch"}, both},
		{"dies of a mismatch", []answer{refused(codes.Internal).with(p0(), pm())}, []string{"INTERNAL", "as scripted"}, []venv{jaxNew}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			scripted(t, row.venvs, clientConfig{heartbeat: scriptedBeats}, func(t *testing.T, s *script, c *client) {
				s.on("Heartbeat", row.answers...)
				connect(c)
				if row.dies != nil {
					c.aborts(row.dies...)
					return
				}
				s.await(t, "Heartbeat", len(row.answers)+1)
				leave(c)
			})
		})
	}
}

func TestClientPolls(t *testing.T) {
	lab.Clause(t, "T-REAL-7", "A-POLL-1", "A-POLL-2", "C-CLI-2")
	t.Parallel()
	for _, row := range []struct {
		name  string
		reply answer
		dies  []string // lives if nil
	}{
		{"dies of OK (R-16)", answer{}, []string{"Check failed"}},
		{"dies of UNAVAILABLE", refused(codes.Unavailable).with(p0()), []string{"UNAVAILABLE", "as scripted", "PollForError"}},
		{"dies of INTERNAL", refused(codes.Internal), []string{"INTERNAL", "as scripted"}},
		{"goes quiet on CANCELLED", refused(codes.Canceled).with(p0()), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			scripted(t, both, clientConfig{heartbeat: scriptedBeats}, func(t *testing.T, s *script, c *client) {
				s.on("PollForError", row.reply)
				c.begin("connect") // it may die before it says that it is connected
				if row.dies != nil {
					c.aborts(row.dies...)
					return
				}
				c.end().value(nil)
				s.await(t, "PollForError", 1)
				s.await(t, "Heartbeat", 2)
				if n := s.drain("PollForError"); n != 0 {
					t.Errorf("PollForError came %d times more; want none after CANCELLED", n)
				}
				leave(c)
			})
		})
	}
}

// A client that was told CANCELLED has no call open that a restart breaks.
func TestClientOutlivesARestartWithoutPoll(t *testing.T) {
	lab.Clause(t, "T-REAL-7", "A-HA-2", "A-HA-4", "A-RPC-1")
	t.Parallel()
	quiet := refused(codes.Canceled).with(p0())
	t.Run("between two heartbeats (R-8a)", func(t *testing.T) {
		t.Parallel()
		// Before 0.10.0 the client beats at once when it is connected, from a thread of its own: that beat must be over
		// before the outage begins.
		for v, first := range map[venv][]string{jaxNew: {"PollForError"}, jax092: {"PollForError", "Heartbeat"}} {
			scripted(t, []venv{v}, clientConfig{}, func(t *testing.T, s *script, c *client) {
				s.on("PollForError", quiet)
				connect(c)
				s.settle(c, first...)
				s.stop()
				newScriptOn(t, s.addr)
				// A call that meets the broken connection fails; a later one works. Before 0.10.0 the client
				// does not say that a delete has failed, so this is a call that tells.
				r := c.call("key_value_set", "k", "v")
				for r.Error != nil {
					r.raises("UNAVAILABLE")
					r = c.call("key_value_set", "k", "v")
				}
				leave(c)
			})
		}
	})
	t.Run("dies of a heartbeat in between (R-8b)", func(t *testing.T) {
		t.Parallel()
		scripted(t, both, clientConfig{heartbeat: scriptedBeats}, func(t *testing.T, s *script, c *client) {
			s.on("PollForError", quiet)
			connect(c)
			s.settle(c, "PollForError")
			s.stop()
			c.aborts("UNAVAILABLE", "Heartbeat")
		})
	})
	t.Run("waits with GRPC_FAIL_FAST=false (R-10)", func(t *testing.T) {
		t.Parallel()
		patient := clientConfig{heartbeat: 12, env: []string{"GRPC_FAIL_FAST=false"}}
		scripted(t, []venv{jaxNew}, patient, func(t *testing.T, s *script, c *client) {
			s.on("PollForError", quiet)
			connect(c)
			s.settle(c, "PollForError")
			s.stop()
			refuseOneDial(t, s.addr) // that is the heartbeat
			again := newScriptOn(t, s.addr)
			again.await(t, "Heartbeat", 1)
			leave(c)
		})
	})
}

func TestClientDiesOfABrokenConnection(t *testing.T) {
	lab.Clause(t, "T-REAL-7", "A-DIE-1", "A-DIE-3", "A-DIE-4", "A-SHUT-2")
	t.Parallel()
	t.Run("under its poll (R-2)", func(t *testing.T) {
		t.Parallel()
		scripted(t, both, clientConfig{}, func(t *testing.T, s *script, c *client) {
			connect(c)
			s.await(t, "PollForError", 1)
			s.stop()
			c.aborts("UNAVAILABLE", "PollForError")
		})
	})
	t.Run("at shutdown (R-9)", func(t *testing.T) {
		t.Parallel()
		scripted(t, both, clientConfig{}, func(t *testing.T, s *script, c *client) {
			s.on("PollForError", refused(codes.Canceled).with(p0()))
			connect(c)
			s.settle(c, "PollForError")
			s.stop()
			c.begin("shutdown")
			c.aborts("UNAVAILABLE")
		})
	})
	t.Run("of an error at shutdown", func(t *testing.T) {
		t.Parallel()
		scripted(t, both, clientConfig{}, func(t *testing.T, s *script, c *client) {
			s.on("ShutdownTask", refused(codes.Internal).with(p0()))
			connect(c)
			c.begin("shutdown")
			c.aborts("INTERNAL", "as scripted")
		})
	})
}

// Errors of other calls are the caller's, with payloads and text up to a size.
func TestClientRaisesErrors(t *testing.T) {
	lab.Clause(t, "T-REAL-7", "A-PY-3", "A-CH-8", "C-WIRE-7", "C-WIRE-10", "C-WIRE-15")
	t.Parallel()
	scripted(t, both, clientConfig{}, func(t *testing.T, s *script, c *client) {
		connect(c)
		s.on("TryGetKeyValue", refused(codes.NotFound))
		c.call("key_value_try_get", "k").raises("NOT_FOUND: as scripted")
		long := refused(codes.NotFound)
		long.message = strings.Repeat("x", 7<<10)
		s.on("TryGetKeyValue", long)
		c.call("key_value_try_get", "k").raises("NOT_FOUND: " + long.message)
		leave(c)
	})
	t.Run("payload forms (R-14)", func(t *testing.T) {
		t.Parallel()
		scripted(t, []venv{jaxNew}, clientConfig{}, func(t *testing.T, s *script, c *client) {
			connect(c)
			ours := refused(codes.NotFound).with(p0(), statusFields(codes.NotFound, "as scripted"))
			theirs := refused(codes.NotFound).with(statusFields(codes.NotFound, "as scripted"))
			for _, row := range []struct {
				reply   answer
				payload bool
			}{{refused(codes.NotFound).with(p0()), true}, {ours, true}, {theirs, false}} {
				s.on("TryGetKeyValue", row.reply)
				r := c.call("key_value_try_get", "k")
				r.raises("NOT_FOUND: as scripted")
				if got := contains(*r.Error, "tensorflow.CoordinationServiceError"); got != row.payload {
					t.Errorf("details %q: payload seen is %v; want %v", row.reply.details, got, row.payload)
				}
			}
			leave(c)
		})
	})
	t.Run("dies of a mismatch (R-17)", func(t *testing.T) {
		t.Parallel()
		scripted(t, []venv{jaxNew}, clientConfig{}, func(t *testing.T, s *script, c *client) {
			connect(c)
			s.on("InsertKeyValue", refused(codes.Internal).with(p0(), pm()))
			c.begin("key_value_set", "k", "v")
			c.aborts("INTERNAL", "as scripted", "InsertKeyValue")
		})
	})
}

// scripted runs a test with a script and a client that dials it, once for
// each environment.
func scripted(t *testing.T, venvs []venv, cfg clientConfig, test func(t *testing.T, s *script, c *client)) {
	t.Helper()
	skipShort(t)
	eachVenv(t, venvs, 1, func(t *testing.T, v venv) {
		cfg := cfg
		cfg.venv = v
		s := newScript(t)
		test(t, s, newClient(t, s.addr, cfg))
	})
}

// statusFields are code and message where a google.rpc.Status has them.
func statusFields(code codes.Code, message string) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(code))
	return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), message)
}

// refuseOneDial returns when somebody dialled addr, which nobody serves, and
// was turned away.
func refuseOneDial(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
