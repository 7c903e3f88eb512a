package interop

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// Way 1 with a single server: killed again and again, and started from its file,
// it is the same service to clients behind relays, of either dialect.
func TestJobOutlivesARestartFromAFile(t *testing.T) {
	lab.Clause(t, "T-REAL-9", "A-SIDE-0", "A-SIDE-1", "C-LOG-3", "C-TIME-1")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 4, func(t *testing.T, v venv) {
		random := newChance(t)
		flags := []string{"--tasks", "4", "--store", "file:" + t.TempDir()}
		srv := serve(t, flags...)
		job := startFailoverJob(t, v, relaying{upstream: []string{srv.addr}}.start(t))
		var stood stalls
		for range 3 {
			random.moment(300 * time.Millisecond)
			srv.kill()
			random.moment(300 * time.Millisecond)
			srv = serveOn(t, srv.addr, flags...)
			stood = append(stood, job.steps(2))
		}
		t.Log(stood)
		job.ends()
	})
}

// Way 2: with errors told by heartbeats alone a client has no open call that is
// deadly. It outlives a restart of its server without a relay: between two beats
// by itself, over one with a setting of gRPC.
func TestQuietPollingOutlivesARestart(t *testing.T) {
	lab.Clause(t, "T-REAL-9", "A-HA-2", "A-HA-3", "A-HA-4", "A-HA-5", "A-HA-6", "C-POLL-11")
	skipShort(t)
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  clientConfig
		beat bool
	}{
		{"between two beats", clientConfig{venv: jaxNew}, false},
		{"over a beat", clientConfig{venv: jaxNew, heartbeat: 20, env: []string{"GRPC_FAIL_FAST=false"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			beside(t, 3)
			flags := []string{"--tasks", "2", "--error-delivery", "heartbeat", "--store", "file:" + t.TempDir()}
			srv := serve(t, flags...)
			clients := join(t, srv.addr, 2, c.cfg)
			barrier("again", clients...)
			clients[0].call("key_value_increment", "count", 1).value(nil)

			clients[0].begin("wait_at_barrier", "again", 60_000)
			clients[1].call("key_value_increment", "count", 1).value(nil)
			srv.kill()
			clients[0].end().raises("UNAVAILABLE: ") // A-HA-5
			if c.beat {
				refuseOneDial(t, srv.addr) // by a beat: no other call is made now
				<-time.After(time.Second)  // the beat of the other client comes, too, and both wait for 10 s
			}
			serveOn(t, srv.addr, flags...)

			for _, c := range clients {
				c.pause(300) // a connection may take a moment, after its first refusal
			}
			var count int
			if clients[1].call("key_value_increment", "count", 1).value(&count); count != 3 {
				t.Errorf("count = %d; want 3", count)
			}
			barrier("again", clients...)
			if !c.beat {
				leave(clients...)
				return
			}
			double := newClient(t, srv.addr, clientConfig{venv: jaxNew, task: 1})
			double.begin("connect") // which ends the run; the others hear of it with their next beat (A-HA-3)
			for _, c := range clients {
				c.aborts("different incarnation", "Heartbeat")
			}
		})
	}
}

// Way 3 without relays: clients that know all servers are passed on from one to
// the other, while each of the three is replaced.
func TestDirectClientsAreHandedOver(t *testing.T) {
	lab.Clause(t, "T-REAL-9", "A-HA-7", "A-HA-8", "A-HA-9", "C-STOP-4")
	skipShort(t)
	beside(t, 4)
	s := startTrio(t, here)
	target := "ipv4:" + strings.Join(s.addrs(), ",")
	job := startFailoverJob(t, jaxNew, []string{target, target, target, target})
	s.handover(s.leader(0))
	stood := stalls{job.steps(2)}
	for _, m := range s.members {
		m.signal(syscall.SIGTERM)
		stood = append(stood, job.steps(2))
		m.stopped()
		s.restart(m)
		stood = append(stood, job.steps(2))
	}
	t.Log(stood)
	job.ends()
}

// serry run with a service elsewhere: its relay is the only one of the host, and
// its tasks outlive a leader, too.
func TestRunOutlivesALeader(t *testing.T) {
	lab.Clause(t, "A-SIDE-0", "A-SIDE-19", "C-EPOCH-6", "T-REAL-12")
	skipShort(t)
	beside(t, 4)
	s := startTrio(t, here)
	r := launch(t, nil, "-n", "4", "--service", strings.Join(s.addrs(), ","), "--",
		"sh", "-c", "exec "+jaxNew.python(t)+" testdata/failover.py 4 $SERRY_TASK 60")
	l := s.leader(0)
	for _, step := range []string{"[0] serry: step 10", "[0] serry: step 30"} {
		r.await(step)
		l.signal(syscall.SIGKILL)
		next := s.leader(l.term)
		s.restart(l.trioMember)
		l = next
	}
	r.ends(0, "serry: all 4 ranks ended well")
	lines := make([]string, 4)
	for _, said := range r.said {
		for task := range lines {
			if line, ok := strings.CutPrefix(said, fmt.Sprintf("[%d] %s{", task, mark)); ok {
				lines[task] = "{" + line
			}
		}
	}
	checkAccounts(t, lines)
}

// Servers and relays show each other certificates, and so do the stores inside
// the servers; jax knows nothing of it.
func TestRelaysEndTLS(t *testing.T) {
	lab.Clause(t, "A-SIDE-1", "A-TLS-12")
	skipShort(t)
	beside(t, 4)
	certs := newCertificates(t)
	certs.serry("cert", "issue", certs.dir, "coord", "--uri", certs.prefix+"coord", "--host", "127.0.0.1") // etcd asks for the host
	certs.issue("relay", certs.prefix+"relay")
	s := startTrio(t, here, certs.serverFlags()...)
	job := startFailoverJob(t, jaxNew, relaying{upstream: s.addrs(), flags: certs.flags("relay")}.start(t))
	l := s.leader(0)
	s.handover(l, certs.flags("relay")...)
	l = s.leader(l.term)
	l.signal(syscall.SIGKILL)
	t.Log(stalls{job.steps(2)})
	s.leader(l.term)
	job.ends()
}
