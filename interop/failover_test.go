package interop

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// Four unmodified jax processes, each behind a relay, work on while the leader of
// their service is killed ten times at random moments and comes back as a
// standby: every process exits 0, no barrier is skipped or doubled, no increment
// lost or doubled.
func TestJobOutlivesItsLeaders(t *testing.T) {
	lab.Clause(t, "T-REAL-9", "A-SIDE-0", "A-SIDE-6", "A-SIDE-8", "C-TERM-3", "C-LOST-6", "C-REQ-2", "C-REQ-3")
	skipShort(t)
	t.Parallel()
	for _, flags := range [][]string{{"--recoverable=false"}, {"--recoverable=true"}} {
		t.Run(flags[0], func(t *testing.T) {
			beside(t, 4)
			random := newChance(t)
			s := startTrio(t, here, flags...)
			job := startFailoverJob(t, jaxNew, relaying{upstream: s.addrs()}.start(t))
			var stood stalls
			var l leader
			for range kills(t) {
				l = s.leader(l.term)
				random.moment(500 * time.Millisecond) // not always enough to find a new leader, and ask it anew
				l.signal(syscall.SIGKILL)
				if random.IntN(2) == 0 {
					stood = append(stood, job.steps(2))
				}
				s.restart(l.trioMember)
			}
			t.Log(stood)
			job.ends()
		})
	}
}

// kills is how often a leader is killed: ten times, or as SERRY_KILLS says.
func kills(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("SERRY_KILLS"))
	if err != nil {
		return 10
	}
	return n
}

// A leader that stands still for eight seconds has a successor when it wakes up,
// and neither its writes nor its reads count (C-TERM).
func TestJobOutlivesAFrozenLeader(t *testing.T) {
	lab.Clause(t, "C-TERM-1", "C-TERM-2", "A-SIDE-18", "A-SIDE-20")
	skipShort(t)
	beside(t, 4)
	const frozen = 8 * time.Second
	s := startTrio(t, here)
	job := startFailoverJob(t, jaxNew, relaying{upstream: s.addrs()}.start(t))
	l := s.leader(0)
	l.signal(syscall.SIGSTOP)
	over := time.After(frozen)
	stood := stalls{job.steps(2)}
	s.leader(l.term)
	<-over
	l.signal(syscall.SIGCONT)
	job.steps(20)
	t.Log(stood)
	job.ends()
}

// A leader that nobody reaches any more, and that reaches nobody, has a successor
// while it is away, and is a standby when it is back.
func TestJobOutlivesALeaderThatIsCutOff(t *testing.T) {
	lab.Clause(t, "C-TERM-1", "C-TERM-2", "A-SIDE-18", "C-LOST-5")
	skipShort(t)
	beside(t, 4)
	net := newNetwork(t)
	s := startTrio(t, net.places)
	job := startFailoverJob(t, jaxNew, relaying{upstream: s.addrs(), enter: net.hub, listen: net.socket}.start(t))
	l := s.leader(0)
	for i, m := range s.members {
		if m == l.trioMember {
			net.cut(i)
			defer net.heal(i)
		}
	}
	stood := stalls{job.steps(2)}
	next := s.leader(l.term)
	for i, m := range s.members {
		if m == l.trioMember {
			net.heal(i)
		}
	}
	job.steps(20)
	next.signal(syscall.SIGKILL) // now the one that was away is needed for a majority
	stood = append(stood, job.steps(2))
	s.leader(next.term)
	t.Log(stood)
	job.ends()
}

// T-REAL-16: a leader that is asked to hand over, and one that is told to end,
// leave the job to another; nobody notices.
func TestJobIsHandedOver(t *testing.T) {
	lab.Clause(t, "T-REAL-16", "T-REAL-9", "C-STOP-4", "A-HA-7", "A-HA-8")
	skipShort(t)
	beside(t, 4)
	s := startTrio(t, here)
	job := startFailoverJob(t, jaxNew, relaying{upstream: s.addrs()}.start(t))
	l := s.leader(0)
	s.handover(l)
	l = s.leader(l.term)
	stood := stalls{job.steps(2)}
	for range 3 {
		l.signal(syscall.SIGTERM)
		l.stopped()
		stood = append(stood, job.steps(2))
		next := s.leader(l.term)
		s.restart(l.trioMember)
		l = next
	}
	t.Log(stood)
	job.ends()
}
