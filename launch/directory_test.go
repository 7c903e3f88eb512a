package launch

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A listing remembers what it was told.
type listing struct {
	mu  sync.Mutex
	all []string
}

func (l *listing) Serves(address string, attempt int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf("attempt %d at %s", attempt, address))
}

// Closes notes that the job is over, and that its service still answers.
func (l *listing) Closes() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, "closes")
}

func (l *listing) has(entry string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.all, entry)
}

// Where the service of an attempt is can be looked up on every host before a task of the attempt begins there.
func TestServiceIsListedBeforeTasksBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		s.script = func(p *actorProcess) {
			if task, attempt, _ := p.seat(); task == 1 && attempt == 1 {
				p.end(Cause{Code: 1}, byItself)
			}
			select {
			case <-time.After(time.Second):
				p.end(Cause{}, byItself)
			case <-p.signals:
				p.end(Cause{Signal: syscall.SIGTERM}, byItself)
			case <-p.dead:
			}
		}
		listings := map[string]*listing{"a": {}, "b": {}}
		s.begun = func(p *actorProcess) {
			_, attempt, _ := p.seat()
			if want := fmt.Sprintf("attempt %d at first:%d", attempt, 1000+attempt); !listings[p.host.name].has(want) {
				t.Errorf("task %s begins on host %s before %q is listed", p.env[EnvTask], p.host.name, want)
			}
		}
		var jobs []*Job
		for node, name := range []string{"a", "b"} {
			cfg := stepOf("", node, nil)
			cfg.Directory, cfg.Restart, cfg.MaxRestarts = listings[name], RestartAll, 1
			jobs = append(jobs, launchOn(t, s.host(name), cfg))
		}
		for _, j := range jobs {
			if r := j.Wait(); !r.Well() || r.Attempts != 2 {
				t.Errorf("Wait() = %+v; want a second attempt that ends well", r)
			}
		}
		s.done.Wait()
		for host, l := range listings {
			want := map[string]int{"a": 3, "b": 2}[host] // the first host is told when all is over, too
			if len(l.all) != want || slices.Contains(l.all[:2], "closes") {
				t.Errorf("host %s was told %q; want each attempt once, and the first host of the end", host, l.all)
			}
		}
	})
}
